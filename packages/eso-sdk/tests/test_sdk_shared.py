"""Several providers in one process: own identities, own limits, own failures; one endpoint for probes and metrics."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import structlog
from grpc import aio

from eso_api.values import SecretBytes
from eso_sdk.installed import ProviderNameError, load
from eso_sdk.metrics import Metrics, exposition
from eso_sdk.provider import Provider
from eso_sdk.server import ServeError, ServeOptions
from eso_sdk.sharedserver import Member, SharedOptions, SharedServer
from eso_sdk.testing import Client, call_context
from eso_sdk.testing.scripted import SCRIPTED, Script, Scripted
from eso_sdk.testing.server import CLIENT_ID, SERVER_ID, SERVER_NAME, Authority, ChannelTransport, write_material
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.options import CLIENT_OPTIONS
from eso_wire.status import TransportError
from eso_wire.tls import TlsMaterial, channel_credentials
from eso_wire.values import Context, GetItem, RemoteRef

SECONDS = 30.0
OTHER_CLIENT = "spiffe://cluster.local/ns/tenant/sa/their-operator"
LEFT, RIGHT = "left", "right"


def named(name: str, **limits: Any) -> Provider:
    return replace(SCRIPTED, name=name, limits=replace(SCRIPTED.limits, **limits))


PROVIDERS: Mapping[str, Provider] = {LEFT: named(LEFT, max_in_flight=1), RIGHT: named(RIGHT)}


def find(name: str) -> Provider:
    """Load a provider of this test, as if it was installed."""
    if name in PROVIDERS:
        return PROVIDERS[name]
    raise ProviderNameError(f"provider {name} is left out because it cannot be loaded: KeyError")


class Site:
    """The folders of a shared process in this event loop, and clients for its providers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authorities: dict[str, Authority] = {}
        self._stack = AsyncExitStack()

    def member(self, name: str, *, issued: bool = True, clients: tuple[str, ...] = (CLIENT_ID,)) -> Member:
        self.authorities[name] = Authority.make()
        if issued:
            self.issue(name)
        options = ServeOptions(self.folder / name, clients, drain_seconds=1.0, tls_wait_seconds=0.0)
        return Member(name, options)

    def issue(self, name: str) -> None:
        write_material(self.folder / name, self.authorities[name].leaf(SERVER_ID))

    async def client(self, server: SharedServer, name: str, material: TlsMaterial | None = None) -> Client:
        (one,) = (one for one in server.hosted if one.name == name)
        credentials = channel_credentials(material or self.authorities[name].leaf(CLIENT_ID))
        options = [*CLIENT_OPTIONS, ("grpc.ssl_target_name_override", SERVER_NAME)]
        channel = aio.secure_channel(one.address, credentials, options=options)
        self._stack.push_async_callback(channel.close)
        return Client(ChannelTransport(channel), deadline=SECONDS)

    @asynccontextmanager
    async def serving(self, *members: Member, on_demand: bool = False) -> AsyncIterator[SharedServer]:
        options = SharedOptions("127.0.0.1:0", "127.0.0.1:0", self.folder / "ready.json", on_demand)
        server = SharedServer(members, options, load=find)
        try:
            await server.start()
            yield server
        finally:
            await self._stack.aclose()
            await server.drain()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def context(script: Script) -> Context:
    return call_context(Scripted, {"script": script.name})


async def fetched(address: str, path: str) -> tuple[int, str]:
    host, _, port = address.rpartition(":")
    async with asyncio.timeout(SECONDS):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
    return int(head.split()[1]), body.decode()


