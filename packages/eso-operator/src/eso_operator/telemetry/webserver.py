"""HTTP servers of the operator, and who may read them.

`WebServer` is plain, or serves TLS with a certificate that may be replaced while it runs. `AccessReviews` asks the API
server who a token belongs to, and what that user may do; `PathAuthorizer` authorize users who may `get` a path.
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any, Final

import structlog
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from eso_operator.telemetry.settings import Listener, MetricsSettings
from kubebase.bounded import ExpiringDict
from kubebase.clock import Clock
from kubebase.meta import JsonObject, Resource, raw
from kubebase.opening import opened
from kuberun.client import Client
from kuberun.errors import ApiError
from kuberun.transport import as_file

# --- access by token --------------------------------------------------------------------------------------------------


_TOKEN_REVIEWS: Final = raw(Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False))
_ACCESS_REVIEWS: Final = raw(
    Resource("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False)
)
_REMEMBERED: Final = 256
_FRESH_SECONDS: Final = 60.0
MAX_TOKEN_CHARS: Final = 16_384


class Access(Enum):
    ALLOWED = 200
    UNKNOWN = 401
    FORBIDDEN = 403
    UNDECIDED = 503


@dataclass(frozen=True, slots=True)
class User:
    """The user that a token belongs to, as the API server describes it."""

    name: str
    fields: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


class AccessReviews:
    """Reviews by the API server. Each costs a request; callers cache the result."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def user(self, token: str) -> User | None:
        """Return the user of a token; None if the API server does not accept it. Raises ApiError."""
        status = _status(await self._client.create(_TOKEN_REVIEWS, {"spec": {"token": token}}))
        if status.get("authenticated") is not True:
            return None
        user = status.get("user") or {}
        fields = {
            "user": user.get("username", ""),
            "uid": user.get("uid", ""),
            "groups": user.get("groups") or [],
            "extra": user.get("extra") or {},
        }
        return User(fields["user"], fields)

    async def allowed(self, user: User, attributes: Mapping[str, Any]) -> bool:
        """Return whether the user may do what `attributes` of a SubjectAccessReview describe. Raises ApiError."""
        review = await self._client.create(_ACCESS_REVIEWS, {"spec": {**user.fields, **attributes}})
        return _status(review).get("allowed") is True


class PathAuthorizer:
    """Caches for a minute, by the digest of the token, who may read a path."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._reviews = AccessReviews(client)
        self._cached: ExpiringDict[bytes, Access] = ExpiringDict(_REMEMBERED, clock)

    async def authorize(self, authorization: str, path: str) -> Access:
        token = bearer_token(authorization)
        if not token:
            return Access.UNKNOWN
        digest = hashlib.sha256(f"{path} {token}".encode()).digest()
        if (cached := self._cached.get(digest)) is not None:
            return cached
        try:
            access = await self._review(token, path)
        except ApiError:
            return Access.UNDECIDED
        self._cached.put(digest, access, _FRESH_SECONDS)
        return access

    async def _review(self, token: str, path: str) -> Access:
        user = await self._reviews.user(token)
        if user is None:
            return Access.UNKNOWN
        attributes = {"nonResourceAttributes": {"path": path, "verb": "get"}}
        return Access.ALLOWED if await self._reviews.allowed(user, attributes) else Access.FORBIDDEN


def bearer_token(authorization: str) -> str:
    """Return the token of an `Authorization` header; empty if it has none, or one too long to be a token."""
    scheme, _, token = authorization.partition(" ")
    return token if scheme.lower() == "bearer" and len(token) <= MAX_TOKEN_CHARS else ""


def _status(review: JsonObject) -> dict[str, Any]:
    status = review.get("status")
    return status if isinstance(status, dict) else {}


# --- servers ----------------------------------------------------------------------------------------------------------


_RELOAD_SECONDS: Final = 60.0
_SELF_SIGNED_FOR: Final = timedelta(days=365)
_DRAIN_SECONDS: Final = 5.0
"""How long requests may go on when the process stops. A pod has 30 s for everything."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Certificate:
    """The files of a certificate. Without a folder the server makes a self-signed one, new in every process.

    With `optional`, it does so as well for a folder that lacks a file, and loads the files once they exist.
    """

    folder: Path | None = None
    certificate_name: str = "tls.crt"
    key_name: str = "tls.key"
    optional: bool = False

    @property
    def missing(self) -> tuple[str, ...]:
        """Return the files that do not exist and need not exist."""
        if self.folder is None or not self.optional:
            return ()
        files = (self.folder / self.certificate_name, self.folder / self.key_name)
        return tuple(str(each) for each in files if not each.exists())

    def load(self, context: ssl.SSLContext) -> None:
        """Load the files, if there is a folder. Raises OSError and ssl.SSLError."""
        if self.folder is not None and not self.missing:
            context.load_cert_chain(self.folder / self.certificate_name, self.folder / self.key_name)


