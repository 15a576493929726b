"""The operator sends a provider none of its own credentials. The provider here records every byte that it receives."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import grpc
import pytest
from grpc import aio

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.v2.secretstore import SECRET_STORE_V2
from eso_testkit.operator.operators import KIND_INFOS, LABEL, PORT, SERVICE, SERVICES, Bench
from eso_testkit.operator.providerhost import ProviderHost
from eso_testkit.operator.scriptedprovider import ScriptedProvider
from eso_wire.values import CredentialKind, CredentialPath
from kubebase.clock import SystemClock
from kubebase.meta import Condition
from kubebase.testing.servers import ApiServer
from kubebase.testing.waiting import eventually
from kuberun.testing.builders import SERVICE_ACCOUNTS

pytestmark = pytest.mark.live

STORES = SECRET_STORE_V2.resource()
ES = EXTERNAL_SECRET.resource()
ACCOUNT = CredentialPath("/auth/serviceAccountRef", CredentialKind.SERVICE_ACCOUNT, ("vault",))


class Metadata(aio.ServerInterceptor):
    """Keeps the headers of every call."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        self.seen += [(str(key), str(value)) for key, value in handler_call_details.invocation_metadata or ()]
        return await continuation(handler_call_details)


@dataclass(slots=True)
class Recording(ScriptedProvider):
    """Keeps the bytes of every request."""

    bodies: list[bytes] = field(default_factory=list)

    async def unary(self, method: str, request: bytes) -> bytes:
        self.bodies.append(request)
        return await ScriptedProvider.unary(self, method, request)

    async def stream(self, method: str, request: bytes) -> AsyncGenerator[bytes, None]:
        self.bodies.append(request)
        async for page in ScriptedProvider.stream(self, method, request):
            yield page


def ready(condition: Condition) -> bool:
    return condition.status == "True"


async def test_the_operators_own_token_reaches_no_provider(bench: Bench, api_server: ApiServer) -> None:
    store, maker = KIND_INFOS
    kinds = (replace(store, credentials=(*store.credentials, ACCOUNT)), maker)
    provider, headers = Recording(SystemClock(), kinds=kinds, data={"a": b"b", "ab": b"c"}), Metadata()
    async with bench.operator():
        spec = {"ports": [{"name": "grpc", "port": PORT}]}
        await bench.create(SERVICES, SERVICE, metadata={"labels": LABEL}, spec=spec)
        material = await eventually(bench.server_material, "no certificates were issued for the provider")
        bench.host = ProviderHost(provider, material, port=bench.port, interceptors=(headers,))
        await bench.host.start()
        await bench.create(SERVICE_ACCOUNTS, "robot")
        config = {
            "inline": {"kind": "Backend", "spec": {"auth": {"serviceAccountRef": {"name": "robot"}}}},
            "auth": {"serviceAccountRef": {"name": "robot"}},
        }
        await bench.create(STORES, "store", spec={"providerConfig": config})
        await bench.ready(STORES, "store", ready)
        ref = {"apiVersion": STORES.api_version, "kind": "SecretStore", "name": "store"}
        entries = [{"secretKey": "a", "remoteRef": {"key": "a"}}]
        found = [{"find": {"name": {"regexp": "a"}}}]
        await bench.create(ES, "db", spec={"secretStoreRef": ref, "data": entries, "dataFrom": found})
        await bench.ready(ES, "db", ready)

    calls = " ".join(text for name, text in headers.seen if name == "authorization")
    assert "Bearer " in calls, "the recorder has seen no token of a call at all"
    sent = b"\0".join((*provider.bodies, *(f"{name}: {text}".encode() for name, text in headers.seen)))
    assert b"robot" in sent
    own = api_server.token.encode()
    for spelling in (own, base64.b64encode(own), own.hex().encode()):
        assert spelling not in sent
