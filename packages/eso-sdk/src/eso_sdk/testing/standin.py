"""The base of servers that stand in for a backend in tests: real sockets in a thread, a log of requests, faults.

    class Keep(StandIn):
        async def respond(self, asked: StandinRequest) -> StandinResponse:
            ...

    with Keep.started() as keep:
        keep.script("GET /v1/values/*", StandinResponse(429, headers={"Retry-After": "7"}))
        assert len(keep.requests("GET /v1/values/*")) == 1

A test that runs the provider in its own process and one that runs it in memory use the same server. The server computes
with the system's clock plus `skew`, so that a test can let its tokens expire.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final, Self
from urllib.parse import parse_qsl, unquote
from weakref import WeakSet

import msgspec
from aiohttp import web

from eso_sdk.testing.server import Authority
from kubebase.clock import SystemClock

# ---------------------------------------------------------------------------------------------------------------------
# What a backend's published API description says, for the tests of a provider and of its stand-in server.
#
#     API = ApiContract(
#         "/v1",
#         Operation("GET", "/values/{name}", answers={200: Value}),
#         Operation("PUT", "/values/{name}", body=NewValue, answers={204: None}),
#         errors=Failure,
#     )
#
#     with Keep.started(contract=API) as keep:
#         ...
#     assert keep.violations == []
#
# Types are those of msgspec: a Struct, `Literal` for an enumeration, `Annotated[str, Meta(pattern=...)]`. A Struct
# with `forbid_unknown_fields` refuses members that the description does not have: use it for requests. Requests are
# checked if the provider sent them (other clients of a test may use more of the API), answers if the stand-in itself
# gave them (scripted ones are faults).


OURS: Final = "external-secrets"
"""The user agent of providers."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation: its path with `{parameters}`, the types of its bodies, and the names of its query parameters."""

    method: str
    path: str
    answers: Mapping[int, Any]
    """The type of the body of each status that is not an error; None if there is no body, bytes if it is not JSON."""
    body: Any = None
    """The type of the request's body; None if there is none."""
    is_body_optional: bool = False
    query: frozenset[str] = frozenset()
    parameters: Mapping[str, str] = field(default_factory=dict)
    """Regular expressions of path parameters."""

    def fits(self, method: str, segments: tuple[str, ...]) -> bool:
        wanted = self.path.strip("/").split("/")
        return (
            method == self.method
            and len(wanted) == len(segments)
            and all(part.startswith("{") or part == found for part, found in zip(wanted, segments, strict=True))
        )


class ApiContract:
    """The operations of an API that a provider uses."""

    def __init__(self, prefix: str, *operations: Operation, errors: Any = Any) -> None:
        self._prefix = tuple(part for part in prefix.split("/") if part)
        self._operations = operations
        self._errors = errors

    def request_problems(
        self, method: str, segments: tuple[str, ...], query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> list[str]:
        """Return what the description does not allow in a request; nothing if a provider did not send it."""
        if headers.get("user-agent") != OURS:
            return []
        name = f"{method} /{'/'.join(segments)}"
        operation = self._operation(method, segments)
        if operation is None:
            return [f"{name}: no such operation"]
        problems = [f"{name}: no query parameter {each}" for each in sorted(set(query) - operation.query)]
        for part, found in zip(operation.path.strip("/").split("/"), segments[len(self._prefix) :], strict=True):
            if not re.fullmatch(operation.parameters.get(part.strip("{}"), ".+"), found):
                problems.append(f"{name}: {part} does not have the form of its description")
        if operation.body is None or (operation.is_body_optional and not body):
            return problems + ([f"{name}: the request has a body"] if body else [])
        return problems + [f"{name}: body: {each}" for each in _problems(body, operation.body)]

    def answer_problems(self, method: str, segments: tuple[str, ...], status: int, body: bytes) -> list[str]:
        """Return what the description does not allow in a response; nothing for operations that it does not have."""
        operation = self._operation(method, segments)
        if operation is None:
            return []
        name = f"{method} /{'/'.join(segments)}: answer {status}"
        if status >= 400:
            return [f"{name}: {each}" for each in _problems(body, self._errors)]
        if status not in operation.answers:
            return [f"{name}: no such status"]
        expected = operation.answers[status]
        if expected is None:
            return [f"{name} has a body"] if body else []
        return [] if expected is bytes else [f"{name}: {each}" for each in _problems(body, expected)]

    def _operation(self, method: str, segments: tuple[str, ...]) -> Operation | None:
        if segments[: len(self._prefix)] != self._prefix:
            return None
        rest = segments[len(self._prefix) :]
        fitting = [each for each in self._operations if each.fits(method, rest)]
        # A path without parameters comes first.
        return min(fitting, key=lambda each: each.path.count("{"), default=None)


def _problems(body: bytes, kind: Any) -> list[str]:
    """Return what is wrong with JSON. The text names members and types, never a value."""
    try:
        msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as problem:
        return [str(problem)]
    except msgspec.DecodeError:
        return ["not JSON"]
    return []


# --- The base of servers that stand in for a backend in tests --------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StandinRequest:
    """One request, as it arrived. Names of headers are in lower case."""

    method: str
    path: str
    """Unescaped, without the query."""
    raw_path: str = field(repr=False)
    query: Mapping[str, str] = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)

    @property
    def line(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def segments(self) -> tuple[str, ...]:
        """Return the parts of the path, each unescaped on its own."""
        return tuple(unquote(part) for part in self.raw_path.partition("?")[0].strip("/").split("/"))

    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    def form(self) -> dict[str, str]:
        return dict(parse_qsl(self.body.decode(), keep_blank_values=True))


@dataclass(frozen=True, slots=True)
class StandinResponse:
    """One response. A body that is not bytes is sent as JSON; None sends nothing."""

    status: int = 200
    body: Any = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)

    def raw(self) -> bytes:
        if self.body is None:
            return b""
        return self.body if isinstance(self.body, bytes) else msgspec.json.encode(self.body)


