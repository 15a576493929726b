"""The server on real sockets: allowed clients, deadlines, limits, certificates and shutdown.

Rows R102, R118, R136, R139, R147, R158.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio
from grpc_health.v1 import health_pb2  # type: ignore[import-untyped]  # the wheel carries no types
from structlog.testing import capture_logs

from eso_api.values import SecretBytes
from eso_sdk.frame import UNARY
from eso_sdk.provider import Provider
from eso_sdk.server import ServeError, ServeOptions, Server, address_parts
from eso_sdk.testing import Client, ProviderServer, call_context
from eso_sdk.testing.scripted import SCRIPTED, Script, Scripted
from eso_sdk.testing.server import CLIENT_ID, SERVER_ID, Authority, ChannelTransport, write_material
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.status import TransportError
from eso_wire.values import Context, FindQuery, GetItem, GetResult, RemoteRef, SubscribeMessage, SubscribeOpen
from kubebase.clock import SystemClock
from kubebase.testing.waiting import eventually

SECONDS = 30.0  # far more than any of this takes


@pytest.fixture
async def served() -> AsyncIterator[ProviderServer]:
    async with ProviderServer(SCRIPTED, metrics="127.0.0.1:0", live="127.0.0.1:0") as server:
        yield server


def limited(**limits: Any) -> Provider:
    return replace(SCRIPTED, limits=replace(SCRIPTED.limits, **limits))


class Stuck:
    """A `get` that waits until the test releases it."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.leave = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.script = Script.new(get=self._get)
        self.context: Context = call_context(Scripted, {"script": self.script.name})

    async def _get(self, _: Any, __: RemoteRef) -> bytes:
        self.entered.set()
        try:
            await self.leave.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return b"done"

    async def call(self, client: Client) -> GetResult:
        return await client.get_one(self.context, "a")

    async def begin(self, client: Client) -> asyncio.Task[GetResult]:
        task = asyncio.get_running_loop().create_task(self.call(client))
        async with asyncio.timeout(SECONDS):
            await self.entered.wait()
        return task


# --- who may call ----------------------------------------------------------------------------------------------------


async def test_the_allowed_client_is_served(served: ProviderServer) -> None:
    script = Script.new(values={"a": b"1"})

    got = await served.client.get_one(call_context(Scripted, {"script": script.name}), "a")

    assert got.outcome == SecretBytes(b"1")


@pytest.mark.parametrize(
    "identity",
    [
        pytest.param("spiffe://cluster.local/ns/external-secrets/sa/other", id="another service account"),
        pytest.param("spiffe://cluster.local/ns/tenant/sa/external-secrets", id="another namespace"),
        pytest.param("spiffe://evil/ns/external-secrets/sa/external-secrets", id="another trust domain"),
        pytest.param(f"{CLIENT_ID}/more", id="a longer name"),
        pytest.param(SERVER_ID, id="the provider itself"),
    ],
)
async def test_another_workload_of_the_same_authority_is_refused(served: ProviderServer, identity: str) -> None:
    stranger = await served.connect(served.authority.leaf(identity))
    context = call_context(Scripted, {"script": Script.new().name})

    for call in (stranger.handshake(), stranger.get_one(context, "a"), stranger.find(context, FindQuery())):
        with pytest.raises(ProviderError) as caught:
            await call
        assert caught.value.reason is ErrorReason.PERMISSION_DENIED


async def test_a_stranger_cannot_subscribe_either(served: ProviderServer) -> None:
    stranger = await served.connect(served.authority.leaf(SERVER_ID))

    async def messages() -> AsyncIterator[SubscribeMessage]:
        yield SubscribeOpen(call_context(Scripted, {"script": Script.new().name}))

    with pytest.raises(ProviderError) as caught:
        await anext(stranger.subscribe(messages()))
    assert caught.value.reason is ErrorReason.PERMISSION_DENIED


async def test_a_certificate_of_another_authority_ends_the_handshake(served: ProviderServer) -> None:
    forged = replace(Authority.make().leaf(CLIENT_ID), ca=served.authority.pem)
    stranger = await served.connect(forged)

    with pytest.raises(TransportError):
        await stranger.handshake()


async def test_there_is_no_way_in_without_a_certificate(served: ProviderServer) -> None:
    options = [("grpc.ssl_target_name_override", "provider.test")]
    credentials = grpc.ssl_channel_credentials(served.authority.pem)
    async with aio.secure_channel(served.address, credentials, options=options) as channel:
        with pytest.raises(TransportError):
            await Client(ChannelTransport(channel)).handshake()
    async with aio.insecure_channel(served.address) as plain:
        with pytest.raises(TransportError):
            await Client(ChannelTransport(plain)).handshake()


# --- certificates ----------------------------------------------------------------------------------------------------


