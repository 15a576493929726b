"""The HTTP kit: one client for each opened store, with everything that every HTTP backend needs.

    client = self.http_client(subject="Vault https://vault:8200", field="/server", tls=tls_context(bundle))
    answer = await client.send(HttpRequest("GET", URL("https://vault:8200/v1/sys/health")))

The client checks every address it dials (`addresses.py`), gives each request a deadline, bounds each response, keeps no
cookies and follows no redirects unless asked to, and then only to the same host. Failures become `ProviderError`s in
the kit's own words: a library's words may quote addresses and headers, and answers may echo a request.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

import aiohttp
from aiohttp.helpers import get_env_proxy_for_url
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from eso_sdk.addresses import LINK_LOCAL, LOOPBACK, AddressPolicy, ForbiddenAddressError
from eso_sdk.errors import backend_error, error_for_status, invalid_config, timed_out, unavailable
from eso_sdk.processwide import CURRENT_BYTES, LARGEST_RESPONSE, SMALL
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.tls import in_memory_file
from kubebase.addresses import METADATA_HOSTS
from kubebase.bounded import BoundedDict
from kubebase.clock import Clock
from kubebase.deadline import Deadline

MAX_RESPONSE: Final = 4 * 1024 * 1024
MAX_RETRY_AFTER: Final = 3600.0
REQUEST_SECONDS: Final = 30.0
REACH_SECONDS: Final = 15.0
CONNECTIONS: Final = 32

_MAX_HOSTS: Final = 64
_CHUNK: Final = 64 * 1024
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_KEEPING_METHOD: Final = frozenset({307, 308})
_OTHER_HOST: Final = frozenset({62, 64})
"""OpenSSL's codes for a mismatch of the host name and of the IP address."""
_NOT_VALID_NOW: Final = frozenset({9, 10})
_NO_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNKNOWN_PROTOCOL"})
"""OpenSSL's reasons for a response that is not TLS."""
_PLAIN_URL: Final = re.compile(r"[!-~]+")
_PEM: Final = b"-----BEGIN"
_TO_STANDARD: Final = bytes.maketrans(b"-_", b"+/")
_NO_LIMIT: Final = aiohttp.ClientTimeout(total=None, sock_connect=None)  # each request has a deadline on our clock


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request. Everything except the method may contain credentials."""

    method: str
    url: URL = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A response with any status."""

    status: int
    headers: CIMultiDictProxy[str] = field(repr=False)
    body: bytes = field(repr=False)


Send = Callable[[HttpRequest], Awaitable[HttpResponse]]
Login = Callable[[HttpRequest, HttpResponse, Send], Awaitable[HttpResponse]]
"""Receives a request, its response with status 401 and a function to send more; returns the response to use."""


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """How a client behaves. `subject` names the backend in messages, `field` the spec field with its address."""

    subject: str
    field: str = "/url"
    tls: ssl.SSLContext | None = None
    """None trusts the system's authorities."""
    connections: int = CONNECTIONS
    max_response: int = MAX_RESPONSE
    redirects: int = 0
    """How many redirects to the same host are followed."""
    seconds: float = REQUEST_SECONDS
    """Deadline of a request that names none. The deadline of the call applies as well."""
    login: Login | None = None
    """Logs in after a response with 401.

    For a scheme that authenticates a connection (NTLM), set `connections` to 1 and send one request at a time.
    """


