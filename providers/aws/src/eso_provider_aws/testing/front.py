"""A front before a server of AWS: it notes every request, and may answer some of them itself.

async with Front.before(moto.url) as front:
    front.answer("GetSecretValue", throttled)     # from now on
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
class Asked:
    """One request, as the service sees it."""

    operation: str
    body: dict[str, Any] = field(repr=False)
    key_id: str = ""
    """Id of the key that signed the request; empty if it is unsigned."""
    service: str = ""
    region: str = ""
    path: str = "/"
    headers: dict[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Said:
    """An answer of the front itself."""

    status: int
    body: bytes = field(repr=False)
    headers: dict[str, str] = field(default_factory=dict)


Answer = Callable[[Asked], Said | Awaitable[Said | None] | None]
"""Returns None to let the server answer."""


def refused(code: str, message: str = "refused by the test", status: int = 400) -> Said:
    """Return an error in the JSON protocol."""
    body = json.dumps({"__type": code, "message": message}).encode()
    return Said(status, body, {"Content-Type": "application/x-amz-json-1.1", "x-amzn-RequestId": "id-of-the-request"})


@dataclass(slots=True)
class Front:
    """The proxy and its recorded requests."""

    behind: str
    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    _answers: dict[str, Answer] = field(default_factory=dict)
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

    def answer(self, operation: str, answer: Answer | Said) -> None:
        """Answer an operation from now on; `*` means every operation."""
        self._answers[operation] = (lambda _asked: answer) if isinstance(answer, Said) else answer

    def pass_on(self, *operations: str) -> None:
        """Let the server answer again; without names, everything."""
        for operation in operations or tuple(self._answers):
            self._answers.pop(operation, None)

    def count(self, operation: str) -> int:
        return self.counts[operation]

    @property
    def counts(self) -> Counter[str]:
        return Counter(asked.operation for asked in self.asked)

    def forget(self) -> None:
        """Count from zero again."""
        self.asked.clear()

    async def _serve(self, request: web.Request) -> web.Response:
        raw = await request.read()
        asked = _asked(request, raw)
        self.asked.append(asked)
        answer = self._answers.get(asked.operation) or self._answers.get("*")
        said = answer(asked) if answer is not None else None
        if said is not None and not isinstance(said, Said):
            said = await said
        if said is None:
            said = await self._passed(request, raw)
        return web.Response(status=said.status, body=said.body, headers=said.headers)

    async def _passed(self, request: web.Request, raw: bytes) -> Said:
        assert self._client is not None  # noqa: S101 - set while it listens
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _DROPPED}
        # The signature includes this host, so the server must see it.
        headers["Host"] = request.headers.get("Host", "")
        url = f"{self.behind}{request.path_qs}"
        async with self._client.request(request.method, url, data=raw, headers=headers) as answer:
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in _DROPPED}
            return Said(answer.status, await answer.read(), kept)


def _asked(request: web.Request, raw: bytes) -> Asked:
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
    return Asked(operation, body, key_id, service, region, request.path, dict(request.headers))


async def hang(_asked: Asked) -> Said | None:
    """Never respond."""
    await asyncio.Event().wait()
    return None