async def test_new_certificates_and_a_new_authority_are_taken_without_a_restart(served: ProviderServer) -> None:
    before = await served.client.handshake()
    fresh = Authority.make("fresh")
    renewed = replace(fresh.leaf(SERVER_ID), ca=served.authority.pem + fresh.pem)
    write_material(served.folder, renewed)

    new_client = await served.connect(fresh.leaf(CLIENT_ID))
    with_new = await new_client.handshake()
    with_old = await served.client.handshake()

    assert before.instance_id == with_new.instance_id == with_old.instance_id
    assert (
        b'eso_provider_tls_reloads_total{provider="scripted",result="success"} 1.0'
        in served.server.metrics.exposition()
    )


async def test_half_written_certificates_do_no_harm(served: ProviderServer) -> None:
    (served.folder / "tls.crt").write_bytes(b"-----BEGIN CERT")

    another = await served.connect(served.authority.leaf(CLIENT_ID))
    answer = await another.handshake()

    assert answer.provider_name == "scripted"
    assert b'eso_provider_tls_reloads_total{provider="scripted",result="failure"}' in served.server.metrics.exposition()


async def test_the_server_waits_for_its_certificates(tmp_path: Path) -> None:
    authority = Authority.make()
    server = Server(SCRIPTED, ServeOptions(tmp_path / "tls", (CLIENT_ID,), tls_wait_seconds=SECONDS))
    starting = asyncio.ensure_future(server.start())
    await asyncio.sleep(0)

    write_material(tmp_path / "tls", authority.leaf(SERVER_ID))
    async with asyncio.timeout(SECONDS):
        await starting

    assert server.address.startswith("127.0.0.1:")
    await server.drain()


@pytest.mark.parametrize(
    ("files", "said"),
    [
        pytest.param({}, "cannot be read", id="no files"),
        pytest.param({"ca.crt": b"x", "tls.crt": b"x", "tls.key": b"x"}, "ca.crt holds no certificate", id="no PEM"),
        pytest.param({"ca.crt": b"", "tls.crt": b"", "tls.key": b""}, "is empty", id="empty files"),
    ],
)
async def test_certificates_that_do_not_come_are_named(tmp_path: Path, files: dict[str, bytes], said: str) -> None:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    server = Server(SCRIPTED, ServeOptions(tmp_path, (CLIENT_ID,), tls_wait_seconds=0))

    with pytest.raises(ServeError, match=said) as caught:
        await server.start()
    assert "which the operator issues" in str(caught.value)


async def test_an_expired_certificate_is_served_until_a_new_one_comes(tmp_path: Path) -> None:
    write_material(tmp_path, Authority.make().leaf(SERVER_ID, until=datetime(2021, 1, 1, tzinfo=UTC)))
    server = Server(SCRIPTED, ServeOptions(tmp_path, (CLIENT_ID,)))

    with capture_logs() as logs:
        await server.start()

    assert server.address
    assert [each["event"] for each in logs if each["log_level"] == "warning"] == [
        "the certificate has expired or is not valid yet; clients will refuse it"
    ]
    await server.drain()


# --- limits ----------------------------------------------------------------------------------------------------------


async def test_a_call_without_deadline_gets_the_longest() -> None:
    stuck = Stuck()
    async with ProviderServer(limited(max_deadline=0.2)) as server:
        client = Client(ChannelTransport(await server.channel(server.authority.leaf(CLIENT_ID))), deadline=None)

        with pytest.raises(ProviderError) as caught:
            await stuck.call(client)

    assert caught.value.reason is ErrorReason.BACKEND_TIMEOUT
    assert stuck.cancelled.is_set()


async def test_the_callers_deadline_reaches_author_code(served: ProviderServer) -> None:
    stuck = Stuck()
    hurried = Client(ChannelTransport(await served.channel(served.authority.leaf(CLIENT_ID))), deadline=0.3)

    with pytest.raises(ProviderError) as caught:
        await stuck.call(hurried)

    assert caught.value.reason is ErrorReason.BACKEND_TIMEOUT
    await eventually(stuck.cancelled.is_set)


async def test_a_call_that_is_cancelled_is_cancelled_in_author_code(served: ProviderServer) -> None:
    stuck = Stuck()
    running = await stuck.begin(served.client)

    running.cancel()

    await eventually(stuck.cancelled.is_set)


async def test_calls_above_the_limit_are_told_to_come_back() -> None:
    stuck = Stuck()
    async with ProviderServer(limited(max_in_flight=1)) as server:
        running = await stuck.begin(server.client)

        with pytest.raises(ProviderError) as caught:
            await server.client.handshake()
        stuck.leave.set()
        done = await running
        after = await server.client.handshake()

    assert caught.value.reason is ErrorReason.RATE_LIMITED
    assert caught.value.retry_after > 0
    assert done.outcome == SecretBytes(b"done")
    assert after.provider_name == "scripted"