class HttpClient:
    """Connections to one backend. Close it when the store is closed."""

    def __init__(self, settings: HttpSettings, *, policy: AddressPolicy, clock: Clock) -> None:
        self._settings = settings
        self._policy = policy
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None
        self._proxies: BoundedDict[tuple[str, str | None], URL | None] = BoundedDict(_MAX_HOSTS)

    async def send(self, request: HttpRequest, *, seconds: float | None = None) -> HttpResponse:
        """Return the response whatever its status is; raise a `ProviderError` if there is none."""
        with self._plain_errors(seconds or self._settings.seconds):
            async with Deadline(self._clock, seconds or self._settings.seconds):
                return await self._followed(request)

    async def reach(self, url: URL, *, seconds: float = REACH_SECONDS) -> None:
        """Open a TCP connection to the host of a URL, or to the proxy in front of it, and close it again."""
        with self._plain_errors(seconds):
            async with Deadline(self._clock, seconds):
                proxy = self._checked_proxy(url)
                await self._dialled(proxy or url)

    @asynccontextmanager
    async def websocket(
        self, url: URL, headers: Mapping[str, str], *, heartbeat: float = 30.0
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """Open a websocket. A refused upgrade raises `HttpStatusError` with the status."""
        with self._plain_errors(self._settings.seconds):
            async with Deadline(self._clock, self._settings.seconds):
                opened = await self._opened().ws_connect(
                    url,
                    headers=headers,
                    heartbeat=heartbeat,
                    max_msg_size=self._settings.max_response,
                    autoping=True,
                    proxy=self._checked_proxy(url),
                )
        try:
            yield opened
        finally:
            await opened.close()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                ssl=self._settings.tls or True, limit=self._settings.connections, socket_factory=self._socket
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=("Content-Type",),
                headers={"User-Agent": "external-secrets"},
                timeout=_NO_LIMIT,
                trace_configs=[self._no_hidden_redirects()],
            )
        return self._session

    def _no_hidden_redirects(self) -> aiohttp.TraceConfig:
        """Return the hook that fails before the library follows a redirect: it would send the headers along.

        Only the upgrade to a websocket follows redirects by itself, and cannot be told otherwise.
        """

        async def refuse(*_: object) -> None:
            raise backend_error(
                f"{self._settings.subject} redirects a websocket, which is not followed; set {self._settings.field} to"
                " the place that it names"
            )

        hook = aiohttp.TraceConfig()
        hook.on_request_redirect.append(refuse)
        return hook

    def _socket(self, info: tuple[Any, ...]) -> socket.socket:
        """Create a socket after checking the exact address to be dialled."""
        family, kind, protocol, _name, address = info
        self._policy.check(str(address[0]))
        made = socket.socket(family=family, type=kind, proto=protocol)
        made.setblocking(False)  # noqa: FBT003 - its only parameter
        return made

    async def _dialled(self, url: URL) -> None:
        loop = asyncio.get_running_loop()
        try:
            infos = await loop.getaddrinfo(url.host or "", url.port, type=socket.SOCK_STREAM)
        except OSError:
            raise unavailable(unresolved(self._settings.subject, self._settings.field)) from None
        refused: OSError | None = None
        for info in infos:
            try:
                with closing(self._socket(info)) as made:
                    await loop.sock_connect(made, info[4])
            except OSError as exc:
                # A forbidden address explains more than another address that is merely unreachable.
                refused = refused if isinstance(refused, ForbiddenAddressError) else exc
            else:
                return
        if isinstance(refused, ForbiddenAddressError):
            raise forbidden_address(self._settings.field, refused)
        raise unavailable(
            f"{self._settings.subject} cannot be reached; check {self._settings.field}, and that it runs"
        ) from None

    async def _followed(self, request: HttpRequest) -> HttpResponse:
        for _ in range(self._settings.redirects + 1):
            response = await self._sent(request)
            if response.status == 401 and self._settings.login is not None:
                response = await self._settings.login(request, response, self._sent)
            location = response.headers.get("Location", "")
            if response.status not in _REDIRECTS or not location or not self._settings.redirects:
                return response
            request = self._redirected(request, response.status, location)
        raise backend_error(f"{self._settings.subject} redirects more than {self._settings.redirects} times")

    def _checked_proxy(self, url: URL) -> URL | None:
        """Return the proxy for a URL, if the environment names one.

        We dial only the proxy, so the addresses that it will dial are checked as far as the name reveals them. The
        library would read the environment and a file for each request.
        """
        key = (url.scheme, url.host)
        if key not in self._proxies:
            self._proxies[key] = _proxy_for(url)
        proxy = self._proxies[key]
        if proxy is None:
            return None
        try:
            for address in _addresses_of_name(url.host or ""):
                self._policy.check(address)
        except ForbiddenAddressError as problem:
            raise forbidden_address(self._settings.field, problem) from None
        return proxy

    async def _sent(self, request: HttpRequest) -> HttpResponse:
        async with self._opened().request(
            request.method,
            request.url,
            headers=request.headers,
            data=request.body or None,
            allow_redirects=False,
            proxy=self._checked_proxy(request.url),
        ) as response:
            return HttpResponse(response.status, response.headers, await self._body(response.content))

    async def _body(self, content: aiohttp.StreamReader) -> bytes:
        held, limit = CURRENT_BYTES.get(), min(self._settings.max_response, LARGEST_RESPONSE)
        body = bytearray()
        async for chunk in content.iter_chunked(_CHUNK):
            body += chunk
            if len(body) > limit:
                raise backend_error(f"the answer of {self._settings.subject} is larger than {limit} bytes")
            if held is not None:
                (held.take if len(body) > SMALL else held.count)(len(chunk))
        return bytes(body)

    def _redirected(self, request: HttpRequest, status: int, location: str) -> HttpRequest:
        """Build the next request. It may contain credentials anywhere, so it never goes to another host."""
        try:
            target = request.url.join(url_of(location))
            same = target.origin() == request.url.origin()
            upgraded = (request.url.scheme, target.scheme) == ("http", "https") and target.host == request.url.host
        except ValueError:
            same = upgraded = False
        if not (same or upgraded):
            raise backend_error(
                f"{self._settings.subject} redirects to another host, which is not followed;"
                f" set {self._settings.field} to that place"
            )
        if status in _KEEPING_METHOD or request.method in ("GET", "HEAD"):
            return replace(request, url=target)
        return replace(request, url=target, method="GET", body=b"")

    @contextmanager
    def _plain_errors(self, seconds: float) -> Iterator[None]:
        """Turn the library's exceptions into errors that quote nothing."""
        subject, field = self._settings.subject, self._settings.field
        try:
            yield
        except TimeoutError:
            raise timed_out(f"{subject} did not answer within {seconds:g} s") from None
        except aiohttp.WSServerHandshakeError as exc:
            raise HttpStatusError(exc.status, subject) from None
        except aiohttp.ClientConnectorDNSError:
            raise unavailable(unresolved(subject, field)) from None
        except (aiohttp.ClientSSLError, ssl.SSLError) as exc:
            raise unavailable(tls_problem(exc, subject, field)) from None
        except aiohttp.ClientConnectorError as exc:
            if isinstance(exc.os_error, ForbiddenAddressError):
                raise forbidden_address(field, exc.os_error) from None
            raise unavailable(f"{subject} cannot be reached; check {field}, and that it runs") from None
        except aiohttp.InvalidURL:
            raise invalid_config(field, "is not an http or https URL with a host") from None
        except (aiohttp.ClientError, OSError):
            raise unavailable(f"the connection to {subject} broke, or it does not speak HTTP") from None


