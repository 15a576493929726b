"""A front before a server of AWS: it records every request, and may respond to some of them itself.

async with Front.before(moto.url) as front:
    front.respond("GetSecretValue", throttled)     # from now on
    ...
    assert front.count("BatchGetSecretValue") == 3
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Self
from urllib.parse import parse_qs

import aiohttp
from aiohttp import web

_KEY: Final = re.compile(r"Credential=([^/]+)/\d+/([^/]*)/([^/]+)/")
_DROPPED: Final = frozenset({"host", "content-length", "transfer-encoding", "connection", "accept-encoding"})


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """One request, as the service receives it."""

    operation: str
    body: dict[str, Any] = field(repr=False)
    key_id: str = ""
    """Id of the key that signed the request; empty if it is unsigned."""
    service: str = ""
    region: str = ""
    path: str = "/"
    headers: dict[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class StubResponse:
    """A response of the front itself."""

    status: int
    body: bytes = field(repr=False)
    headers: dict[str, str] = field(default_factory=dict)


Responder = Callable[[RecordedRequest], StubResponse | Awaitable[StubResponse | None] | None]
"""Returns None to let the server response."""


def refused(code: str, message: str = "refused by the test", status: int = 400) -> StubResponse:
    """Return an error in the JSON protocol."""
    body = json.dumps({"__type": code, "message": message}).encode()
    return StubResponse(
        status, body, {"Content-Type": "application/x-amz-json-1.1", "x-amzn-RequestId": "id-of-the-request"}
    )


@dataclass(slots=True)
class Front:
    """The proxy and its recorded requests."""

    behind: str
    url: str = ""
    requests: list[RecordedRequest] = field(default_factory=list)
    _responders: dict[str, Responder] = field(default_factory=dict)
    _client: aiohttp.ClientSession | None = None

    @classmethod
    @asynccontextmanager
    async def before(cls, behind: str) -> AsyncIterator[Self]:
        """Listen on a free loopback port before the server at `behind`."""
        front = cls(behind.rstrip("/"))
        app = web.Application(client_max_size=16 * 1024 * 1024)
        app.router.add_route("*", "/{tail:.*}", front._serve)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        front.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        # Development servers close idle connections without a word.
        connector = aiohttp.TCPConnector(force_close=True)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as client:
            front._client = client
            try:
                yield front
            finally:
                await runner.cleanup()

    def respond(self, operation: str, responder: Responder | StubResponse) -> None:
        """Responder an operation from now on; `*` means every operation."""
        self._responders[operation] = (lambda _request: responder) if isinstance(responder, StubResponse) else responder

    def pass_on(self, *operations: str) -> None:
        """Let the server respond again; without names, everything."""
        for operation in operations or tuple(self._responders):
            self._responders.pop(operation, None)

    def count(self, operation: str) -> int:
        return self.counts[operation]

    @property
    def counts(self) -> Counter[str]:
        return Counter(recorded.operation for recorded in self.requests)

    def forget(self) -> None:
        """Count from zero again."""
        self.requests.clear()

    async def _serve(self, request: web.Request) -> web.Response:
        raw = await request.read()
        recorded = _recorded(request, raw)
        self.requests.append(recorded)
        responder = self._responders.get(recorded.operation) or self._responders.get("*")
        response = responder(recorded) if responder is not None else None
        if response is not None and not isinstance(response, StubResponse):
            response = await response
        if response is None:
            response = await self._passed(request, raw)
        return web.Response(status=response.status, body=response.body, headers=response.headers)

    async def _passed(self, request: web.Request, raw: bytes) -> StubResponse:
        assert self._client is not None  # noqa: S101 - set while it listens
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _DROPPED}
        # The signature includes this host, so the server must see it.
        headers["Host"] = request.headers.get("Host", "")
        url = f"{self.behind}{request.path_qs}"
        async with self._client.request(request.method, url, data=raw, headers=headers) as response:
            headers_back = {name: value for name, value in response.headers.items() if name.lower() not in _DROPPED}
            return StubResponse(response.status, await response.read(), headers_back)


def _recorded(request: web.Request, raw: bytes) -> RecordedRequest:
    found = _KEY.search(request.headers.get("Authorization", ""))
    key_id, region, service = found.groups() if found else ("", "", "")
    target = request.headers.get("X-Amz-Target", "")
    body: dict[str, Any] = {}
    if target:
        body = json.loads(raw or b"{}")
        operation = target.rpartition(".")[2]
    else:
        body = {name: values[0] for name, values in parse_qs(raw.decode("utf-8", "replace")).items()}
        operation = body.get("Action", f"{request.method} {request.path}")
    return RecordedRequest(operation, body, key_id, service, region, request.path, dict(request.headers))


async def hang(_request: RecordedRequest) -> StubResponse | None:
    """Never respond."""
    await asyncio.Event().wait()
    return None
