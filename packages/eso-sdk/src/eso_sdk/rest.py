"""The kit for backends with a JSON API over HTTP; a new provider needs little more than paths and field names.

    async def open(self):
        settings = RestSettings("Keep https://keep.example.com", URL("https://keep.example.com/v1"), field="/server")
        self._rest = Rest(self, settings, FixedHeaders(bearer(self.secret(self.config.token))))

    async def get(self, ref):
        answer = await self._rest.get(segments("values", ref.key), call="GetValue", allowed=(404,))
        if answer.status == 404:
            raise errors.not_found(ref.key)
        return answer.read(Entry).value.encode()

    async def close(self):
        await self._rest.close()

| the kit does | how |
|---|---|
| one connection pool and one throttle for each identity | after 429 all sessions of the identity pause |
| rejected credentials | the error is repeated for a minute without a call; a login's token is replaced once a minute |
| one denied resource | a 401 to credentials that have just worked, or to a new login's token, is about one request |
| missing keys | a 404 of a read is repeated for a minute without a call, until this identity writes something |
| unchanged answers | with `etags`, a GET sends If-None-Match and gets the earlier response after a 304 |
| address rule, deadlines, bounds, TLS | `http.py` |
| errors | reason by status (`errors.error_for_status`), never a word of a response |
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import secrets
import ssl
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode

import msgspec
from multidict import CIMultiDictProxy
from yarl import URL

from eso_sdk.backend import Backend
from eso_sdk.errors import backend_error, invalid_config, invalid_request, rejected, throttled
from eso_sdk.http import (
    MAX_RESPONSE,
    REQUEST_SECONDS,
    HttpClient,
    HttpRequest,
    HttpResponse,
    status_error,
    tls_context,
    url_of,
)
from eso_sdk.logins import REFUSED, Authorization, FixedHeaders, Refusals, digest
from eso_sdk.processwide import shared_table
from eso_wire.errors import ErrorReason, ProviderError
from kubebase.bounded import ExpiringDict
from kubebase.clock import Clock
from kubebase.deadline import Deadline

# ---------------------------------------------------------------------------------------------------------------------
# Responses with an ETag, cached so that the endpoint may return 304 instead of sending an unchanged value again.
#
# A response belongs to the whole request, headers and body included: another caller's request never finds it.


MAX_ENTRIES: Final = 64
MAX_BYTES: Final = 256 * 1024
"""Size limit of all responses that one opened store caches. A process has up to 256 opened stores."""
MAX_ETAG: Final = 256

_KEY: Final = secrets.token_bytes(32)
"""Keys the fingerprints, which cover credentials, so that guesses cannot be tested against them."""


@dataclass(frozen=True, slots=True)
class CachedResponse:
    """An earlier response and its ETag."""

    etag: str
    body: bytes = field(repr=False)


class ETagCache:
    """The cached responses of one opened store. Bounded by number and bytes; the oldest one is evicted first."""

    def __init__(self, *, entries: int = MAX_ENTRIES, size: int = MAX_BYTES) -> None:
        self._entries = entries
        self._size = size
        self._held = 0
        self._cached: OrderedDict[bytes, CachedResponse] = OrderedDict()

    def find(self, request: HttpRequest) -> CachedResponse | None:
        """Return the earlier response to a request that may be sent conditionally."""
        if request.method != "GET" or any(name.lower() == "if-none-match" for name in request.headers):
            return None
        return self._cached.get(fingerprint(request))

    def store(self, request: HttpRequest, response: HttpResponse) -> None:
        """Store a response if it has an ETag and there is room for it."""
        key, etag = fingerprint(request), response.headers.get("ETag", "")
        self._drop(key)
        usable = 0 < len(etag) <= MAX_ETAG and etag.isascii() and etag.isprintable()
        if request.method != "GET" or not usable or len(response.body) > self._size // 4:
            return
        self._cached[key] = CachedResponse(etag, response.body)
        self._held += len(response.body)
        while len(self._cached) > self._entries or self._held > self._size:
            self._drop(next(iter(self._cached)))

    def _drop(self, key: bytes) -> None:
        if (cached := self._cached.pop(key, None)) is not None:
            self._held -= len(cached.body)


def conditional(request: HttpRequest, cached: CachedResponse) -> HttpRequest:
    """Request the value only if it differs from the cached one."""
    return replace(request, headers={**request.headers, "If-None-Match": cached.etag})


def fingerprint(request: HttpRequest, *more: str) -> bytes:
    """Return a digest of the request and of all other inputs of the value. Stable within this process only."""
    digest = hmac.new(_KEY, digestmod=hashlib.sha256)
    headers = (part for pair in sorted(request.headers.items()) for part in pair)
    for part in (request.method, str(request.url), *headers, *more):
        digest.update(len(part).to_bytes(8, "big") + part.encode("utf-8", "surrogateescape"))
    digest.update(request.body)
    return digest.digest()


# --- Pauses calls while a service throttles them ---------------------------------------------------------------------
#
#     async with throttle.slot():
#         ...                        # raises RATE_LIMITED at once while the pause lasts
#
# When a service throttles, calls pause; the pause doubles with each throttling response that follows soon. After the
# pause, one call is sent alone, and the others wait for its outcome. Each success permits one more parallel call, so
# the end of a pause causes no burst.


FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
"""If a throttling response comes later than this after the last pause, pauses start again from the shortest."""
FULL_WIDTH: Final = 32
"""With this many parallel calls there is practically no limit."""
WAIT_SECONDS: Final = 10.0
"""Seconds that a call waits for the calls ahead of it."""

_NO_RESPONSE: Final = frozenset(
    {ErrorReason.RATE_LIMITED, ErrorReason.BACKEND_UNAVAILABLE, ErrorReason.BACKEND_TIMEOUT, ErrorReason.BACKEND_ERROR}
)


class Throttle:
    """The calls of one identity to one service in one region."""

    def __init__(self, clock: Clock, subject: str) -> None:
        self._clock = clock
        self._subject = subject
        self._pause = 0.0
        self._until = float("-inf")
        self._code = ""
        self._round = 0
        self._width = FULL_WIDTH
        self._running = 0
        self._moved = asyncio.Event()

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Wait for a place; a RATE_LIMITED that leaves the block closes the gate."""
        await self._enter()
        begun = self._round
        try:
            yield
            self._widen(begun)
        except ProviderError as failed:
            if failed.reason is ErrorReason.RATE_LIMITED:
                self._limited(begun, failed)
                failed.retry_after = max(failed.retry_after, self._left())
            elif failed.reason not in _NO_RESPONSE:
                self._widen(begun)
            raise
        finally:
            self._running -= 1
            self._moved.set()
            self._moved = asyncio.Event()

    def noted(self, error: ProviderError) -> ProviderError:
        """Close the gate if one item of a response met the limit, although the call succeeded."""
        if error.reason is ErrorReason.RATE_LIMITED:
            if self._left() == 0:
                self._limited(self._round, error)
            error.retry_after = max(error.retry_after, self._left())
        return error

    async def _enter(self) -> None:
        self._check()
        if self._is_full():
            try:
                async with Deadline(self._clock, WAIT_SECONDS):
                    while self._is_full():
                        await self._moved.wait()
                        self._check()
            except TimeoutError:
                raise self._refusal(FIRST_PAUSE) from None
        self._running += 1

    def _is_full(self) -> bool:
        return self._running >= self._width < FULL_WIDTH

    def _check(self) -> None:
        if (left := self._left()) > 0:
            raise self._refusal(left)

    def _left(self) -> float:
        return max(self._until - self._clock.monotonic(), 0.0)

    def _limited(self, begun: int, limit: ProviderError) -> None:
        """Start or extend the pause, to what the service says at least.

        Calls that started before the throttling was noticed do not extend it.
        """
        if begun != self._round:
            return
        now = self._clock.monotonic()
        soon = now - self._until <= LONGEST_PAUSE
        self._round += 1
        self._pause = min(self._pause * 2, LONGEST_PAUSE) if soon else FIRST_PAUSE
        self._until = now + max(self._pause, limit.retry_after)
        self._code = limit.backend_code
        self._width = 1

    def _widen(self, begun: int) -> None:
        if begun == self._round:
            self._width = min(self._width + 1, FULL_WIDTH)

    def _refusal(self, left: float) -> ProviderError:
        return throttled(left, backend_code=self._code, subject=self._subject)