class HttpStatusError(ProviderError):
    """The server answered an upgrade request with a status."""

    def __init__(self, status: int, subject: str) -> None:
        super().__init__(ErrorReason.BACKEND_ERROR, f"{subject} answers with HTTP {status}", backend_code=str(status))
        self.status = status


def is_unresolved(failed: BaseException) -> bool:
    """Return whether an error of the library means that a host name has no address."""
    return isinstance(failed, aiohttp.ClientConnectorDNSError)


def unresolved(subject: str, field: str) -> str:
    """Return the message for a host name without an address."""
    return f"the host name of {subject} does not resolve; check {field}, and the DNS where the provider runs"


def tls_problem(failed: BaseException, subject: str, field: str, authorities: str = "caBundle or caProvider") -> str:
    """Return the message for a failed TLS handshake, with its remedy. `authorities` names the setting that trusts one.

    `failed` is an error of the library, or of OpenSSL itself.
    """
    error = getattr(failed, "certificate_error", None) or getattr(failed, "os_error", failed)
    code = getattr(error, "verify_code", 0) if isinstance(error, ssl.SSLCertVerificationError) else 0
    if code in _OTHER_HOST:
        return (
            f"the certificate of {subject} is for another host name; correct the host in {field}, or give the server a"
            " certificate with this name"
        )
    if code in _NOT_VALID_NOW:
        return f"the certificate of {subject} has expired or is not valid yet; renew it, and check the clocks"
    if code or isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"the certificate of {subject} is signed by an unknown certificate authority; set {authorities} to the"
            " certificate of that authority"
        )
    if getattr(error, "reason", "") in _NO_TLS:
        return f"{subject} does not speak TLS at this port; use http:// or the port for TLS in {field}"
    return f"{subject} refuses the TLS connection; check {field}, and whether it asks for a client certificate"