async def happens(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not holds():  # noqa: ASYNC110 - the state changes in a task of the server
            await asyncio.sleep(0.02)


# --- identity ---------------------------------------------------------------------------------------------------------


async def test_each_provider_answers_at_its_own_address_with_its_own_name(site: Site) -> None:
    script = Script.new(values={"a": b"1"})
    async with site.serving(site.member(LEFT), site.member(RIGHT)) as server:
        clients = [await site.client(server, name) for name in (LEFT, RIGHT)]
        shakes = [await client.handshake() for client in clients]
        values = [(await client.get_one(context(script), "a")).outcome for client in clients]
        ready = json.loads((site.folder / "ready.json").read_text())
        addresses = {one.name: one.address for one in server.hosted}

    assert [shake.provider_name for shake in shakes] == [LEFT, RIGHT]
    assert shakes[0].instance_id != shakes[1].instance_id
    assert values == [SecretBytes(b"1")] * 2
    assert ready["providers"] == addresses
    assert not (site.folder / "ready.json").exists()


async def test_a_certificate_of_one_provider_is_worth_nothing_at_the_other(site: Site) -> None:
    async with site.serving(site.member(LEFT), site.member(RIGHT)) as server:
        foreign = site.authorities[LEFT].leaf(CLIENT_ID)
        stranger = await site.client(server, RIGHT, foreign)

        with pytest.raises(TransportError):
            await stranger.handshake()


async def test_the_allowed_clients_of_one_provider_may_not_call_the_other(site: Site) -> None:
    members = site.member(LEFT), site.member(RIGHT, clients=(OTHER_CLIENT,))
    async with site.serving(*members) as server:
        theirs = await site.client(server, RIGHT, site.authorities[RIGHT].leaf(OTHER_CLIENT))
        ours = await site.client(server, RIGHT)

        assert (await theirs.handshake()).provider_name == RIGHT
        with pytest.raises(ProviderError) as caught:
            await ours.handshake()

    assert caught.value.reason is ErrorReason.PERMISSION_DENIED


# --- limits and failures ----------------------------------------------------------------------------------------------


async def test_a_provider_at_its_limit_of_calls_does_not_slow_the_other(site: Site) -> None:
    entered, leave = asyncio.Event(), asyncio.Event()

    async def get(_: Scripted, ref: RemoteRef) -> bytes:
        entered.set()
        await leave.wait()
        return ref.key.encode()

    stuck, quick = Script.new(get=get), Script.new(values={"a": b"1"})
    async with site.serving(site.member(LEFT), site.member(RIGHT)) as server:
        left, right = await site.client(server, LEFT), await site.client(server, RIGHT)
        running = asyncio.ensure_future(left.get_one(context(stuck), "a"))
        async with asyncio.timeout(SECONDS):
            await entered.wait()
        with pytest.raises(ProviderError) as caught:
            await left.get_one(context(quick), "a")
        answer = await right.get_one(context(quick), "a")
        leave.set()
        await running

    assert caught.value.reason is ErrorReason.RATE_LIMITED
    assert answer.outcome == SecretBytes(b"1")


@pytest.mark.parametrize(
    "crash",
    [
        pytest.param(ZeroDivisionError("in author code"), id="an exception that the author did not map"),
        pytest.param(SystemExit(3), id="a library that ends the process"),
        pytest.param(MemoryError(), id="memory"),
    ],
)
@pytest.mark.parametrize("count", [1, 3], ids=["one item", "several items"])
async def test_author_code_that_crashes_again_and_again_leaves_the_other_provider_alone(
    site: Site, crash: BaseException, count: int
) -> None:
    async def get(_: Scripted, __: RemoteRef) -> bytes:
        raise crash

    broken, fine = Script.new(get=get), Script.new(values={"a": b"1"})
    async with site.serving(site.member(LEFT), site.member(RIGHT)) as server:
        left, right = await site.client(server, LEFT), await site.client(server, RIGHT)
        for _ in range(5):
            items = [GetItem(f"{number}", RemoteRef(f"k{number}")) for number in range(count)]
            for result in await left.get(context(broken), items):
                assert isinstance(result.outcome, ProviderError)
                assert result.outcome.reason is ErrorReason.INTERNAL
            assert (await right.get_one(context(fine), "a")).outcome == SecretBytes(b"1")
        text = server.exposition().decode()

    assert f'eso_grpc_server_started_total{{method="GetSecrets",provider="{LEFT}"}} 5.0' in text
    assert f'eso_grpc_server_started_total{{method="GetSecrets",provider="{RIGHT}"}} 5.0' in text


async def test_a_session_that_never_opens_leaves_the_other_provider_alone(site: Site) -> None:
    async def open_(_: Scripted) -> None:
        raise SystemExit(1)

    broken, fine = Script.new(open=open_), Script.new(values={"a": b"1"})
    async with site.serving(site.member(LEFT), site.member(RIGHT)) as server:
        left, right = await site.client(server, LEFT), await site.client(server, RIGHT)
        for _ in range(3):
            with pytest.raises(ProviderError) as caught:
                await left.get_one(context(broken), "a")
            assert caught.value.reason is ErrorReason.INTERNAL
            assert (await right.get_one(context(fine), "a")).outcome == SecretBytes(b"1")


async def test_a_provider_that_cannot_be_loaded_is_named_and_the_other_serves(site: Site) -> None:
    with structlog.testing.capture_logs(processors=[structlog.contextvars.merge_contextvars]) as logged:
        async with site.serving(site.member("absent"), site.member(RIGHT)) as server:
            whole = await fetched(server.live_address, "/readyz")
            each = {name: await fetched(server.live_address, f"/readyz/{name}") for name in ("absent", RIGHT, "none")}
            _, text = await fetched(server.metrics_address, "/metrics")

    assert whole == (200, f"ok\nabsent failed\n{RIGHT} serving\n")
    assert each["absent"] == (503, "failed\n")
    assert each[RIGHT] == (200, "serving\n")
    assert each["none"][0] == 404
    assert 'eso_provider_serving{provider="absent"} 0.0' in text
    assert f'eso_provider_serving{{provider="{RIGHT}"}} 1.0' in text
    (line,) = (line for line in logged if line["log_level"] == "error")
    assert line["provider"] == "absent"
    assert "cannot be loaded" in line["problem"]


async def test_an_entry_point_that_leads_to_no_provider_is_named_and_the_other_serves(site: Site) -> None:
    nothing: Any = None
    members = site.member(LEFT), site.member(RIGHT)
    server = SharedServer(members, SharedOptions(), load=lambda name: nothing if name == LEFT else find(name))
    try:
        await server.start()
        states = server.states()
    finally:
        await server.drain()

    assert states == {LEFT: "failed", RIGHT: "serving"}
    assert "provider left is left out because it cannot be loaded: AttributeError" in server.hosted[0].unloadable


async def test_a_process_in_which_no_provider_can_be_loaded_ends(site: Site) -> None:
    with pytest.raises(ServeError, match=r"absent is left out.*gone is left out"):
        async with site.serving(site.member("absent"), site.member("gone")):
            pass


async def test_a_provider_without_certificates_serves_as_soon_as_it_has_them(site: Site) -> None:
    async with site.serving(site.member(LEFT, issued=False), site.member(RIGHT)) as server:
        before = server.states()
        assert server.is_ready()

        site.issue(LEFT)
        await happens(lambda: server.states()[LEFT] == "serving")

        shake = await (await site.client(server, LEFT)).handshake()

    assert before == {LEFT: "failed", RIGHT: "serving"}
    assert shake.provider_name == LEFT


async def test_no_provider_that_serves_means_not_ready(site: Site) -> None:
    async with site.serving(site.member(LEFT, issued=False)) as server:
        status, body = await fetched(server.live_address, "/readyz")

    assert (status, body) == (503, f"no\n{LEFT} failed\n")


async def test_on_demand_a_provider_is_imported_once_it_has_certificates(site: Site) -> None:
    imported: list[str] = []

    def noted(name: str) -> Provider:
        imported.append(name)
        return find(name)

    members = (site.member(LEFT, issued=False), site.member(RIGHT))
    server = SharedServer(members, SharedOptions(on_demand=True), load=noted)
    try:
        await server.start()
        await happens(lambda: server.states()[RIGHT] == "serving")
        before = list(imported), server.states()[LEFT], server.is_ready()
        site.issue(LEFT)
        await happens(lambda: server.states()[LEFT] == "serving")
    finally:
        await server.drain()

    assert before == ([RIGHT], "waiting", True)
    assert imported == [RIGHT, LEFT]
    assert not server.is_ready()


# --- metrics, logs, loading -------------------------------------------------------------------------------------------


def test_calls_of_two_providers_to_one_api_are_one_series() -> None:
    parts = Metrics("a", "AWS/SecretsManager"), Metrics("b", "AWS/SecretsManager")
    for part in parts:
        part.api_calls.count("Get", "success", 0.1)

    text = exposition(parts).decode()

    series = 'externalsecret_provider_api_calls_count{call="Get",provider="AWS/SecretsManager",status="success"}'
    assert text.count(series) == 1
    assert f"{series} 2.0" in text
    assert text.count("# TYPE eso_provider_sessions gauge") == 1
    assert 'eso_provider_sessions{provider="a"} 0.0' in text


async def test_log_lines_of_calls_name_the_provider(site: Site) -> None:
    async def get(_: Scripted, __: RemoteRef) -> bytes:
        raise ZeroDivisionError

    with structlog.testing.capture_logs(processors=[structlog.contextvars.merge_contextvars]) as logged:
        async with site.serving(site.member(LEFT), site.member(RIGHT)) as server:
            for name in (LEFT, RIGHT):
                await (await site.client(server, name)).get_one(context(Script.new(get=get)), "a")

    for event in ("call handled", "unexpected exception; raise an error of eso_sdk", "serving", "stopped"):
        assert sorted(line["provider"] for line in logged if line["event"] == event) == [LEFT, RIGHT], event


def test_a_provider_whose_import_ends_the_process_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "leaver.py").write_text("import sys\nsys.exit(0)\n")
    info = tmp_path / "leaver-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: leaver\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[eso.providers]\nleaver = leaver:PROVIDER\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    with pytest.raises(ProviderNameError, match=r"leaver is left out .* SystemExit at leaver\.py:2"):
        load("leaver")