# --- The kit for backends with a JSON API over HTTP; a new provider needs little more than paths and field names -----


MISSING_SECONDS: Final = 60.0
"""A missing key costs one call a minute, also with a refresh interval of seconds."""
ACCEPTED_SECONDS: Final = 60.0
"""Credentials that worked within this time are good: a 401 then denies one resource."""
MAX_PAGES: Final = 1000
ATTEMPTS: Final = 4
ATTEMPT_PAUSE: Final = 0.1

_NOT_MODIFIED: Final = 304
_MISSING: Final = 404
_REJECTED: Final = 401
_NOTHING: Final[Any] = object()

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RestSettings:
    """Where a backend is and how it behaves. `subject` names it in messages, `field` the spec field of its address."""

    subject: str
    base: URL
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers of every request, without credentials."""
    ca: bytes = field(default=b"", repr=False)
    """PEM of the authorities to trust; empty trusts the system's."""
    ca_field: str = "/caBundle"
    field: str = "/url"
    etags: bool = False
    """Whether unchanged answers are kept, in at most 1 MiB for each identity."""
    repeats: Callable[[HttpResponse], bool] | None = None
    """Tells answers of reads that a repetition mends: for backends that fail now and then without a reason."""
    limits: Callable[[HttpResponse, datetime], float | None] | None = None
    """Returns the seconds to wait if a response means a limit although its status does not say so; None otherwise."""
    status_of: Callable[[HttpResponse], int] | None = None
    """Returns the status that a response means: for servers that put the status of another server into a body."""
    credentials_in_body: bool = False
    """Whether the authorization's texts are members of JSON bodies instead of headers."""
    max_response: int = MAX_RESPONSE
    seconds: float = REQUEST_SECONDS


