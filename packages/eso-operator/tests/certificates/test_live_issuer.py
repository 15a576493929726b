"""The issuer on an API server: it creates, renews and deletes Secrets, and leaves foreign ones alone."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from eso_operator.certificates import authority, secrets
from eso_operator.certificates.issuance import issuer_of, leaf_of, plan
from eso_operator.certificates.issuer import Issuer
from eso_operator.certificates.problems import CertificateError, ProblemName
from eso_operator.certificates.settings import IssuerSettings, identity_of
from eso_operator.certificates.state import Credential, State
from eso_operator.certificates.worker import CertificateWorker, CertificateWorkerError, Review, ReviewRequest
from eso_operator.stores.resolved import ManagedTls, ServiceKey
from eso_testkit.operator.certificates import (
    InProcessWorker,
    Operator,
    ShiftedClock,
    create_service,
    decoded,
    gone,
    label,
    operator,
    secret,
)
from eso_wire.tls import TlsMaterial
from kubebase.clock import SystemClock
from kubebase.meta import ObjectKey
from kubebase.testing.waiting import eventually
from kuberun.client import Client
from kuberun.testing.rawapi import RawApi

pytestmark = pytest.mark.live


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
        material = await running.certificates.of(ManagedTls(service))
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


async def test_certificates_are_issued_by_a_process(client: Client, api: RawApi, namespace: str, team: str) -> None:
    service = ServiceKey(team, "provider")
    await create_service(api, service)

    async with operator(client, namespace, worker=CertificateWorker()) as running:
        material = await running.certificates.of(ManagedTls(service))

    leaf, trust = pair(material)
    assert authority.leaf_problem(leaf, trust, (), SystemClock().now()) is None


async def test_unchanged_secrets_are_reviewed_again_only_when_something_is_due(
    client: Client, api: RawApi, namespace: str, team: str
) -> None:
    service, worker, clock = ServiceKey(team, "provider"), InProcessWorker(), ShiftedClock()
    settings = IssuerSettings(namespace, namespaces=(namespace, team), shared=(team,))
    issuer, counted = Issuer(client, settings, clock=clock, worker=worker), list[int]()
    await create_service(api, service)
    issuer.demand(service)

    async def check() -> None:
        await issuer.reconcile(ObjectKey(team, "provider"))
        counted.append(worker.reviews)

    await check()
    await check()
    clock.ahead = settings.lifetimes.settle + timedelta(seconds=5)
    await check()
    await api.patch(f"/api/v1/namespaces/{team}/secrets/provider-provider-tls", {"metadata": {"labels": {"a": "b"}}})
    await check()
    await check()

    assert counted == [3, 3, 4, 5, 5]


async def test_a_worker_that_fails_is_reported_and_tried_again(
    client: Client, api: RawApi, namespace: str, team: str
) -> None:
    service = ServiceKey(team, "provider")
    await create_service(api, service)

    async with operator(client, namespace, worker=FailsOnce()) as running:
        with pytest.raises(CertificateError) as caught:
            await running.certificates.of(ManagedTls(service))
        await eventually(lambda: has_settled(running))

    assert caught.value.problem.name is ProblemName.NOT_ISSUED
    assert "the process ended" in caught.value.message


class FailsOnce(InProcessWorker):
    async def review(self, request: ReviewRequest) -> Review:
        if self.reviews == 0:
            self.reviews += 1
            raise CertificateWorkerError("the process ended")
        return await super().review(request)


async def has_settled(running: Operator) -> bool:
    return bool(running.reports) and running.reports[-1].expires_at is not None


async def test_an_issuer_may_serve_the_whole_cluster(client: Client, api: RawApi, namespace: str, team: str) -> None:
    service = ServiceKey(team, "provider")
    await create_service(api, service)
    await label(api, service)

    async with operator(client, namespace, served=()) as running:
        material = await running.certificates.of(ManagedTls(service))
        await api.delete(f"/api/v1/namespaces/{team}/secrets/provider-provider-tls")
        again = await eventually(lambda: secret(api, team, "provider-provider-tls"))

    assert decoded(again, "ca.crt") == material.ca


async def test_a_demanded_service_gets_certificates_without_a_label(
    client: Client, api: RawApi, namespace: str, team: str
) -> None:
    service = ServiceKey(team, "plain")
    await create_service(api, service)

    async with operator(client, namespace) as running:
        material = await running.certificates.of(ManagedTls(service))

    assert material.expires_at > SystemClock().now() + timedelta(days=89)


async def test_a_service_that_is_neither_labelled_nor_demanded_gets_none(
    client: Client, api: RawApi, namespace: str, team: str
) -> None:
    plain, provider = ServiceKey(team, "plain"), ServiceKey(team, "provider")
    await create_service(api, plain)

    async with operator(client, namespace) as running:
        await create_service(api, provider)
        await label(api, provider)
        await running.certificates.of(ManagedTls(provider))

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
            await running.certificates.of(ManagedTls(service))

    assert caught.value.problem.name is ProblemName.SECRET_NOT_OURS
    assert f"{team}/provider-provider-tls" in caught.value.message
    assert running.reports[-1].problem == caught.value.problem
    assert await secret(api, team, "provider-provider-tls") == before
    assert await secret(api, namespace, f"{team}.provider-issuer") is None


async def test_a_service_that_does_not_exist_is_named(client: Client, namespace: str, team: str) -> None:
    async with operator(client, namespace) as running:
        with pytest.raises(CertificateError) as caught:
            await running.certificates.of(ManagedTls(ServiceKey(team, "nowhere")))

    assert caught.value.problem.name is ProblemName.SERVICE_NOT_FOUND


async def test_a_service_outside_of_the_served_namespaces_is_refused(
    client: Client, api: RawApi, namespace: str, team: str
) -> None:
    service = ServiceKey(team, "provider")
    await create_service(api, service)

    async with operator(client, namespace, served=(namespace,)) as running:
        with pytest.raises(CertificateError) as caught:
            await running.certificates.of(ManagedTls(service))

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
        await running.certificates.of(ManagedTls(service))
        await api.delete(f"/api/v1/namespaces/{team}/services/provider")
        await gone(api, namespace, f"{team}.provider-client-tls")
        await gone(api, namespace, f"{team}.provider-issuer")

    await gone(api, team, "provider-provider-tls")
    assert await secret(api, namespace, "users") is not None


async def test_certificates_of_a_deleted_service_are_removed_at_the_next_start(
    client: Client, api: RawApi, namespace: str, team: str
) -> None:
    service = ServiceKey(team, "provider")
    await create_service(api, service)
    async with operator(client, namespace) as running:
        await running.certificates.of(ManagedTls(service))
    await api.delete(f"/api/v1/namespaces/{team}/services/provider")

    async with operator(client, namespace):
        await gone(api, namespace, f"{team}.provider-client-tls")
        await gone(api, namespace, f"{team}.provider-issuer")


async def test_a_deleted_service_no_longer_has_an_expiry_time(
    client: Client, api: RawApi, namespace: str, team: str
) -> None:
    """A monitor of expiry times would otherwise alert for a certificate that is no longer renewed."""
    service = ServiceKey(team, "provider")
    await create_service(api, service)
    await label(api, service)

    async with operator(client, namespace) as running:

        async def ends() -> bool:
            return bool(running.reports) and running.reports[-1].expires_at is not None

        async def nothing_ends() -> bool:
            last = running.reports[-1]
            return (last.service, last.problem, last.expires_at) == (service, None, None)

        await eventually(ends)
        await api.delete(f"/api/v1/namespaces/{team}/services/provider")

        await eventually(nothing_ends)


async def test_a_deleted_secret_is_issued_again_at_once(client: Client, api: RawApi, namespace: str, team: str) -> None:
    service = ServiceKey(team, "provider")
    await create_service(api, service)

    async with operator(client, namespace) as running:
        await running.certificates.of(ManagedTls(service))
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
            mine, theirs = [await each.certificates.of(ManagedTls(service)) for each in (one, other)]
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


async def test_users_of_the_certificates_are_notified_of_a_renewal(
    client: Client, api: RawApi, namespace: str, team: str
) -> None:
    """R147: rotation without a restart."""
    service, told = ServiceKey(team, "provider"), list[tuple[object, str]]()
    await create_service(api, service)

    async with operator(client, namespace) as running:
        running.certificates.listen(lambda source, fingerprint: told.append((source, fingerprint)))
        first = await running.certificates.of(ManagedTls(service))
        running.clock.ahead = timedelta(days=56)
        running.issuer.demand(service)

        async def is_told() -> bool:
            return bool(told)

        await eventually(is_told)
        second = await running.certificates.of(ManagedTls(service))

    assert told == [(ManagedTls(service), second.fingerprint)]
    assert second.fingerprint != first.fingerprint
    assert second.ca == first.ca


async def test_a_rollover_goes_through_its_phases_on_a_server(
    client: Client, api: RawApi, namespace: str, team: str
) -> None:
    service, bundles = ServiceKey(team, "provider"), list[int]()
    await create_service(api, service)

    async with operator(client, namespace) as running:
        first = await running.certificates.of(ManagedTls(service))
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


async def test_two_issuers_take_one_service_through_a_rollover_together(
    client: Client, api: RawApi, namespace: str, team: str
) -> None:
    """Whoever writes first, every hour ends with nothing due and with leaves that both sides trust."""
    service, bundles = ServiceKey(team, "provider"), list[int]()
    await create_service(api, service)

    async with operator(client, namespace) as one, operator(client, namespace) as other:
        await one.certificates.of(ManagedTls(service))
        for hour in range(6):
            for each in (one, other):
                each.clock.ahead = timedelta(days=306, hours=hour)
                each.issuer.demand(service)
            state = await nothing_due(api, namespace, service, one.clock)
            assert state.server is not None
            assert state.client is not None
            bundles.append(len(state.server.trust))
            for leaf, peer in ((state.server, state.client), (state.client, state.server)):
                assert authority.leaf_problem(leaf.credential, peer.trust, (), one.clock.now()) is None

    assert bundles == [2, 2, 2, 1, 1, 1]


async def nothing_due(api: RawApi, core: str, service: ServiceKey, clock: ShiftedClock) -> State:
    """Return the stored Secrets once no step is due at this time."""
    settings = IssuerSettings(core)

    async def settled() -> State | None:
        found = [await secret(api, *key) for _, key in secrets.keys_of(service, core).parts()]
        issuer, server, peer = ({key: decoded(each, key) for key in each["data"]} if each else {} for each in found)
        _, server_at, peer_at = (written_at(each) if each else "" for each in found)
        state = State(issuer_of(issuer), leaf_of(server, server_at), leaf_of(peer, peer_at))
        due = plan(state, clock.now(), settings.lifetimes, identity_of(service, settings))
        return None if due.steps else state

    state: State = await eventually(settled)
    return state


def written_at(document: dict[str, Any]) -> str:
    return str(document["metadata"]["annotations"][secrets.WRITTEN_ANNOTATION])


async def test_a_secret_that_may_not_be_written_is_reported(
    client: Client, api: RawApi, namespace: str, team: str
) -> None:
    """A namespace that is not there stands for every refusal of the API server."""
    service = ServiceKey(team, "provider")
    await create_service(api, service)

    async with operator(client, f"{namespace}-nowhere", served=(team,)) as running:
        with pytest.raises(CertificateError) as caught:
            await running.certificates.of(ManagedTls(service))

    assert caught.value.problem.name is ProblemName.SECRET_NOT_WRITABLE
    assert "PRIVATE KEY" not in caught.value.message


# --- what is said ----------------------------------------------------------------------------------------------------


async def test_no_log_line_holds_a_piece_of_a_key(client: Client, api: RawApi, namespace: str, team: str) -> None:
    service = ServiceKey(team, "provider")
    await create_service(api, service)

    with capture_logs() as lines:
        structlog.get_logger("test").info("captured")
        async with operator(client, namespace) as running:
            material = await running.certificates.of(ManagedTls(service))
            running.clock.ahead = timedelta(days=306)
            running.issuer.demand(service)
            await quiet(running)

    pieces = material.key.reveal().decode().splitlines()[1:-1]
    assert len(lines) > 3
    assert not [line for line in lines if any(piece in str(line) for piece in pieces)]
    assert "PRIVATE KEY" not in str(lines)
