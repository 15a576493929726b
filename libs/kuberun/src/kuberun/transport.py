"""The HTTP layer: requests go in as values, bytes come out, every failure is an `ApiError`.

    client ──Request──► Transport ──HTTP──► API server

The only module that opens connections to an API server. It handles TLS, credentials, deadlines and sizes; it knows no
kinds, JSON or watches. It retries only once, with new credentials after a 401.
"""

from __future__ import annotations

import io
import os
import socket
import ssl
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Protocol, TypeVar
from weakref import WeakSet

import aiohttp
from aiohttp.http import HttpProcessingError
from yarl import URL

from kubebase.clock import Clock, SystemClock
from kuberun.connection import ClientCertificate, Connection, Credential, Tls
from kuberun.errors import BadResponse, ConfigError, Unauthorized, Unreachable, from_status
from kuberun.permit import permitted
from kuberun.requests import Request

# --- TLS contexts for talking to an API server ------------------------------------------------------------------------


def client_context(tls: Tls, certificate: ClientCertificate | None, origin: str) -> ssl.SSLContext:
    """Create a context that verifies the server as `tls` says and presents `certificate`; `origin` is for messages."""
    try:
        context = ssl.create_default_context(cadata=tls.ca.decode("ascii") if tls.ca else None)
    except (ssl.SSLError, ValueError) as exc:
        raise ConfigError(f"{origin}: the certificate authority is not a certificate in PEM form") from exc
    # The authorities of many clusters lack the key identifiers that the strict mode of newer Pythons requires.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate is not None:
        _load(context, certificate, origin)
    return context


def _load(context: ssl.SSLContext, certificate: ClientCertificate, origin: str) -> None:
    try:
        with as_file(certificate.certificate + b"\n" + certificate.key) as path:
            context.load_cert_chain(path, password=_no_password)
    except (ssl.SSLError, ValueError) as exc:
        raise ConfigError(f"{origin}: client certificate and key are not a pair in PEM form") from exc


def _no_password() -> str:
    """Fail for an encrypted key: otherwise OpenSSL would prompt on the terminal and wait."""
    raise ValueError("the client key is encrypted")


@contextmanager
def as_file(data: bytes) -> Generator[str, None, None]:
    """Provide `data` as a file, because OpenSSL accepts no bytes; in memory if possible, to keep keys off the disk."""
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("certificate")
        path = f"/proc/self/fd/{handle}"
    else:
        handle, path = tempfile.mkstemp()
    try:
        with open(handle, "wb", closefd=False) as file:
            file.write(data)
        yield path
    finally:
        os.close(handle)
        if not path.startswith("/proc/"):
            os.unlink(path)  # noqa: PTH108  next to mkstemp


T = TypeVar("T")

USER_AGENT: Final = "kuberun/0.1"
_NO_CODE: Final = "<error>"
CLOSE_TIMEOUT: Final = 5.0  # seconds to wait for a peer that does not complete the TLS shutdown
_CLOSE_POLL: Final = 0.005

AddressCheck = Callable[[str], None]
"""Receives an IP address before a connection to it is opened; raises `OSError` to refuse it."""

_Sending = aiohttp.client._RequestContextManager  # noqa: SLF001  awaitable and context manager; it has no public name


class Transport(Protocol):
    """The HTTP operations that the client needs."""

    async def request(self, request: Request) -> bytes:
        """Return the body of a 2xx response; raise `ApiError` for everything else."""
        ...

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open a streamed response and yield its lines."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class TransportLimits:
    """Resource limits of one transport."""

    connections: int = 256
    response_bytes: int = 256 << 20
    line_bytes: int = 1 << 21  # aiohttp refuses lines of more than twice this
    connect_seconds: float = 10.0
    keep_alive_seconds: float = 60.0


