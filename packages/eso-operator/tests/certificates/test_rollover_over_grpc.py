"""A renewal and a rollover under calls over real gRPC: both sides may lag behind, and no call fails (R147)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import grpc

from eso_operator.certificates import authority, local
from eso_operator.certificates.settings import IssuerSettings, identity_of
from eso_operator.certificates.state import Lifetimes
from eso_operator.stores.resolved import ServiceKey
from eso_wire.tls import ServerCertificates, TlsMaterial, channel_credentials, load_material
from kubebase.clock import SystemClock

SETTLE = 6
LIFETIMES = Lifetimes(
    authority=timedelta(seconds=600),
    authority_renewal=timedelta(seconds=590),
    leaf=timedelta(seconds=400),
    leaf_renewal=timedelta(seconds=380),
    settle=timedelta(seconds=SETTLE),
    connection_age=timedelta(seconds=2),
)
METHOD = "/test.Echo/Echo"


class Seconds:
    """The certificates of each side at each second.

    All seconds are within the minutes by which certificates are backdated.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._start = SystemClock().now()
        self._identity = identity_of(ServiceKey("team", "p"), IssuerSettings("eso"), local=("127.0.0.1",))
        self.server: list[TlsMaterial] = []
        self.client: list[TlsMaterial] = []

    def pass_one(self) -> None:
        now = self._start + timedelta(seconds=len(self.server))
        made = local.maintain(self._folder, self._identity, now, LIFETIMES)
        self.server.append(load_material(made.server))
        self.client.append(load_material(made.client))


@asynccontextmanager
async def serving(certificates: ServerCertificates) -> AsyncIterator[int]:
    async def echo(request: bytes, _: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        return request

    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(echo)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Echo", {"Echo": handler}),))
    port = server.add_secure_port("127.0.0.1:0", certificates.credentials())
    await server.start()
    try:
        yield port
    finally:
        await server.stop(None)


async def call(port: int, material: TlsMaterial) -> bytes:
    options = [("grpc.ssl_target_name_override", "p.team.svc"), ("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.secure_channel(f"127.0.0.1:{port}", channel_credentials(material), options=options) as channel:
        echo: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(METHOD)
        answer: bytes = await echo(b"hello", timeout=20)
        return answer


async def test_no_call_fails_while_certificates_are_renewed_and_the_authority_is_replaced(tmp_path: Path) -> None:
    seconds = Seconds(tmp_path)
    seconds.pass_one()
    shown = seconds.server[0]
    calls = 0

    async with serving(ServerCertificates(lambda: shown)) as port:
        for second in range(1, 36):
            seconds.pass_one()
            lagging = max(second - SETTLE + 1, 0)
            for server, client in ((second, lagging), (lagging, second)):
                shown = seconds.server[server]
                assert await call(port, seconds.client[client]) == b"hello", second
                calls += 1

    bundles = {len(authority.split(material.ca)) for material in seconds.client}
    assert calls == 70
    assert bundles == {1, 2}
    assert seconds.client[-1].ca != seconds.client[0].ca, "the old authority is gone"
