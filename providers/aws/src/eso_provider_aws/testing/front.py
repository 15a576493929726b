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
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final, Self
from urllib.parse import parse_qs

import aiohttp
from aiohttp import web

from eso_provider_aws.clients import VARIABLES
from eso_sdk.testing.moto import Moto
from kubebase.clock import Clock, SystemClock, rfc3339

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


# --- STS for tests of logins: issues keys that expire by the clock of the test, and records the requests -------------
#
# sts = Sts(clock)
# front.respond("AssumeRole", sts)
# ...
# assert sts.roles == ["arn:aws:iam::123456789012:role/app"]


ARN = "arn:aws:iam::123456789012:role/"


@dataclass(slots=True)
class Sts:
    """Grants every requested role."""

    clock: Clock
    life: float = 3600.0
    granted: dict[str, RecordedRequest] = field(default_factory=dict)
    """The granted keys, by key id."""

    def __call__(self, request: RecordedRequest) -> StubResponse:
        key_id = f"ASIA{len(self.granted):012}"
        self.granted[key_id] = request
        expiration = rfc3339(self.clock.now() + timedelta(seconds=self.life))
        return StubResponse(
            200, _GRANT.format(request.operation, key_id, expiration).encode(), {"Content-Type": "text/xml"}
        )

    @property
    def roles(self) -> list[str]:
        return [request.body["RoleArn"] for request in self.granted.values()]

    def chain(self, key_id: str) -> list[str]:
        """Return the roles behind a key, in the order of assumption."""
        if key_id not in self.granted:
            return [key_id]
        request = self.granted[key_id]
        return [*self.chain(request.key_id), request.body["RoleArn"].removeprefix(ARN)]

    def tags(self, key_id: str) -> dict[str, str]:
        """Return the session tags of a key."""
        body: dict[str, Any] = self.granted[key_id].body
        numbers = [name.split(".")[2] for name in body if name.startswith("Tags.member.") and name.endswith(".Key")]
        return {body[f"Tags.member.{number}.Key"]: body[f"Tags.member.{number}.Value"] for number in numbers}


def refused_xml(code: str, message: str = "refused by the test", status: int = 403) -> StubResponse:
    """Return an error in the query protocol."""
    body = f"<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code><Message>{message}</Message></Error>"
    return StubResponse(status, f"{body}<RequestId>id-of-the-request</RequestId></ErrorResponse>".encode())


_GRANT = """<{0}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><{0}Result><Credentials>
<AccessKeyId>{1}</AccessKeyId><SecretAccessKey>secret of {1}</SecretAccessKey><SessionToken>token of {1}</SessionToken>
<Expiration>{2}</Expiration></Credentials></{0}Result></{0}Response>"""


# --- Sources of a process identity, for tests: instance metadata (version 2 only) and Pod Identity -------------------
#
# async with Front.before("") as endpoint:
#     endpoint.respond("*", Metadata())
#     monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", endpoint.url)


POD_PATH: Final = "/v1/credentials"
_ROLE: Final = "role-of-the-instance"
_TOKEN: Final = "token-of-the-instance"  # noqa: S105 - nothing is behind it
_IAM: Final = "/latest/meta-data/iam/security-credentials/"


@dataclass(slots=True)
class Metadata:
    """Both services."""

    broken: bool = False

    def __call__(self, request: RecordedRequest) -> StubResponse:
        if self.broken:
            return StubResponse(500, b"")
        if request.path == POD_PATH:
            return _keys("ASIAOFTHEPOD")
        if request.operation == "PUT /latest/api/token":
            return StubResponse(200, _TOKEN.encode())
        if request.headers.get("x-aws-ec2-metadata-token") != _TOKEN:
            return StubResponse(401, b"")
        if request.path == _IAM:
            return StubResponse(200, _ROLE.encode())
        return _keys("ASIAOFTHEINSTANCE") if request.path == _IAM + _ROLE else StubResponse(404, b"")


def _keys(key_id: str) -> StubResponse:
    expiration = rfc3339(SystemClock().now() + timedelta(hours=6))
    keys = {"AccessKeyId": key_id, "SecretAccessKey": "secret", "Token": "token", "Expiration": expiration}
    return StubResponse(200, json.dumps({"Code": "Success", **keys}).encode())


# ---------------------------------------------------------------------------------------------------------------------
# AWS for processes that tests start: a front on a thread of its own, and the environment that leads to it.
#
# with moto_in_thread(folder) as front:
#     subprocess.run(..., env=os.environ | environment_of(front.url))
#     assert front.count("GetSecretValue") == 1


START_SECONDS = 60.0


@contextmanager
def moto_in_thread(folder: Path) -> Iterator[Front]:
    """Start moto behind a front that does not need the event loop of the test."""
    with Moto.started(folder) as moto, front_in_thread(moto.url) as front:
        yield front


@contextmanager
def front_in_thread(behind: str) -> Iterator[Front]:
    """Listen inside the block."""
    ready, done = Event(), asyncio.Event()
    loop = asyncio.new_event_loop()
    fronts: list[Front] = []

    async def serve() -> None:
        async with Front.before(behind) as front:
            fronts.append(front)
            ready.set()
            await done.wait()

    thread = Thread(target=lambda: loop.run_until_complete(serve()), name="front", daemon=True)
    thread.start()
    if not ready.wait(START_SECONDS):
        raise TimeoutError("the front does not listen")
    try:
        yield fronts[0]
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join(START_SECONDS)
        loop.close()


def environment_of(url: str, keys: tuple[str, str] | None = None) -> dict[str, str]:
    """Return the environment that directs every service to one address; with keys, also an identity of the process."""
    found = dict.fromkeys(VARIABLES.values(), url) | {"AWS_EC2_METADATA_DISABLED": "true"}
    if keys is not None:
        found |= {"AWS_ACCESS_KEY_ID": keys[0], "AWS_SECRET_ACCESS_KEY": keys[1]}
    return found