class WebServer:
    """Serves one application; `certificate` is None for plain HTTP. `name` is its name in the log."""

    def __init__(self, name: str, listen: Listener, certificate: Certificate | None, clock: Clock) -> None:
        self._name = name
        self._listen = listen
        self._certificate = certificate
        self._clock = clock
        self._port = listen.port
        self._listening = asyncio.Event()

    async def wait_listening(self) -> int:
        """Return the port, after the server has started."""
        await self._listening.wait()
        return self._port

    async def run(self, app: web.Application) -> None:
        """Serve until cancelled."""
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=_DRAIN_SECONDS)
        await runner.setup()
        try:
            context = self._context()
            site = web.TCPSite(runner, self._listen.host or None, self._port, ssl_context=context)
            await opened(site.start(), lambda _: None)  # `cleanup` closes it
            self._port = runner.addresses[0][1]
            self._listening.set()
            await self._reload(context)
        finally:
            await runner.cleanup()

    def _context(self) -> ssl.SSLContext | None:
        if self._certificate is None:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        missing = self._certificate.missing
        if missing:
            _log.warning(f"{self._name} certificate is self-signed: files are missing", files=missing)
        if missing or self._certificate.folder is None:
            _load_self_signed(context, f"external-secrets-{self._name}", self._clock)
        self._certificate.load(context)
        return context

    async def _reload(self, context: ssl.SSLContext | None) -> None:
        """Load a replaced certificate until cancelled; the next connection uses it."""
        while True:
            await self._clock.sleep(_RELOAD_SECONDS)
            if context is None or self._certificate is None:
                continue
            try:
                self._certificate.load(context)
            except (OSError, ssl.SSLError) as error:
                _log.warning(f"{self._name} certificate not reloaded", error=type(error).__name__)


def _load_self_signed(context: ssl.SSLContext, common_name: str, clock: Clock) -> None:
    """Make a self-signed certificate for clients that do not verify."""
    from cryptography import x509  # here, because other operators need not load it
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    now = clock.now()
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + _SELF_SIGNED_FOR)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    chain = certificate.public_bytes(serialization.Encoding.PEM) + key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    with as_file(chain) as path:  # in memory: the root file system of a pod may be read-only
        context.load_cert_chain(path)


Pages = Callable[[], Iterable[bytes]]
Authorize = Callable[[str, str], Awaitable[Access]]


async def allow_all(_: str, __: str) -> Access:
    return Access.ALLOWED


class MetricsServer:
    """Serves the metrics to clients that `authorize` allows, page by page: other tasks run between two pages."""

    def __init__(
        self, settings: MetricsSettings, pages: Pages, *, clock: Clock, authorize: Authorize = allow_all
    ) -> None:
        files = Certificate(settings.certificate_folder, settings.certificate_name, settings.key_name, optional=True)
        self._server = WebServer("metrics", settings.listen, files if settings.secure else None, clock)
        self._pages = pages
        self._clock = clock
        self._authorize = authorize

    async def wait_listening(self) -> int:
        """Return the port, after the server has started."""
        return await self._server.wait_listening()

    async def run(self) -> None:
        """Serve until cancelled."""
        app = web.Application()
        app.router.add_get("/metrics", self._handle)
        await self._server.run(app)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        access = await self._authorize(request.headers.get("Authorization", ""), "/metrics")
        if access is not Access.ALLOWED:
            return web.Response(status=access.value, text=f"{access.name.lower()}\n")
        response = web.StreamResponse(headers={"Content-Type": CONTENT_TYPE_LATEST})
        await response.prepare(request)
        for page in self._pages():
            if page:  # an empty chunk would end the response
                await response.write(page)
                await self._clock.sleep(0)
        await response.write_eof()
        return response
