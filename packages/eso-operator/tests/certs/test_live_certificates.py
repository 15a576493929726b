"""The issuer and the client's side on an API server: Secrets appear, follow time, keep off what is not theirs, go."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from eso_operator.certs import authority
from eso_operator.certs.authority import Credential, issue_authority, issue_client, window
from eso_operator.certs.issuer import Issuer, Report
from eso_operator.certs.materials import Materials, MaterialSettings, client_secrets
from eso_operator.certs.problems import CertificateError, ProblemName
from eso_operator.certs.settings import CertificateSettings
from eso_operator.stores.target import ManagedTls, SecretTls, ServiceKey
from eso_wire.tls import TlsMaterial
from kuberun.client import Client
from kuberun.clock import SystemClock
from kuberun.config import load
from kuberun.manager import Manager
from kuberun.testing.rawapi import RawApi
from kuberun.testing.servers import ApiServer
from kuberun.transport import AiohttpTransport

pytestmark = pytest.mark.live


class ShiftedClock(SystemClock):
    """Real time, plus what a test adds to the date."""

    def __init__(self) -> None:
        self.ahead = timedelta(0)

    def now(self) -> datetime:
        return super().now() + self.ahead


@dataclass
class Operator:
    """One operator process' worth of certificates."""

    issuer: Issuer
    materials: Materials
    clock: ShiftedClock
    reports: list[Report] = field(default_factory=list)


@pytest.fixture
async def client(api_server: ApiServer) -> AsyncIterator[Client]:
    made = Client(AiohttpTransport(load(api_server.kubeconfig)))
    yield made
    await made.close()


@pytest.fixture
async def team(api: RawApi, namespace: str) -> AsyncIterator[str]:
    """The namespace of a provider; `namespace` is the core's."""
    name = f"{namespace}-team"
    await api.post("/api/v1/namespaces", {"metadata": {"name": name}})
    yield name
    await api.delete(f"/api/v1/namespaces/{name}")


@asynccontextmanager
async def operator(client: Client, core: str, *served: str) -> AsyncIterator[Operator]:
    clock, reports = ShiftedClock(), list[Report]()
    settings = CertificateSettings(core, namespaces=served or (core, f"{core}-team"))
    issuer = Issuer(client, settings, clock=clock)
    issuer.listen(reports.append)
    materials = Materials(
        client, client_secrets(client, core, clock), MaterialSettings(core, fresh=0.0), clock=clock, issuing=issuer
    )
    manager = Manager(clock=clock, drain=5.0)
    manager.add_controller(issuer.controller)
    manager.add_informer(materials.informer)
    manager.add_service("materials", materials.run)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(manager.run())
        for informer in (*issuer.controller.informers, materials.informer):
            await informer.wait_synced()
        yield Operator(issuer, materials, clock, reports)
        manager.stop()
        await running


async def create_service(api: RawApi, service: ServiceKey, **labels: str) -> None:
    body = {
        "metadata": {"name": service.name, "labels": {key.replace("_", "-"): value for key, value in labels.items()}},
        "spec": {"ports": [{"name": "grpc", "port": 8080}], "selector": {"app": service.name}},
    }
    created = await api.post(f"/api/v1/namespaces/{service.namespace}/services", body)
    assert created.status == 201, created.body


async def label(api: RawApi, service: ServiceKey) -> None:
    path = f"/api/v1/namespaces/{service.namespace}/services/{service.name}"
    await api.patch(path, {"metadata": {"labels": {"external-secrets.io/provider": "true"}}})


async def secret(api: RawApi, namespace: str, name: str) -> dict[str, Any] | None:
    found = await api.get(f"/api/v1/namespaces/{namespace}/secrets/{name}")
    return found.body if found.status == 200 else None


async def eventually(condition: Callable[[], Awaitable[Any]]) -> Any:
    """The first truthy answer."""
    async with asyncio.timeout(30):
        while True:
            if answer := await condition():
                return answer
            await asyncio.sleep(0.05)


async def gone(api: RawApi, namespace: str, name: str) -> None:
    async def is_gone() -> bool:
        return await secret(api, namespace, name) is None

    await eventually(is_gone)


def decoded(document: dict[str, Any], key: str) -> bytes:
    return base64.b64decode(document["data"][key])


def pair(material: TlsMaterial) -> tuple[Credential, tuple[bytes, ...]]:
    return Credential(material.certificate, material.key), authority.split(material.ca)


# --- the issuer ------------------------------------------------------------------------------------------------------