def _proxy_for(url: URL) -> URL | None:
    """Return the proxy that the environment names for a URL, with the credentials for it."""
    try:
        proxy, login = get_env_proxy_for_url(url)
    except LookupError:
        return None
    return proxy.with_user(login.login).with_password(login.password) if login else proxy


def _addresses_of_name(host: str) -> list[str]:
    """Return the addresses of a host that needs no name server: a number in any spelling, or this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return ["127.0.0.1"]
    if host.rstrip(".") in METADATA_HOSTS:
        return ["169.254.169.254"]
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return []
    return [str(address[0]) for *_, address in found]


def url_of(text: str) -> URL:
    """Parse a URL without changing its spelling: its sender may have signed it. Raises ValueError if it is invalid."""
    return URL(text, encoded=_PLAIN_URL.fullmatch(text) is not None)


def status_error(response: HttpResponse, subject: str, clock: Clock) -> ProviderError | None:
    """Return the usual error for the status of a response (`errors.error_for_status`); None for 2xx."""
    return error_for_status(response.status, subject, retry_after=retry_after(response.headers, clock.now()))


def retry_after(headers: Mapping[str, str] | CIMultiDict[str], now: datetime) -> float:
    """Parse Retry-After to seconds, from a number or a date; 0 if it is unusable."""
    text = headers.get("Retry-After", "")
    try:
        seconds = float(text) if text.isdecimal() else (_date(text) - now).total_seconds()
    except (ValueError, OverflowError):
        return 0.0
    return min(max(seconds, 0.0), MAX_RETRY_AFTER)


def ca_bundle(text: str, field_path: str = "/caBundle") -> bytes:
    """Decode a `caBundle` to PEM. Some users encode it twice."""
    try:
        bundle = base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise invalid_config(field_path, "is not base64") from None
    if _PEM in bundle:
        return bundle
    try:
        return base64.b64decode(b"".join(bundle.split()).translate(_TO_STANDARD), validate=True)
    except (binascii.Error, ValueError):
        return bundle


def tls_context(
    bundle: bytes = b"", *, certificate: bytes = b"", key: bytes = b"", field_path: str = "/caBundle"
) -> ssl.SSLContext:
    """Make a context that trusts the bundle alone, or else the system's authorities, and shows a client certificate."""
    try:
        context = ssl.create_default_context(cadata=bundle.decode("ascii") if bundle else None)
    except (ssl.SSLError, ValueError):
        raise invalid_config(field_path, "holds no certificates in PEM") from None
    # Authorities of many installations lack the key identifiers that the strict mode of newer Pythons requires.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if certificate or key:
        try:
            with in_memory_file(certificate + b"\n" + key) as path:
                context.load_cert_chain(path, password=_no_password)
        except (ssl.SSLError, ValueError):
            raise invalid_config("/tls", "client certificate and key are not a pair in PEM") from None
    return context


def _no_password() -> str:
    """Fail for an encrypted key: otherwise OpenSSL would prompt on the terminal and wait."""
    raise ValueError("the client key is encrypted")


def forbidden_address(field: str, problem: ForbiddenAddressError) -> ProviderError:
    """Return the error for a field with a forbidden address."""
    return invalid_config(
        field,
        f"{problem}, which stores may not reach; use another address, or let the administrator start the provider with"
        " --allow-address",
    )


def _date(text: str) -> datetime:
    found = parsedate_to_datetime(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


# --- the clouds' own token services; their addresses come from the provider, never from a spec -----------------------

CLOUD_SECONDS: Final = 10.0
_MAX_CLOUD_RESPONSE: Final = 256 * 1024
_CLOUD_POLICY: Final = AddressPolicy.parse((LOOPBACK, LINK_LOCAL))
"""Metadata servers and the Pod Identity agent are link-local."""


async def call_cloud(request: HttpRequest, subject: str, clock: Clock) -> HttpResponse:
    """Send one request. A login needs one or two of them, so no connection is kept."""
    client = HttpClient(
        HttpSettings(subject, seconds=CLOUD_SECONDS, max_response=_MAX_CLOUD_RESPONSE),
        policy=_CLOUD_POLICY,
        clock=clock,
    )
    try:
        return await client.send(request)
    finally:
        await client.close()
