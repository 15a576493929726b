"""The metadata of a call: its trace, and the token of a service account. Real on both sides."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from eso_operator.providers.gateway import Gateway
from eso_operator.providers.metrics import ProviderMetrics
from eso_operator.providers.settings import RuntimeSettings
from eso_operator.stores.credentialreader import CredentialReader
from eso_operator.stores.resolved import BoundStore, Endpoint, EndpointSource
from eso_sdk.accounts import CallAuth, ReviewSettings, ServiceAccount
from eso_sdk.testing import ProviderServer
from eso_sdk.testing.scripted import SCRIPTED, Script, Scripted
from eso_sdk.testing.server import CLIENT_ID, SERVER_NAME
from eso_testkit.operator.boundstores import SERVICE, bound_store, wanted
from eso_testkit.operator.providerhost import GivenCertificates
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import RemoteRef
from kubebase.clock import SystemClock
from kubebase.meta import ObjectKey
from kubebase.testing.servers import ApiServer
from kuberun.client import Client
from kuberun.config import load
from kuberun.controller import Controller, Done, ReconcileContext, Result
from kuberun.testing.rawapi import RawApi
from kuberun.transport import AiohttpTransport
from kuberun.workqueue import ReconcileRequest

AUDIENCE = "external-secrets-provider/scripted"


@asynccontextmanager
async def calling(server: ProviderServer) -> AsyncIterator[Gateway]:
    """The operator's own gateway, with certificates that this provider trusts."""
    materials = GivenCertificates(server.authority.leaf(CLIENT_ID))
    metrics = ProviderMetrics(CollectorRegistry())
    gateway = Gateway(materials, SystemClock(), settings=RuntimeSettings(), metrics=metrics)
    try:
        yield gateway
    finally:
        await gateway.close()


def bound(server: ProviderServer, script: Script, **fields: Any) -> BoundStore:
    at = Endpoint(f"ipv4:{server.address}", SERVER_NAME, EndpointSource.EXPLICIT, "scripted", SERVICE)
    return bound_store(at, spec=msgspec.json.encode({"script": script.name}), **fields)


async def test_a_reconcile_can_be_followed_from_the_log_of_the_operator_into_the_providers() -> None:
    script = Script.new(values={"a": b"1"})
    async with ProviderServer(SCRIPTED) as server, calling(server) as gateway:
        target = bound(server, script)

        async def reconcile(_: ObjectKey, __: ReconcileContext) -> Result:
            await gateway.get(target, wanted("a"))
            await gateway.get(target, wanted("b"))
            controller.stop()
            return Done()

        controller = Controller("things", reconcile, clock=SystemClock())
        controller.queue.add(ReconcileRequest(ObjectKey("team", "a")))
        with capture_logs(processors=[merge_contextvars]) as lines:
            await controller.run()

    (starts,) = [line for line in lines if line["event"] == "reconcile starts"]
    called = [line for line in lines if line["event"] == "provider called"]
    handled = [line for line in lines if line["event"] == "call handled"]
    assert len(called) == len(handled) == 2
    assert {line["trace_id"] for line in (*called, *handled)} == {starts["trace_id"]}
    assert [line["request_id"] for line in called] == [line["request_id"] for line in handled]
    assert len({line["request_id"] for line in called}) == 2


async def test_the_error_of_a_failed_call_has_the_id_that_the_provider_logs() -> None:
    async def get(_: Scripted, __: RemoteRef) -> bytes:
        raise AssertionError("never reached")

    script = Script.new(get=get)
    async with ProviderServer(SCRIPTED) as server, calling(server) as gateway:
        server.server.frame.allowed_clients = frozenset()
        with capture_logs() as lines, pytest.raises(ProviderError):
            await gateway.get(bound(server, script), wanted("a"))

    (called,) = [line for line in lines if line["event"] == "provider called"]
    (handled,) = [line for line in lines if line["event"] == "call handled"]
    assert called["log_level"] == "info"
    assert (called["request_id"], called["code"]) == (handled["request_id"], "PERMISSION_DENIED")


def moved(target: BoundStore, namespace: str) -> BoundStore:
    """All of it in another namespace."""
    before = target.resolved
    return replace(
        target,
        resolved=replace(
            before,
            store=replace(before.store, namespace=namespace),
            caller=replace(before.caller, namespace=namespace),
            auth_namespace=namespace,
        ),
        config=replace(target.config, ref=replace(target.config.ref, namespace=namespace)),
    )


# --- tokens ----------------------------------------------------------------------------------------------------------


@pytest.fixture
async def credentials(api_server: ApiServer) -> AsyncIterator[CredentialReader]:
    transport = AiohttpTransport(load(api_server.kubeconfig))
    yield CredentialReader(Client(transport), SystemClock())
    await transport.close()


@pytest.fixture
def verified(api_server: ApiServer, tmp_path: Path) -> CallAuth:
    """By an API server that the provider asks as an administrator."""
    own = tmp_path / "token"
    own.write_text(api_server.token, encoding="ascii")
    return CallAuth((AUDIENCE,), ReviewSettings(api_server.url, own, api_server.ca_file))


@pytest.mark.live
async def test_the_token_that_the_operator_asks_for_is_the_one_that_a_provider_accepts(
    credentials: CredentialReader, verified: CallAuth, api: RawApi, namespace: str
) -> None:
    """R85."""
    seen: list[ServiceAccount | None] = []

    async def get(store: Scripted, _: RemoteRef) -> bytes:
        seen.append(store.call.account)
        return b"1"

    made = await api.post(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "robot"}})
    token = await credentials.token(ObjectKey(namespace, "robot"), (AUDIENCE,))
    assert token is not None
    async with ProviderServer(SCRIPTED, call_auth=verified) as server, calling(server) as gateway:
        plain = bound(server, Script.new(get=get), token=token.token.reveal().decode())
        await gateway.get(moved(plain, namespace), wanted("a"))

    assert seen == [ServiceAccount(namespace, "robot", made.body["metadata"]["uid"])]


@pytest.mark.live
async def test_a_refused_token_is_an_error_of_authentication_without_the_token(verified: CallAuth) -> None:
    async with ProviderServer(SCRIPTED, call_auth=verified) as server, calling(server) as gateway:
        with capture_logs() as lines, pytest.raises(ProviderError) as caught:
            await gateway.get(bound(server, Script.new(), token="CANARY-TOKEN"), wanted("a"))

    assert caught.value.reason is ErrorReason.CREDENTIALS_REJECTED
    assert "auth.serviceAccountRef" in caught.value.message
    assert "CANARY" not in f"{caught.value.message} {lines}"