async def test_a_labelled_service_gets_certificates_that_fit_each_other(
    client: Client, api: RawApi, namespace: str, team: str
) -> None:
    """R103: the core manages the certificates of providers."""
    service = ServiceKey(team, "provider-fake")
    await create_service(api, service)

    async with operator(client, namespace) as running:
        await label(api, service)
        material = await running.materials.of(ManagedTls(service))
        server = await eventually(lambda: secret(api, team, "provider-fake-provider-tls"))
        issuer = await secret(api, namespace, f"{team}.provider-fake-issuer")

    names = authority.names_of(decoded(server, "tls.crt"))
    assert server["type"] == "kubernetes.io/tls"
    assert server["metadata"]["ownerReferences"][0]["kind"] == "Service"
    assert {f"provider-fake.{team}.svc.cluster.local", f"spiffe://cluster.local/ns/{team}/svc/provider-fake"} <= names
    assert authority.names_of(material.certificate) == {f"spiffe://cluster.local/ns/{namespace}/sa/external-secrets"}
    assert issuer is not None
    assert "tls.key" not in str(material)
    assert decoded(server, "ca.crt") == material.ca == decoded(issuer, "ca.crt")
    leaf, trust = pair(material)
    assert authority.leaf_problem(leaf, trust, (), SystemClock().now()) is None


async def test_a_demanded_service_gets_certificates_without_a_label(
    client: Client, api: RawApi, namespace: str, team: str
) -> None:
    service = ServiceKey(team, "plain")
    await create_service(api, service)

    async with operator(client, namespace) as running:
        material = await running.materials.of(ManagedTls(service))

    assert material.expires_at > SystemClock().now() + timedelta(days=89)


async def test_a_service_that_is_neither_labelled_nor_demanded_gets_none(
    client: Client, api: RawApi, namespace: str, team: str
) -> None:
    plain, provider = ServiceKey(team, "plain"), ServiceKey(team, "provider")
    await create_service(api, plain)

    async with operator(client, namespace) as running:
        await create_service(api, provider)
        await label(api, provider)
        await running.materials.of(ManagedTls(provider))

    assert await secret(api, team, "plain-provider-tls") is None


async def test_a_secret_that_is_not_ours_is_reported_and_never_touched(
    client: Client, api: RawApi, namespace: str, team: str
) -> None:
    service = ServiceKey(team, "provider")
    await create_service(api, service)
    foreign = {"metadata": {"name": "provider-provider-tls"}, "data": {"precious": "eA=="}}
    before = (await api.post(f"/api/v1/namespaces/{team}/secrets", foreign)).body

    async with operator(client, namespace) as running:
        with pytest.raises(CertificateError) as caught:
            await running.materials.of(ManagedTls(service))

    assert caught.value.problem.name is ProblemName.SECRET_NOT_OURS
    assert f"{team}/provider-provider-tls" in caught.value.message
    assert running.reports[-1].problem == caught.value.problem
    assert await secret(api, team, "provider-provider-tls") == before
    assert await secret(api, namespace, f"{team}.provider-issuer") is None


async def test_a_service_that_does_not_exist_is_named(client: Client, namespace: str, team: str) -> None:
    async with operator(client, namespace) as running:
        with pytest.raises(CertificateError) as caught:
            await running.materials.of(ManagedTls(ServiceKey(team, "nowhere")))

    assert caught.value.problem.name is ProblemName.SERVICE_NOT_FOUND


async def test_a_service_outside_of_the_served_namespaces_is_refused(
    client: Client, api: RawApi, namespace: str, team: str
) -> None:
    service = ServiceKey(team, "provider")
    await create_service(api, service)

    async with operator(client, namespace, namespace) as running:
        with pytest.raises(CertificateError) as caught:
            await running.materials.of(ManagedTls(service))

    assert caught.value.problem.name is ProblemName.NAMESPACE_NOT_ALLOWED
    assert await secret(api, team, "provider-provider-tls") is None


async def test_deleting_the_service_removes_what_we_stored_and_nothing_else(
    client: Client, api: RawApi, namespace: str, team: str
) -> None:
    service = ServiceKey(team, "provider")
    await create_service(api, service)
    users = {"metadata": {"name": "users", "labels": {"app": "provider"}}, "data": {}}
    await api.post(f"/api/v1/namespaces/{namespace}/secrets", users)

    async with operator(client, namespace) as running:
        await label(api, service)
        await running.materials.of(ManagedTls(service))
        await api.delete(f"/api/v1/namespaces/{team}/services/provider")
        await gone(api, namespace, f"{team}.provider-client-tls")
        await gone(api, namespace, f"{team}.provider-issuer")

    await gone(api, team, "provider-provider-tls")
    assert await secret(api, namespace, "users") is not None