@dataclass(slots=True)
class StandIn:
    """A server in a thread of its own; subclasses override `answer`."""

    url: str = ""
    calls: list[StandinRequest] = field(default_factory=list)
    scripted: list[tuple[str, StandinResponse]] = field(default_factory=list)
    """Answers for the next calls whose `METHOD PATH` fits a pattern."""
    skew: float = 0.0
    """Seconds by which the clock of the server is ahead."""
    delay: float = 0.0
    """Seconds before each response."""
    contract: ApiContract | None = None
    """What requests of the provider and answers of this server must keep to."""
    violations: list[str] = field(default_factory=list)
    """What did not keep to the contract."""
    ca: bytes = b""
    """PEM of the authority behind the server's certificate; empty without TLS."""
    _stop: Callable[[], object] = field(default=lambda: None, repr=False)
    _connections: WeakSet[asyncio.Transport] = field(default_factory=WeakSet, repr=False)

    async def respond(self, request: StandinRequest) -> StandinResponse:
        """Return the response to a request."""
        raise NotImplementedError(request.line)

    @classmethod
    @contextmanager
    def started(cls, *, tls_folder: Path | None = None, **fields: Any) -> Iterator[Self]:
        """Serve on a free port, over TLS if a folder for its files is given."""
        server = cls(**fields)
        context = None if tls_folder is None else server._tls(tls_folder)
        ready = Event()
        thread = Thread(target=lambda: asyncio.run(server._serve(ready, context)), daemon=True)
        thread.start()
        ready.wait(timeout=30)
        try:
            yield server
        finally:
            server._stop()
            thread.join(timeout=30)

    def requests(self, pattern: str = "*") -> list[StandinRequest]:
        """Return the calls so far whose `METHOD PATH` fits a pattern."""
        return [call for call in self.calls if fnmatchcase(call.line, pattern)]

    def script(self, pattern: str, *response: StandinResponse) -> None:
        """Answer the next calls that fit the pattern with these, one call each."""
        self.scripted += [(pattern, each) for each in response]

    def now(self) -> float:
        return SystemClock().now().timestamp() + self.skew

    # --- inside ------------------------------------------------------------------------------------------------------

    def _tls(self, folder: Path) -> ssl.SSLContext:
        authority = Authority.make()
        leaf = authority.leaf("spiffe://test/standin")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "standin.pem").write_bytes(leaf.certificate + leaf.key.reveal())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "standin.pem")
        self.ca = authority.pem
        return context

    async def _serve(self, ready: Event, tls: ssl.SSLContext | None) -> None:
        stopped, loop = asyncio.Event(), asyncio.get_running_loop()
        self._stop = lambda: loop.call_soon_threadsafe(stopped.set)
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._handled)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
        ready.set()
        try:
            await stopped.wait()
        finally:
            # A TLS connection would wait for the client to close it longer than the loop lives.
            for connection in self._connections:
                connection.abort()
            await runner.cleanup()

    async def _handled(self, raw: web.Request) -> web.Response:
        if raw.transport is not None:
            self._connections.add(raw.transport)
        request = StandinRequest(
            raw.method,
            raw.path,
            raw.raw_path,
            dict(raw.query),
            {name.lower(): text for name, text in raw.headers.items()},
            await raw.read(),
        )
        self.calls.append(request)
        if self.delay:
            await SystemClock().sleep(self.delay)
        scripted = self._scripted(request)
        response = scripted or await self.respond(request)
        self._compare(request, response, is_own=scripted is None)
        headers = {"Content-Type": "application/json", **response.headers}
        return web.Response(status=response.status, body=response.raw(), headers=headers)

    def _compare(self, request: StandinRequest, response: StandinResponse, *, is_own: bool) -> None:
        if self.contract is None:
            return
        self.violations += self.contract.request_problems(
            request.method, request.segments, request.query, request.headers, request.body
        )
        if is_own:
            self.violations += self.contract.answer_problems(
                request.method, request.segments, response.status, response.raw()
            )

    def _scripted(self, request: StandinRequest) -> StandinResponse | None:
        for entry in self.scripted:
            if fnmatchcase(request.line, entry[0]):
                self.scripted.remove(entry)
                return entry[1]
        return None