class RequestTally:
    """Counts requests by method, code and host. A request without a response has the code `<error>`."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str, str]] = Counter()

    def note(self, method: str, code: str, host: str) -> None:
        self.counts[(method, code, host)] += 1


class AiohttpTransport:
    """`Transport` over aiohttp: HTTP/1.1 with kept-alive connections.

    `vet` may reject the addresses that the server's name resolves to.
    """

    def __init__(
        self,
        connection: Connection,
        limits: TransportLimits = TransportLimits(),  # noqa: B008  immutable
        *,
        vet: AddressCheck | None = None,
        tally: RequestTally | None = None,
    ) -> None:
        self._connection = connection
        self._limits = limits
        self._session: aiohttp.ClientSession | None = None
        self._sockets = Sockets(vet=vet)
        self._context: ssl.SSLContext | None = None
        self._context_for: ClientCertificate | None = None
        self._server = connection.server.rstrip("/")
        self._host = URL(self._server).authority
        self._tally = tally or RequestTally()

    async def request(self, request: Request) -> bytes:
        if request.method != "GET" and not permitted():
            raise Unreachable("not sent: this process does not lead any more", where=request.where)
        try:
            return await self._authenticated(self._fetch_body, request)
        except _NO_RESPONSE as exc:
            self._tally.note(request.method, _NO_CODE, self._host)
            raise _unreachable(exc, request) from None

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[bytes], None]:
        try:
            response = await self._authenticated(self._opened, request)
        except _NO_RESPONSE as exc:
            self._tally.note(request.method, _NO_CODE, self._host)
            raise _unreachable(exc, request) from None
        try:
            yield _Lines(response.content, request)
        finally:
            abort_response(response)  # the rest of the response is useless to the next request

    async def close(self) -> None:
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()
            await self._sockets.closed()

    async def _authenticated(self, call: Callable[[Request, Credential], Awaitable[T]], request: Request) -> T:
        """Call with the current credentials; after a 401, call once more with refreshed ones."""
        credential = await self._connection.credentials.current()
        try:
            return await call(request, credential)
        except Unauthorized:
            other = await self._connection.credentials.refreshed(credential)
            if other is None:
                raise
            return await call(request, other)

    async def _fetch_body(self, request: Request, credential: Credential) -> bytes:
        async with self._send(request, credential) as response:
            self._tally.note(request.method, str(response.status), self._host)
            body = await self._body(response, request)
            if 200 <= response.status < 300:
                return body
            raise from_status(response.status, body, response.headers, where=request.where, sent=request.body)

    async def _opened(self, request: Request, credential: Credential) -> aiohttp.ClientResponse:
        response = await self._send(request, credential)
        self._tally.note(request.method, str(response.status), self._host)
        if response.status == 200:
            return response
        async with response:
            body = await self._body(response, request)
            raise from_status(response.status, body, response.headers, where=request.where)

    def _send(self, request: Request, credential: Credential) -> _Sending:
        body = request.body
        return self._opened_session().request(
            request.method,
            URL(self._server + request.target, encoded=True),
            data=io.BytesIO(body) if body is not None and len(body) > 1 << 20 else body,  # aiohttp dislikes large bytes
            headers=self._headers(request, credential),
            timeout=_timeout(request.deadline, request.idle, self._limits.connect_seconds),
            allow_redirects=False,  # only this server may receive our credentials
            ssl=self._tls_context(credential.certificate),
            server_hostname=self._connection.tls.server_name or None,
            proxy=self._connection.proxy or None,
        )

    def _headers(self, request: Request, credential: Credential) -> list[tuple[str, str]]:
        headers = [
            ("User-Agent", USER_AGENT),
            ("Accept", request.accept),
            ("Accept-Encoding", "gzip" if request.compressed else "identity"),
            *self._connection.headers,
        ]
        if request.body is not None:
            headers.append(("Content-Type", request.content_type))
        if credential.authorization:
            headers.append(("Authorization", credential.authorization))
        return headers

    def _opened_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = self._sockets.connector(
                limit=self._limits.connections, keepalive_timeout=self._limits.keep_alive_seconds
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                read_bufsize=self._limits.line_bytes,
            )
        return self._session

    def _tls_context(self, certificate: ClientCertificate | None) -> ssl.SSLContext | bool:
        """Return the TLS context of the certificate. It is reused, because connections are pooled per context."""
        if self._server.startswith("http:"):
            return True
        if self._context is None or self._context_for != certificate:
            self._context = client_context(self._connection.tls, certificate, self._connection.origin)
            self._context_for = certificate
        return self._context

    async def _body(self, response: aiohttp.ClientResponse, request: Request) -> bytes:
        limit = self._limits.response_bytes
        known = response.content_length
        if known is not None and known <= limit and "Content-Encoding" not in response.headers:
            return await response.read()
        chunks: list[bytes] = []
        size = 0
        async for chunk in response.content.iter_any():
            size += len(chunk)
            if size > limit:
                response.close()
                raise BadResponse(
                    f"the response is larger than {limit} bytes; ask for smaller pages", where=request.where
                )
            chunks.append(chunk)
        return b"".join(chunks)


class Sockets:
    """The open sockets of a connector, so that closing a session closes all of them.

    aiohttp forgets a connection while its TLS shutdown is still under way. If the event loop ends before that, the
    socket leaks. Therefore code that closes a session also waits for its sockets.

    `vet` sees the resolved addresses, including those of proxies and those given as numbers.
    """

    def __init__(
        self,
        clock: Clock = SystemClock(),  # noqa: B008 - stateless
        vet: AddressCheck | None = None,
    ) -> None:
        self._clock = clock
        self._vet = vet
        self._created: WeakSet[socket.socket] = WeakSet()

    def connector(self, **options: Any) -> aiohttp.TCPConnector:
        return aiohttp.TCPConnector(socket_factory=self._make, **options)

    async def closed(self, *, within: float = CLOSE_TIMEOUT) -> None:
        """Return when the last socket is closed, or after `within` seconds."""
        end = self._clock.monotonic() + within
        while self.open() and self._clock.monotonic() < end:
            await self._clock.sleep(_CLOSE_POLL)

    def open(self) -> int:
        return sum(created.fileno() >= 0 for created in self._created)

    def _make(self, address: tuple[Any, ...]) -> socket.socket:
        family, type_, protocol, *_ = address
        if self._vet is not None:
            self._vet(str(address[4][0]))
        created = socket.socket(family, type_, protocol)
        self._created.add(created)
        return created


def abort_response(response: aiohttp.ClientResponse) -> None:
    """Abort a response and its connection, without waiting for a TLS shutdown."""
    if response.connection is not None and response.connection.transport is not None:
        response.connection.transport.abort()
    response.close()


class _Lines:
    """The lines of a stream, read one at a time."""

    __slots__ = ("_content", "_request")

    def __init__(self, content: aiohttp.StreamReader, request: Request) -> None:
        self._content = content
        self._request = request

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        try:
            while line := await self._content.readline():
                if line := line.strip():
                    return line
        except _NO_RESPONSE as exc:
            raise _unreachable(exc, self._request) from None
        except (ValueError, HttpProcessingError):
            raise BadResponse("a line of the response is too long", where=self._request.where) from None
        raise StopAsyncIteration


@lru_cache(maxsize=64)
def _timeout(deadline: float, idle: float | None, connect: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=deadline, sock_connect=min(connect, deadline), sock_read=idle)


# A TimeoutError is an OSError. Credentials may fail temporarily: a half-rotated file, a plugin without network.
_NO_RESPONSE: Final = (aiohttp.ClientError, OSError, ConfigError)


def _unreachable(error: Exception, request: Request) -> Unreachable:
    """Return our error for a missing response, without its cause: aiohttp's errors contain parts of received data."""
    if isinstance(error, TimeoutError):
        limit = request.deadline if request.idle is None else min(request.idle, request.deadline)
        return Unreachable(f"no response within {limit:g} s", where=request.where)
    return Unreachable(str(error) if isinstance(error, ConfigError) else _reason(error), where=request.where)


_REASONS: Final[tuple[tuple[type[Exception], str], ...]] = (
    (aiohttp.ClientConnectorDNSError, "cannot resolve the name of the server"),
    (aiohttp.ClientConnectorCertificateError, "the server's certificate is not trusted"),
    (aiohttp.ClientConnectorSSLError, "no TLS connection: the server does not use TLS or rejected ours"),
    (aiohttp.ClientProxyConnectionError, "cannot connect to the proxy"),
    (aiohttp.ClientHttpProxyError, "the proxy does not let us through"),
    (aiohttp.ClientConnectorError, "cannot connect"),
    (aiohttp.ServerDisconnectedError, "the server closed the connection before it responded"),
    (aiohttp.ClientPayloadError, "the response was cut short"),
    (aiohttp.ClientResponseError, "the response is not HTTP"),
)


def _reason(error: Exception) -> str:
    """Describe the failure without the error's own text."""
    text = next((text for kind, text in _REASONS if isinstance(error, kind)), "the connection broke")
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        detail = getattr(error.certificate_error, "verify_message", None)
    elif isinstance(error, aiohttp.ClientConnectorError):
        detail = error.os_error.strerror
    else:
        detail = getattr(error, "strerror", None)
    return f"{text}: {detail}" if detail else text