async def test_what_a_deleted_service_left_behind_is_removed_at_the_next_start(
    client: Client, api: RawApi, namespace: str, team: str
) -> None:
    service = ServiceKey(team, "provider")
    await create_service(api, service)
    async with operator(client, namespace) as running:
        await running.materials.of(ManagedTls(service))
    await api.delete(f"/api/v1/namespaces/{team}/services/provider")

    async with operator(client, namespace):
        await gone(api, namespace, f"{team}.provider-client-tls")
        await gone(api, namespace, f"{team}.provider-issuer")


async def test_a_secret_that_somebody_deletes_is_issued_again_at_once(
    client: Client, api: RawApi, namespace: str, team: str
) -> None:
    service = ServiceKey(team, "provider")
    await create_service(api, service)

    async with operator(client, namespace) as running:
        await running.materials.of(ManagedTls(service))
        first = await secret(api, team, "provider-provider-tls")
        assert first is not None
        await api.delete(f"/api/v1/namespaces/{team}/secrets/provider-provider-tls")

        async def new_one() -> Any:
            found = await secret(api, team, "provider-provider-tls")
            return found if found and found["metadata"]["uid"] != first["metadata"]["uid"] else None

        second = await eventually(new_one)

    assert decoded(second, "ca.crt") == decoded(first, "ca.crt")


async def test_two_issuers_agree_and_then_write_nothing_more(
    client: Client, api: RawApi, namespace: str, team: str
) -> None:
    services = [ServiceKey(team, f"provider-{number}") for number in range(5)]

    async with operator(client, namespace) as one, operator(client, namespace) as other:
        for service in services:
            await create_service(api, service)
            await label(api, service)
        for service in services:
            mine, theirs = [await each.materials.of(ManagedTls(service)) for each in (one, other)]
            assert mine.fingerprint == theirs.fingerprint
        before = await versions(api, namespace, team)
        for service in services:
            one.issuer.demand(service)
            other.issuer.demand(service)
        await asyncio.gather(*(quiet(each) for each in (one, other)))
        after = await versions(api, namespace, team)

    assert after == before
    assert len(before) == 15