async def test_a_request_larger_than_a_message_may_be_is_refused_and_the_server_lives() -> None:
    async with ProviderServer(limited(max_message_bytes=100_000)) as server:
        context = call_context(Scripted, {"script": Script.new().name, "padding": "x" * 200_000})

        with pytest.raises(ProviderError) as caught:
            await server.client.get(context, [GetItem("a", RemoteRef("a"))])
        after = await server.client.handshake()

    assert caught.value.reason is ErrorReason.PAYLOAD_TOO_LARGE
    assert after.provider_name == "scripted"


async def test_a_connection_has_an_age() -> None:
    """An established connection outlives its certificate; the maximum age limits that."""
    async with ProviderServer(SCRIPTED, max_connection_age=0.2) as server:
        channel = await server.channel(server.authority.leaf(CLIENT_ID))
        await Client(ChannelTransport(channel)).handshake()
        async with asyncio.timeout(SECONDS):
            await channel.wait_for_state_change(grpc.ChannelConnectivity.READY)

        again = await Client(ChannelTransport(channel)).handshake()

    assert again.provider_name == "scripted"


async def test_an_unknown_call_is_answered(served: ProviderServer) -> None:
    channel = await served.channel(served.authority.leaf(CLIENT_ID))

    with pytest.raises(ProviderError) as caught:
        await ChannelTransport(channel).unary(UNARY[0].path + "Nope", b"", SECONDS)
    assert caught.value.reason is ErrorReason.UNSUPPORTED_OPERATION


# --- health, probes, the end -----------------------------------------------------------------------------------------


async def health(server: ProviderServer, service: str = "") -> Any:
    channel = await server.channel(server.authority.leaf(CLIENT_ID))
    raw = await ChannelTransport(channel).unary(
        "/grpc.health.v1.Health/Check", health_pb2.HealthCheckRequest(service=service).SerializeToString(), SECONDS
    )
    return health_pb2.HealthCheckResponse.FromString(raw).status


async def fetch(server: ProviderServer, request: bytes, address: str = "") -> tuple[bytes, bytes]:
    host, port = address_parts(address or server.server.metrics_address)
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(request)
    async with asyncio.timeout(SECONDS):
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    return head.split(b"\r\n")[0], body


async def test_the_health_service_says_serving(served: ProviderServer) -> None:
    serving = health_pb2.HealthCheckResponse.SERVING

    assert await health(served) == serving
    assert await health(served, UNARY[1].service) == serving


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        pytest.param(b"GET /healthz HTTP/1.1", b"HTTP/1.1 200 OK", id="alive"),
        pytest.param(b"GET /readyz HTTP/1.1", b"HTTP/1.1 200 OK", id="ready"),
        pytest.param(b"GET /metrics HTTP/1.1", b"HTTP/1.1 200 OK", id="metrics"),
        pytest.param(b"GET /secrets HTTP/1.1", b"HTTP/1.1 404 Not Found", id="nothing else"),
        pytest.param(b"POST /metrics HTTP/1.1", b"HTTP/1.1 405 Method Not Allowed", id="GET only"),
    ],
)
async def test_probes(served: ProviderServer, request_line: bytes, status: bytes) -> None:
    got, _ = await fetch(served, request_line + b"\r\nHost: x\r\n\r\n")

    assert got == status


@pytest.mark.parametrize(
    ("path", "status"),
    [
        pytest.param(b"/healthz", b"HTTP/1.1 200 OK", id="alive"),
        pytest.param(b"/readyz", b"HTTP/1.1 200 OK", id="ready"),
        pytest.param(b"/metrics", b"HTTP/1.1 404 Not Found", id="no metrics"),
    ],
)
async def test_probes_can_listen_where_metrics_cannot_be_read(
    served: ProviderServer, path: bytes, status: bytes
) -> None:
    got, _ = await fetch(served, b"GET " + path + b" HTTP/1.1\r\n\r\n", served.server.live_address)

    assert got == status


@pytest.mark.parametrize(
    "noise",
    [
        pytest.param(b"\x16\x03\x01 TLS?\n\n", id="no HTTP"),
        pytest.param(b"GET /metrics HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n", id="too many headers"),
        pytest.param(b"GET /" + b"x" * 100_000 + b"\r\n\r\n", id="too long a line"),
    ],
)
async def test_noise_does_not_stop_the_probes(served: ProviderServer, noise: bytes) -> None:
    with contextlib.suppress(OSError):  # the connection is reset while we still write
        await fetch(served, noise)

    assert (await fetch(served, b"GET /healthz HTTP/1.1\r\n\r\n"))[0] == b"HTTP/1.1 200 OK"


