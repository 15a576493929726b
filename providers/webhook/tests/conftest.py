"""An HTTP endpoint as users run one: real sockets, scripted answers, and what it was asked."""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote_plus

import pytest
from aiohttp import web

from eso_provider_webhook.provider import PROVIDER
from eso_sdk.addresses import AddressPolicy
from eso_sdk.testing import InMemory
from eso_sdk.testing.server import Authority
from kubebase.testing.clock import VirtualClock

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, as it arrived."""

    method: str
    target: str
    headers: dict[str, str]
    body: str


@dataclass(slots=True)
class Endpoint:
    """Answers every path with `{}` until a test says otherwise: `endpoint.answers["/path"] = ...`."""

    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    answers: dict[str, Answer] = field(default_factory=dict)
    otherwise: Answer | None = None

    def json(self, text: str, path: str = "/", status: int = 200) -> None:
        async def answer(_: web.Request) -> web.Response:
            return web.Response(status=status, text=text, content_type="application/json")

        self.answers[path] = answer

    def status(self, status: int, **headers: str) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}

        async def answer(_: web.Request) -> web.Response:
            return web.Response(status=status, headers=named, text="CANARY of the endpoint")

        self.answers["/"] = answer

    async def handle(self, request: web.Request) -> web.StreamResponse:
        headers = dict(request.headers)
        self.asked.append(
            Asked(request.method, request.raw_path, headers, (await request.read()).decode("utf-8", "replace"))
        )
        answer = self.answers.get(request.path, self.otherwise)
        return web.Response(text="{}") if answer is None else await answer(request)


@dataclass(slots=True)
class Shelf:
    """Keeps values by key, as a small secret manager: GET, POST and DELETE of `/secrets/KEY`, with an ETag."""

    values: dict[str, bytes] = field(default_factory=dict)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        key = unquote_plus(request.raw_path.partition("/secrets/")[2].partition("?")[0])
        match request.method:
            case "POST":
                self.values[key] = await request.read()
            case _ if key not in self.values:
                return web.Response(status=404)
            case "DELETE":
                del self.values[key]
            case _:
                etag = f'"{hashlib.sha256(self.values[key]).hexdigest()}"'
                if request.headers.get("If-None-Match") == etag:
                    return web.Response(status=304, headers={"ETag": etag})
                return web.Response(body=self.values[key], headers={"ETag": etag})
        return web.Response(status=204)


@pytest.fixture
def shelf(endpoint: Endpoint) -> Shelf:
    """The endpoint as a secret manager."""
    made = Shelf()
    endpoint.otherwise = made.handle
    return made


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Endpoints of tests are on this machine, whatever the environment says."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def client(clock: VirtualClock) -> AsyncIterator[InMemory]:
    """The provider with an administrator who allows endpoints on this machine."""
    async with InMemory(PROVIDER, clock, addresses=AddressPolicy.parse(["loopback"])) as made:
        yield made


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    made = Endpoint()
    async for _ in _serving(made, None):
        yield made


@pytest.fixture
async def other_endpoint() -> AsyncIterator[Endpoint]:
    made = Endpoint()
    async for _ in _serving(made, None):
        yield made


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.make()


@pytest.fixture
async def tls_endpoint(authority: Authority, tmp_path: Path) -> AsyncIterator[Endpoint]:
    material = authority.leaf("spiffe://test/endpoint")
    (tmp_path / "tls.crt").write_bytes(material.certificate)
    (tmp_path / "tls.key").write_bytes(material.key.reveal())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    made = Endpoint()
    async for _ in _serving(made, context):
        yield made


async def _serving(endpoint: Endpoint, tls: ssl.SSLContext | None) -> AsyncIterator[None]:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", endpoint.handle)
    runner = web.AppRunner(application, shutdown_timeout=1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        _, port = runner.addresses[0][:2]
        endpoint.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}/"
        yield
    finally:
        await runner.cleanup()
