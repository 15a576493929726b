"""The client's side without an API server: waiting, sharing, forgetting, and what survives an outage."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from eso_operator.certificates import local, secrets
from eso_operator.certificates.authority import issue_authority, issue_client
from eso_operator.certificates.client import (
    FAILURE_SECONDS,
    ClientCertificates,
    ClientCertificateSettings,
    client_secrets,
)
from eso_operator.certificates.issuer import CertificateReport, Issuer
from eso_operator.certificates.problems import CertificateError, Problem, ProblemName
from eso_operator.certificates.secrets import CLIENT, CertificateOwner, SecretMetadata, SecretObject
from eso_operator.certificates.state import Identity, Leaf, Lifetimes, window
from eso_operator.stores.resolved import ManagedTls, SecretTls, ServiceKey
from eso_wire.errors import RetryClass
from eso_wire.tls import TlsMaterial, load_material
from kubebase.meta import JsonObject
from kubebase.testing.clock import START, VirtualClock
from kuberun.client import Client
from kuberun.errors import ApiError, NotFound, ServiceUnavailable
from kuberun.requests import Request
from kuberun.watch import Applied

SERVICE = ServiceKey("team", "provider-fake")
MANAGED, OWN = ManagedTls(SERVICE), SecretTls("team", "own")


@dataclass
class Api:
    """A transport that holds Secrets, counts requests, and can fail."""

    objects: dict[str, JsonObject] = field(default_factory=dict)
    asked: int = 0
    failure: ApiError | None = None

    async def request(self, request: Request) -> bytes:
        self.asked += 1
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        if request.path not in self.objects:
            raise NotFound(404, "NotFound", "not found")
        return msgspec.json.encode(self.objects[request.path])

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        raise NotImplementedError(request.where)

    async def close(self) -> None: ...

    def put(self, data: dict[str, bytes]) -> None:
        encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        metadata = {"namespace": "team", "name": "own", "resourceVersion": str(self.asked)}
        self.objects["/api/v1/namespaces/team/secrets/own"] = {"metadata": metadata, "data": encoded}


@dataclass
class ScriptedIssuer(Issuer):
    """An issuer that records demands and refuses if it is told to."""

    demanded: list[ServiceKey] = field(default_factory=list)
    problem: Problem | None = None
    listeners: list[Callable[[CertificateReport], None]] = field(default_factory=list)

    def demand(self, service: ServiceKey) -> None:
        self.demanded.append(service)

    def problem_of(self, _: ServiceKey) -> Problem | None:
        return self.problem

    def listen(self, listener: Callable[[CertificateReport], None]) -> None:
        self.listeners.append(listener)

    def refuse(self, problem: Problem) -> None:
        self.problem = problem
        for listener in self.listeners:
            listener(CertificateReport(SERVICE, problem))


@dataclass
class World:
    clock: VirtualClock = field(default_factory=VirtualClock)
    api: Api = field(default_factory=Api)
    issuer: ScriptedIssuer = field(default_factory=ScriptedIssuer)
    settings: ClientCertificateSettings = field(
        default_factory=lambda: ClientCertificateSettings("eso", wait=5.0, fresh=10.0, entries=3)
    )

    def certificates(self) -> ClientCertificates:
        client = Client(self.api)
        informer = client_secrets(client, "eso", self.clock)
        return ClientCertificates(client, informer, self.settings, clock=self.clock, issuer=self.issuer)


def leaf(validity: timedelta = timedelta(days=30)) -> Leaf:
    issuer = issue_authority("a", window(START, timedelta(days=300)))
    return Leaf(issue_client(issuer, "spiffe://x/ns/eso/sa/y", window(START, validity)), (issuer.certificate,), START)


def client_secret(version: str, of: Leaf) -> SecretObject:
    """Return the Secret that the watch delivers after the issuer wrote it."""
    key = secrets.keys_of(SERVICE, "eso").client
    document = secrets.new_document(
        key, SecretMetadata(CLIENT, CertificateOwner(SERVICE, "eso"), START), secrets.leaf_data(of)
    )
    document["metadata"] |= {"resourceVersion": version, "uid": "u"}
    return msgspec.json.decode(msgspec.json.encode(document), type=SecretObject)


@asynccontextmanager
async def running(certificates: ClientCertificates) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(certificates.run())
        yield
        task.cancel()


def arrive(certificates: ClientCertificates, secret: SecretObject) -> None:
    certificates.informer._deliver(Applied(secret))


async def problem_of(call: Awaitable[TlsMaterial]) -> ProblemName:
    with pytest.raises(CertificateError) as caught:
        await call
    return caught.value.problem.name


# --- managed ---------------------------------------------------------------------------------------------------------


async def test_a_first_use_demands_certificates_and_waits_for_them() -> None:
    world, issued = World(), leaf()
    certificates = world.certificates()

    async with running(certificates), asyncio.TaskGroup() as group:
        uses = [group.create_task(certificates.of(MANAGED)) for _ in range(3)]
        await world.clock.advance(2)
        arrive(certificates, client_secret("1", issued))
        first, *others = [await use for use in uses]

    assert first.certificate == issued.credential.certificate
    assert all(other is first for other in others)
    assert set(world.issuer.demanded) == {SERVICE}
    assert not certificates._waiting


async def test_a_use_does_not_wait_longer_than_its_bound() -> None:
    world = World()
    certificates = world.certificates()

    async with asyncio.TaskGroup() as group:
        use = group.create_task(problem_of(certificates.of(MANAGED)))
        await world.clock.advance(4.9)
        waiting = not use.done()
        await world.clock.advance(0.2)
        name = await use

    assert waiting
    assert name is ProblemName.NOT_ISSUED
    assert not certificates._waiting
    assert world.clock.sleepers == 0


async def test_a_refusal_of_the_issuer_ends_the_wait_and_is_shown_to_the_user() -> None:
    world = World()
    certificates = world.certificates()
    refusal = Problem(ProblemName.SECRET_NOT_OURS, "a foreign Secret")

    async with asyncio.TaskGroup() as group:
        use = group.create_task(problem_of(certificates.of(MANAGED)))
        await world.clock.settle()
        world.issuer.refuse(refusal)
        name = await use

    assert name is ProblemName.SECRET_NOT_OURS


async def test_a_renewal_notifies_once_and_a_write_without_change_does_not() -> None:
    world, told = World(), list[str]()
    certificates, old, new = world.certificates(), leaf(), leaf()
    certificates.listen(lambda _, fingerprint: told.append(fingerprint))

    async with running(certificates):
        for version, content in (("1", old), ("2", old), ("3", new)):
            arrive(certificates, client_secret(version, content))
            await world.clock.settle()
        material = await certificates.of(MANAGED)

    assert told == [material.fingerprint]
    assert material.certificate == new.credential.certificate


async def test_a_managed_certificate_that_has_ended_is_named_and_will_not_heal_by_waiting() -> None:
    world = World()
    certificates = world.certificates()
    arrive(certificates, client_secret("1", leaf(timedelta(days=1))))
    await world.clock.advance(86_400)

    with pytest.raises(CertificateError, match=r"Service team/provider-fake: the certificate has expired") as caught:
        await certificates.of(MANAGED)

    assert caught.value.problem.name is ProblemName.CLIENT_CERT_EXPIRED
    assert caught.value.retry is RetryClass.AFTER_CHANGE
    assert caught.value.backend_code == "ClientCertExpired"


async def test_a_client_secret_that_names_another_service_is_not_used() -> None:
    world = World()
    certificates = world.certificates()
    secret = client_secret("1", leaf())
    secret.metadata.annotations = {secrets.SERVICE_ANNOTATION: "team/other"}
    arrive(certificates, secret)

    async with asyncio.TaskGroup() as group:
        use = group.create_task(problem_of(certificates.of(MANAGED)))
        await world.clock.advance(6)

        assert await use is ProblemName.NOT_ISSUED


# --- the user's own --------------------------------------------------------------------------------------------------


async def test_reads_of_a_users_secret_are_shared_and_repeated_after_a_while() -> None:
    world = World()
    certificates = world.certificates()
    world.api.put(secrets.leaf_data(leaf()))

    first = await asyncio.gather(*(certificates.of(OWN) for _ in range(20)))
    asked = world.api.asked
    await world.clock.advance(10)
    await certificates.of(OWN)

    assert asked == 1
    assert all(material is first[0] for material in first)
    assert world.api.asked == 2
    assert not certificates._reading


async def test_a_broken_secret_costs_one_read_for_all_its_users() -> None:
    world = World()
    certificates = world.certificates()

    names = [await problem_of(certificates.of(OWN)) for _ in range(10)]
    asked = world.api.asked
    world.api.put(secrets.leaf_data(leaf()))
    await world.clock.advance(FAILURE_SECONDS)
    await certificates.of(OWN)

    assert set(names) == {ProblemName.SECRET_NOT_FOUND}
    assert asked == 1


async def test_an_api_server_that_is_down_takes_nothing_away() -> None:
    world = World()
    certificates = world.certificates()
    world.api.put(secrets.leaf_data(leaf()))
    before = await certificates.of(OWN)

    world.api.failure = ServiceUnavailable(503, "ServiceUnavailable", "down")
    await world.clock.advance(60)
    after = await certificates.of(OWN)

    assert after is before


async def test_an_api_server_that_is_down_from_the_start_is_named_and_heals_by_waiting() -> None:
    world = World()
    world.api.failure = ServiceUnavailable(503, "ServiceUnavailable", "down")

    with pytest.raises(CertificateError, match="cannot be read") as caught:
        await world.certificates().of(OWN)

    assert caught.value.problem.name is ProblemName.SECRET_UNREADABLE
    assert caught.value.retry is RetryClass.BACKOFF


async def test_a_secret_that_was_deleted_is_not_used_any_longer() -> None:
    world = World()
    certificates = world.certificates()
    world.api.put(secrets.leaf_data(leaf()))
    await certificates.of(OWN)

    world.api.objects.clear()
    await world.clock.advance(10)

    assert await problem_of(certificates.of(OWN)) is ProblemName.SECRET_NOT_FOUND


async def test_the_number_of_remembered_materials_is_bounded() -> None:
    world = World()
    certificates = world.certificates()
    for number in range(10):
        world.api.put(secrets.leaf_data(leaf()))
        world.api.objects[f"/api/v1/namespaces/team/secrets/own-{number}"] = world.api.objects[
            "/api/v1/namespaces/team/secrets/own"
        ]
        await certificates.of(SecretTls("team", f"own-{number}"))
        await problem_of(certificates.of(SecretTls("team", f"missing-{number}")))

    assert len(certificates._loaded) == 3
    assert len(list(certificates._failed)) == 3


# --- folders ---------------------------------------------------------------------------------------------------------


async def test_a_supervised_process_is_called_with_the_certificates_in_its_folder(
    tmp_path: Path, identity: Identity
) -> None:
    world = World()
    made = local.maintain(tmp_path, identity, START, Lifetimes())
    world.settings = replace(world.settings, folders={SERVICE: made.client})

    material = await world.certificates().of(MANAGED)

    assert material.fingerprint == load_material(made.client).fingerprint
    assert not world.issuer.demanded


async def test_a_folder_without_certificates_is_named(tmp_path: Path) -> None:
    world = World()
    world.settings = replace(world.settings, folders={SERVICE: tmp_path})

    assert await problem_of(world.certificates().of(MANAGED)) is ProblemName.NOT_ISSUED


def test_every_problem_says_whether_waiting_helps() -> None:
    waiting = {name: CertificateError(Problem(name, "m")).retry is RetryClass.BACKOFF for name in ProblemName}

    assert [name for name, helps in waiting.items() if helps] == [
        ProblemName.NOT_YET_VALID,
        ProblemName.SECRET_UNREADABLE,
        ProblemName.SECRET_NOT_WRITABLE,
        ProblemName.SERVICE_UNREADABLE,
        ProblemName.NOT_ISSUED,
    ]