@dataclass(frozen=True, slots=True)
class RestRequest:
    """One request. `call` is its name in metrics; `allowed` are statuses that the caller handles."""

    method: str
    path: str
    """Relative to the base address and escaped; `segments` makes one."""
    call: str
    query: Mapping[str, str] | Sequence[tuple[str, str]] = ()
    json: Any = field(default=_NOTHING, repr=False)
    form: Mapping[str, str] | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    allowed: Collection[int] = ()
    subject: str = ""
    """What the request is about, for messages; if empty, the backend."""
    reads: bool = False
    """Whether the request only reads although its method is POST."""


@dataclass(frozen=True, slots=True)
class RestResponse:
    """A response with a 2xx status, or one that the request allows."""

    status: int
    headers: CIMultiDictProxy[str] | Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    subject: str

    def json(self) -> Any:
        """Return the parsed body; None if it is empty."""
        return self._decoded(Any) if self.body.strip() else None

    def read(self, kind: type[T]) -> T:
        """Return the body as a value of this type. The error quotes nothing of the response."""
        found: T = self._decoded(kind)
        return found

    def _decoded(self, kind: Any) -> Any:
        try:
            return msgspec.json.decode(self.body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise backend_error(f"{self.subject} answers with something else than the expected JSON") from None


class _RejectedError(Exception):
    """The backend does not accept the credentials of a request."""


Following = Callable[[RestResponse, RestRequest], RestRequest | None]
"""Returns the request for the page after a response; None after the last."""


class Rest:
    """Requests of one session to one backend. Close it when the store is closed."""

    def __init__(
        self, backend: Backend[Any], settings: RestSettings, authorization: Authorization | None = None
    ) -> None:
        if settings.base.scheme not in ("http", "https") or not settings.base.host:
            raise invalid_config(settings.field, "must be a URL such as https://host/path")
        self.settings = settings
        self.clock = backend.clock
        self._backend = backend
        self._is_anonymous = authorization is None
        self._authorization = authorization or FixedHeaders()
        self._key = digest(settings.subject, str(settings.base), settings.ca, self._authorization.proof)
        self._refusals = shared_refusals(self.clock)
        self._accepted = shared_accepted(self.clock)
        self._peer: Peer | None = join_peer(self._key, self.clock, self._make_peer)

    async def get(
        self,
        path: str,
        *,
        call: str,
        query: Mapping[str, str] | Sequence[tuple[str, str]] = (),
        allowed: Collection[int] = (),
    ) -> RestResponse:
        return await self.send(RestRequest("GET", path, call, query, allowed=allowed))

    async def post(self, path: str, json: Any, *, call: str, allowed: Collection[int] = ()) -> RestResponse:
        return await self.send(RestRequest("POST", path, call, json=json, allowed=allowed))

    async def put(self, path: str, json: Any, *, call: str, allowed: Collection[int] = ()) -> RestResponse:
        return await self.send(RestRequest("PUT", path, call, json=json, allowed=allowed))

    async def delete(self, path: str, *, call: str, allowed: Collection[int] = ()) -> RestResponse:
        return await self.send(RestRequest("DELETE", path, call, allowed=allowed))

    async def send(self, request: RestRequest) -> RestResponse:
        """Return the response; raise a `ProviderError` for any other status than 2xx and those that are allowed."""
        peer, subject = self._open_peer(), request.subject or self.settings.subject
        self._refusals.check(self._key, self.clock.monotonic())
        target = self._url(request)
        reads = request.reads or request.method in ("GET", "HEAD")
        remembers = (request.reads or request.method == "GET") and _MISSING in request.allowed
        name = target if request.json is _NOTHING else f"{target} {digest(msgspec.json.encode(request.json)).hex()}"
        if remembers and name in peer.missing:
            return RestResponse(_MISSING, {}, b"", subject)
        response = await self._authorized(peer, request, target)
        if not reads:
            self._forget_missing()
        elif remembers and response.status == _MISSING:
            peer.missing.put(name, None, MISSING_SECONDS)
        return RestResponse(response.status, response.headers, response.body, subject)

    async def pages(self, request: RestRequest, following: Following) -> AsyncIterator[RestResponse]:
        """Yield every page. `next_link`, `next_page` and functions of the provider tell which one follows."""
        following_request: RestRequest | None = request
        for _ in range(MAX_PAGES):
            if following_request is None:
                return
            response = await self.send(following_request)
            yield response
            following_request = following(response, following_request)
        if following_request is not None:
            raise backend_error(f"{self.settings.subject} has more than {MAX_PAGES} pages; choose fewer keys")

    def is_missing(self, name: str) -> bool:
        """Return whether the backend lately said that a name is absent: then it need not be asked again."""
        return name in self._open_peer().missing

    def note_missing(self, name: str) -> None:
        """Remember for a minute that a name is absent, for backends whose lists answer reads."""
        self._open_peer().missing.put(name, None, MISSING_SECONDS)

    async def reach(self) -> None:
        """Raise a `ProviderError` unless the host accepts connections."""
        await self._open_peer().http.reach(self.settings.base)

    async def close(self) -> None:
        if self._peer is not None:
            self._peer = None
            await leave_peer(self._key, self.clock)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _open_peer(self) -> Peer:
        if self._peer is None:
            raise ProviderError(ErrorReason.INTERNAL, "the store is closed")
        return self._peer

    def _make_peer(self) -> Peer:
        settings = self.settings
        http = self._backend.http_client(
            settings.subject,
            field=settings.field,
            tls=_trust(settings),
            max_response=settings.max_response,
            seconds=settings.seconds,
        )
        return Peer.of(http, settings.subject, self.clock)

    def _forget_missing(self) -> None:
        peer = self._open_peer()
        for name in list(peer.missing):
            peer.missing.discard(name)

    def _url(self, request: RestRequest) -> str:
        tail = f"?{urlencode(request.query)}" if request.query else ""
        return f"{str(self.settings.base).rstrip('/')}/{request.path.lstrip('/')}{tail}"

    async def _authorized(self, peer: Peer, request: RestRequest, target: str) -> HttpResponse:
        """Send a request; if its credentials are rejected and can be replaced, send it once more."""
        headers = await self._authorization.headers()
        try:
            return await self._counted(peer, request, self._encoded(request, target, headers))
        except _RejectedError:
            if not await self._authorization.replace(headers):
                raise self._refused(request) from None
        headers = await self._authorization.headers()
        try:
            return await self._counted(peer, request, self._encoded(request, target, headers))
        except _RejectedError:
            raise self._refused(request) from None

    def _refused(self, request: RestRequest) -> ProviderError:
        """Return the error for a 401. An identity with rejected credentials gets it for a minute without a call."""
        subject = request.subject or self.settings.subject
        if not self._is_anonymous and (self._authorization.logs_in or self._key in self._accepted):
            message = f"{subject} denies access: HTTP 401, although the credentials are valid; check their rights"
            return ProviderError(ErrorReason.PERMISSION_DENIED, message, backend_code="401")
        error = rejected(f"{subject} does not accept the credentials: HTTP 401", backend_code="401")
        # Without an authorization, tenants share the key, and the rejected credentials are those of this request alone.
        if not self._is_anonymous:
            self._refusals.add(self._key, error, REFUSED, self.clock.monotonic())
        return error

    def _encoded(self, request: RestRequest, target: str, authorization: Mapping[str, str]) -> HttpRequest:
        in_body = self.settings.credentials_in_body
        headers = {"Accept": "application/json", **self.settings.headers, **request.headers}
        headers |= {} if in_body else authorization
        body = b""
        if request.json is not _NOTHING:
            headers["Content-Type"] = "application/json"
            body = msgspec.json.encode({**request.json, **authorization} if in_body else request.json)
        elif request.form is not None:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
            body = urlencode(request.form).encode()
        return HttpRequest(request.method, url_of(target), headers, body)

    async def _counted(self, peer: Peer, request: RestRequest, encoded: HttpRequest) -> HttpResponse:
        """Send a request within the throttle; raise for statuses that neither the caller nor a login handles."""
        async with peer.throttle.slot():
            with self._backend.observe(request.call):
                response = await self._sent(peer, encoded)
                if 200 <= response.status < 300:
                    self._accepted.put(self._key, None, ACCEPTED_SECONDS)
                if 200 <= response.status < 300 or response.status in request.allowed:
                    self._refusals.forget(self._key)
                    return response
                if response.status == _REJECTED:
                    raise _RejectedError
                raise self._error(response, request)

    async def _sent(self, peer: Peer, encoded: HttpRequest) -> HttpResponse:
        cached = peer.etags.find(encoded) if self.settings.etags else None
        request = encoded if cached is None else conditional(encoded, cached)
        response = await self._repeated(peer, request)
        if self.settings.status_of is not None:
            response = replace(response, status=self.settings.status_of(response))
        if response.status == _NOT_MODIFIED and cached is not None:
            return replace(response, status=200, body=cached.body)
        if self.settings.etags and response.status == 200:
            peer.etags.store(encoded, response)
        return response

    async def _repeated(self, peer: Peer, request: HttpRequest) -> HttpResponse:
        response = await peer.http.send(request)
        repeats = self.settings.repeats
        for _ in range(ATTEMPTS - 1):
            if repeats is None or request.method != "GET" or not repeats(response):
                break
            await self.clock.sleep(ATTEMPT_PAUSE)
            response = await peer.http.send(request)
        return response

    def _error(self, response: HttpResponse, request: RestRequest) -> ProviderError:
        subject, limits = request.subject or self.settings.subject, self.settings.limits
        if limits is not None and (wait := limits(response, self.clock.now())) is not None:
            return throttled(wait, backend_code=str(response.status), subject=subject)
        error = status_error(response, subject, self.clock)
        return error or backend_error(f"{subject} answers with HTTP {response.status}")


def segments(*parts: str) -> str:
    """Return an escaped path. Parts that would lead elsewhere (`..`) are refused: keys come from users."""
    for part in parts:
        if part in ("", ".", ".."):
            raise invalid_request(f'"{part}" cannot be part of a path; check the key')
    return "/".join(quote(part, safe="") for part in parts)


def next_link(response: RestResponse, request: RestRequest) -> RestRequest | None:
    """Follow `Link: <...>; rel="next"`, with the query of that address on the path of the request."""
    for entry in response.headers.get("Link", "").split(","):
        address, _, relation = entry.partition(";")
        if 'rel="next"' in relation:
            query = URL(address.strip().strip("<>"), encoded=True).query
            return replace(request, query=list(query.items()))
    return None


def next_page(response: RestResponse, request: RestRequest) -> RestRequest | None:
    """Follow the header `X-Next-Page`, which holds the number of the next page."""
    number = response.headers.get("X-Next-Page", "")
    if not number.isdecimal():
        return None
    return replace(request, query=[*_pairs(request, without="page"), ("page", number)])


def _pairs(request: RestRequest, *, without: str) -> list[tuple[str, str]]:
    pairs = request.query.items() if isinstance(request.query, Mapping) else request.query
    return [(name, text) for name, text in pairs if name != without]


def _trust(settings: RestSettings) -> ssl.SSLContext:
    if settings.ca:
        return tls_context(settings.ca, field_path=settings.ca_field)
    return _system_trust(os.environ.get("SSL_CERT_FILE", ""), os.environ.get("SSL_CERT_DIR", ""))


@cache
def _system_trust(_file: str, _folder: str) -> ssl.SSLContext:
    """Return one context for all backends. aiohttp's own is made at its import, before tests set the environment."""
    return tls_context()


# --- what all sessions of one identity share at one backend ----------------------------------------------------------

MAX_MISSING: Final = 4096
ETAG_CACHE_BYTES: Final = 1024 * 1024
MAX_ACCEPTED: Final = 4096


@dataclass(slots=True, eq=False)
class Peer:
    """One identity at one backend."""

    http: HttpClient
    throttle: Throttle
    missing: ExpiringDict[str, None]
    """Names that the backend lately reported as absent."""
    etags: ETagCache = field(default_factory=lambda: ETagCache(size=ETAG_CACHE_BYTES))
    users: int = 0

    @classmethod
    def of(cls, http: HttpClient, subject: str, clock: Clock) -> Peer:
        return cls(http, Throttle(clock, subject), ExpiringDict(MAX_MISSING, clock))


def join_peer(key: bytes, clock: Clock, make: Callable[[], Peer]) -> Peer:
    """Return the peer with this key, made by the first session."""
    peers = _peers(clock)
    if key not in peers:
        peers[key] = make()
    peers[key].users += 1
    return peers[key]


async def leave_peer(key: bytes, clock: Clock) -> None:
    """Take a session out; the last one closes the connections."""
    peers = _peers(clock)
    peer = peers[key]
    peer.users -= 1
    if not peer.users:
        del peers[key]
        await peer.http.close()


def shared_refusals(clock: Clock) -> Refusals:
    """Return the rejected identities of this process. They outlive their sessions, which end with the rejection."""
    return shared_table("eso_sdk.rest.refusals", clock, Refusals)


def shared_accepted(clock: Clock) -> ExpiringDict[bytes, None]:
    """Return the identities of this process whose credentials a backend has just accepted."""
    return shared_table("eso_sdk.rest.accepted", clock, lambda: ExpiringDict(MAX_ACCEPTED, clock))


def _peers(clock: Clock) -> dict[bytes, Peer]:
    """Return the peers of this process. Each belongs to an open session, and sessions are bounded."""
    return shared_table("eso_sdk.rest", clock, dict[bytes, Peer])