async def test_metrics_count_calls_by_method_code_and_reason(served: ProviderServer) -> None:
    """R116, R170, R171."""

    async def get(store: Scripted, _: RemoteRef) -> bytes:
        with store.observe("ReadNote"):
            return b"1"

    context = call_context(Scripted, {"script": Script.new(get=get).name})
    await served.client.get_one(context, "a")
    with pytest.raises(ProviderError):
        await served.client.get_one(call_context(Scripted, b"{}"), "a")

    _, body = await fetch(served, b"GET /metrics HTTP/1.1\r\n\r\n")
    text = body.decode()

    ours = 'method="GetSecrets",provider="scripted"'
    assert f"eso_grpc_server_started_total{{{ours}}} 2.0" in text
    assert f'eso_grpc_server_handled_total{{code="OK",{ours},reason=""}} 1.0' in text
    refused = f'eso_grpc_server_handled_total{{code="INVALID_ARGUMENT",{ours},reason="CONFIG_INVALID"}} 1.0'
    assert refused in text
    api = 'externalsecret_provider_api_calls_count{call="ReadNote",provider="scripted",status="success"} 1.0'
    assert api in text
    assert f"eso_grpc_server_latency_seconds_count{{{ours}}} 2.0" in text
    assert 'eso_provider_sessions{provider="scripted"} 1.0' in text
    assert 'eso_provider_serving{provider="scripted"} 1.0' in text
    assert 'eso_provider_backend_latency_seconds_count{call="ReadNote",provider="scripted"} 1.0' in text


@pytest.mark.parametrize("raw", [b"", b"no message"], ids=["a handshake", "what does not decode"])
async def test_the_log_names_the_request_by_its_metadata(served: ProviderServer, raw: bytes) -> None:
    channel: Any = await served.channel(served.authority.leaf(CLIENT_ID))

    with capture_logs() as lines, contextlib.suppress(aio.AioRpcError):
        await channel.unary_unary(UNARY[0].path)(raw, metadata=(("x-eso-request-id", "r" * 300),), timeout=SECONDS)

    assert [line["request_id"] for line in lines if line["event"] == "call handled"] == ["r" * 128]


async def test_names_of_backend_calls_are_bounded(served: ProviderServer) -> None:
    for at in range(1000):
        served.server.metrics.api_calls.count(f"key-{at}", "success", 0.1)

    _, body = await fetch(served, b"GET /metrics HTTP/1.1\r\n\r\n")

    names = set(re.findall(rb'api_calls_count{call="([^"]*)"', body))
    assert len(names) == 201
    assert b"other" in names


async def test_a_drain_lets_the_running_call_finish_and_takes_no_new_one() -> None:
    stuck = Stuck()
    async with ProviderServer(SCRIPTED, drain_seconds=60.0) as server:
        other = Client(ChannelTransport(await server.channel(server.authority.leaf(CLIENT_ID))), deadline=2.0)
        await other.handshake()
        running = await stuck.begin(server.client)

        draining = asyncio.ensure_future(server.server.drain())
        await eventually(server.server.frame.draining.is_set)
        with pytest.raises(ProviderError) as refused:
            await other.handshake()
        still_running = not running.done()
        stuck.leave.set()
        done = await running
        await draining

    # A connection made while the listener closes gets no greeting: a missing answer is a refusal too.
    assert refused.value.reason in (ErrorReason.BACKEND_UNAVAILABLE, ErrorReason.BACKEND_TIMEOUT)
    assert still_running
    assert done.outcome == SecretBytes(b"done")
    assert stuck.script.log[-1] == "close"


async def test_a_drain_does_not_wait_longer_than_its_time() -> None:
    stuck = Stuck()
    async with ProviderServer(SCRIPTED, drain_seconds=0.1) as server:
        running = await stuck.begin(server.client)

        await server.server.drain()

        with pytest.raises(ProviderError):
            await running
    assert stuck.cancelled.is_set()


async def test_a_server_allows_no_client_by_default(tmp_path: Path) -> None:
    with pytest.raises(ServeError, match="--allowed-client"):
        Server(SCRIPTED, ServeOptions(tmp_path, ()), SystemClock())


@pytest.mark.parametrize("address", ["", "host", ":80", "host:", "host:http", "host:70000"])
def test_an_address_is_host_and_port(address: str) -> None:
    with pytest.raises(ServeError, match="write host:port"):
        address_parts(address)


async def test_a_port_that_is_taken_is_named(served: ProviderServer) -> None:
    second = Server(SCRIPTED, ServeOptions(served.folder, (CLIENT_ID,), listen=served.address))

    with pytest.raises(ServeError, match="is the port taken"):
        await second.start()