async def versions(api: RawApi, *namespaces: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for namespace in namespaces:
        listed = await api.get(
            f"/api/v1/namespaces/{namespace}/secrets", labelSelector="external-secrets.io/provider-certificates"
        )
        found |= {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in listed.body["items"]}
    return found


async def quiet(running: Operator) -> None:
    async def idle() -> bool:
        stats = running.issuer.controller.queue.stats()
        return not stats.running and not any(stats.depth.values())

    await eventually(idle)


async def test_a_renewal_is_told_to_whoever_uses_the_certificates(
    client: Client, api: RawApi, namespace: str, team: str
) -> None:
    """R147: rotation without a restart."""
    service, told = ServiceKey(team, "provider"), list[tuple[object, str]]()
    await create_service(api, service)

    async with operator(client, namespace) as running:
        running.materials.listen(lambda source, fingerprint: told.append((source, fingerprint)))
        first = await running.materials.of(ManagedTls(service))
        running.clock.ahead = timedelta(days=56)
        running.issuer.demand(service)

        async def is_told() -> bool:
            return bool(told)

        await eventually(is_told)
        second = await running.materials.of(ManagedTls(service))

    assert told == [(ManagedTls(service), second.fingerprint)]
    assert second.fingerprint != first.fingerprint
    assert second.ca == first.ca


async def test_a_rollover_goes_through_its_phases_on_a_server(
    client: Client, api: RawApi, namespace: str, team: str
) -> None:
    service, bundles = ServiceKey(team, "provider"), list[int]()
    await create_service(api, service)

    async with operator(client, namespace) as running:
        first = await running.materials.of(ManagedTls(service))
        for ahead in (timedelta(days=306), timedelta(days=306, hours=2), timedelta(days=306, hours=5)):
            running.clock.ahead = ahead
            seen = len(running.reports)
            running.issuer.demand(service)

            async def looked_at(seen: int = seen) -> bool:
                return len(running.reports) > seen

            await eventually(looked_at)
            await quiet(running)
            server = await secret(api, team, "provider-provider-tls")
            assert server is not None
            bundles.append(len(authority.split(decoded(server, "ca.crt"))))

    assert bundles == [2, 2, 1]
    assert server is not None
    assert decoded(server, "ca.crt") != first.ca


# --- bring your own --------------------------------------------------------------------------------------------------


def brought(now: datetime, validity: timedelta = timedelta(days=30)) -> dict[str, bytes]:
    """The keys of a Secret that cert-manager makes."""
    issuer = issue_authority("users", window(now, timedelta(days=300)))
    leaf = issue_client(issuer, "spiffe://cluster.local/ns/eso/sa/external-secrets", window(now, validity))
    return {"tls.crt": leaf.certificate, "tls.key": leaf.key.reveal(), "ca.crt": issuer.certificate}


async def put(api: RawApi, namespace: str, data: dict[str, bytes]) -> None:
    path = f"/api/v1/namespaces/{namespace}/secrets"
    encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
    await api.delete(f"{path}/own")
    created = await api.post(path, {"metadata": {"name": "own"}, "data": encoded})
    assert created.status == 201, created.body


async def test_a_users_secret_is_used_as_it_is_and_a_change_is_told(
    client: Client, api: RawApi, namespace: str, team: str
) -> None:
    """R104: cert-manager fits, and is not needed."""
    tls, told = SecretTls(team, "own"), list[str]()
    now = SystemClock().now()
    await put(api, team, brought(now))

    async with operator(client, namespace) as running:
        running.materials.listen(lambda _, fingerprint: told.append(fingerprint))
        first = await running.materials.of(tls)
        again = await running.materials.of(tls)
        await put(api, team, brought(now))
        second = await running.materials.of(tls)

    assert again is first
    assert told == [second.fingerprint]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param({"ca.crt": b""}, (ProblemName.SECRET_KEY_MISSING, "lacks ca.crt"), id="an empty ca.crt"),
        pytest.param(
            {"tls.key": b"", "tls.crt": b""}, (ProblemName.SECRET_KEY_MISSING, "lacks tls.crt, tls.key"), id="no pair"
        ),
        pytest.param({"ca.crt": b"nonsense"}, (ProblemName.MALFORMED, "ca.crt holds no PEM"), id="a CA that is none"),
        pytest.param({"tls.key": b"CANARY-1"}, (ProblemName.KEY_MISMATCH, "not the key of"), id="a key that is none"),
    ],
)
async def test_a_users_secret_that_cannot_work_is_named_with_its_key(
    client: Client, api: RawApi, namespace: str, change: dict[str, bytes], expected: tuple[ProblemName, str]
) -> None:
    await put(api, namespace, {**brought(SystemClock().now()), **change})

    async with operator(client, namespace) as running:
        with pytest.raises(CertificateError, match=expected[1]) as caught:
            await running.materials.of(SecretTls(namespace, "own"))

    assert caught.value.problem.name is expected[0]
    assert "CANARY" not in caught.value.message


@pytest.mark.parametrize(
    ("ahead", "expected"),
    [
        pytest.param(timedelta(days=31), ProblemName.CLIENT_CERT_EXPIRED, id="R137 expired"),
        pytest.param(timedelta(days=-1), ProblemName.NOT_YET_VALID, id="R136 not yet valid"),
    ],
)
async def test_a_users_certificate_outside_its_validity_is_named(
    client: Client, api: RawApi, namespace: str, ahead: timedelta, expected: ProblemName
) -> None:
    await put(api, namespace, brought(SystemClock().now()))

    async with operator(client, namespace) as running:
        running.clock.ahead = ahead
        with pytest.raises(CertificateError) as caught:
            await running.materials.of(SecretTls(namespace, "own"))

    assert caught.value.problem.name is expected


async def test_a_users_secret_that_is_not_there_is_named(client: Client, namespace: str) -> None:
    async with operator(client, namespace) as running:
        with pytest.raises(CertificateError, match=f"Secret {namespace}/own ") as caught:
            await running.materials.of(SecretTls(namespace, "own"))

    assert caught.value.problem.name is ProblemName.SECRET_NOT_FOUND


# --- what is said ----------------------------------------------------------------------------------------------------


async def test_no_log_line_holds_a_piece_of_a_key(client: Client, api: RawApi, namespace: str, team: str) -> None:
    service = ServiceKey(team, "provider")
    await create_service(api, service)

    with capture_logs() as lines:
        structlog.get_logger("test").info("captured")
        async with operator(client, namespace) as running:
            material = await running.materials.of(ManagedTls(service))
            running.clock.ahead = timedelta(days=306)
            running.issuer.demand(service)
            await quiet(running)

    pieces = material.key.reveal().decode().splitlines()[1:-1]
    assert len(lines) > 3
    assert not [line for line in lines if any(piece in str(line) for piece in pieces)]
    assert "PRIVATE KEY" not in str(lines)
