"""The service account of a call, proved by the token sent with it (`auth.serviceAccountRef` of a store).

    authorization metadata -> TokenGate -> Verifier (`jwks.py`, `ReviewVerifier`) -> ServiceAccount, or a refusal

TLS has already authenticated the operator. A token identifies one account, for providers that treat accounts
differently. It is verified here and goes no further: author code sees the account, never the token.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import ipaddress
import re
import ssl
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, assert_never
from urllib.parse import SplitResult, urlsplit

import msgspec
import structlog

from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.options import AUTHORIZATION_KEY
from eso_wire.values import Context
from kubebase.bounded import ExpiringDict
from kubebase.clock import Clock
from kubebase.deadline import Deadline

if TYPE_CHECKING:
    import aiohttp

# --- The only place of the SDK that opens connections: to verify tokens ----------------------------------------------
#
# One bounded answer to one request, or `UnreachedError` with a message that quotes nothing. Calls to backends do not
# use it.


MAX_RESPONSE_BYTES: Final = 1024 * 1024
RESPONSE_SECONDS: Final = 5.0
_CHUNK: Final = 64 * 1024


class UnreachedError(Exception):
    """No response arrived; the text says why."""


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Outbound:
    """Sends requests to one server and verifies its certificate with `ca_file` (None: the system's authorities)."""

    clock: Clock
    ca_file: Path | None = None

    async def get(self, url: str) -> Response:
        return await self._send("GET", url, {}, b"")

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Response:
        return await self._send("POST", url, headers, body)

    async def _send(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> Response:
        # Most providers verify no tokens and do not need this import.
        import aiohttp

        host = urlsplit(url).hostname or ""
        try:
            async with Deadline(self.clock, RESPONSE_SECONDS):
                trust = await asyncio.to_thread(self._trust) if url.startswith("https:") else False
                # Not force_close: aiohttp would forget the connection during its TLS shutdown instead of closing it.
                connector = aiohttp.TCPConnector(ssl=trust, limit=1)
                async with (
                    aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session,
                    session.request(method, url, headers=headers, data=body, allow_redirects=False) as response,
                ):
                    return Response(response.status, await _bounded(response))
        except TimeoutError:
            raise UnreachedError(f"{host} did not answer within {RESPONSE_SECONDS:.0f} seconds") from None
        except aiohttp.ClientConnectorCertificateError:
            raise UnreachedError(f"the certificate of {host} is not trusted") from None
        except (aiohttp.ClientError, OSError, ValueError) as exc:
            raise UnreachedError(f"{host} was not reached ({type(exc).__name__})") from None

    def _trust(self) -> ssl.SSLContext:
        """Create the context for each request: requests are rare, and authorities change."""
        return ssl.create_default_context(cafile=self.ca_file)


def is_trustworthy(url: str) -> bool:
    """Return whether responses of an address arrive unmodified: over TLS, or from this machine itself."""
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and (parts.scheme == "https" or (parts.scheme == "http" and _is_here(parts)))
    except ValueError:
        return False


def _is_here(parts: SplitResult) -> bool:
    if parts.hostname == "localhost":
        return True
    try:
        return ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return False


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_chunked(_CHUNK):
        body += chunk
        if len(body) > MAX_RESPONSE_BYTES:
            raise UnreachedError(f"{response.url.host} answered with more than {MAX_RESPONSE_BYTES} bytes")
    return bytes(body)


# --- The service account of a call, proved by the token sent with it (`auth.serviceAccountRef` of a store) -----------


MAX_TOKEN_CHARS: Final = 16 * 1024
_SUBJECT: Final = re.compile(r"system:serviceaccount:([a-z0-9-]{1,63}):([a-z0-9.-]{1,253})")

_log = structlog.get_logger("eso_sdk.accounts")

Metadata = Iterable[tuple[str, str | bytes]]


@dataclass(frozen=True, slots=True)
class ServiceAccount:
    """A service account that a cluster vouches for. `uid` is empty if the token does not contain it."""

    namespace: str
    name: str
    uid: str = ""

    @property
    def username(self) -> str:
        """Return the user name in the format of Kubernetes."""
        return f"system:serviceaccount:{self.namespace}:{self.name}"


class TokenPolicy(StrEnum):
    """How calls without a token are treated if tokens are verified."""

    REQUIRED = "required"
    OPTIONAL = "optional"


@dataclass(frozen=True, slots=True)
class JwksSettings:
    """The trusted issuer. `source` is an address or a file path. Here, because `jwks.py` loads cryptography."""

    source: str
    issuer: str
    ca_file: Path | None = None


class Verifier(Protocol):
    """Finds the account of a token. Raises `refused` for an invalid token, `undecided` if it cannot tell."""

    async def verify(self, token: str) -> ServiceAccount: ...


class TokenGate:
    """Admits calls by their token.

    Without a verifier no token is needed, and a token is ignored: refusing it would protect nothing, because the same
    call without it is served. One warning is logged, because the sender of a token expects a check.
    """

    def __init__(self, verifier: Verifier | None = None, policy: TokenPolicy = TokenPolicy.REQUIRED) -> None:
        self._verifier = verifier
        self._policy = policy
        self._warned = False

    async def account(self, metadata: Metadata) -> ServiceAccount | None:
        """Return the verified account of a call; None for a call that needs no token."""
        sent = [value for key, value in metadata if key == AUTHORIZATION_KEY]
        if self._verifier is None:
            self._warn_of_unverified(sent)
            return None
        if not sent:
            if self._policy is TokenPolicy.OPTIONAL:
                return None
            raise ProviderError(
                ErrorReason.CREDENTIALS_REJECTED,
                "this provider serves only calls that carry a service account's token;"
                " name the account in the store's auth.serviceAccountRef",
            )
        return await self._verifier.verify(_token(sent))

    def _warn_of_unverified(self, sent: list[str | bytes]) -> None:
        if sent and not self._warned:
            self._warned = True
            _log.warning("tokens of calls are not verified; see --token-jwks and --token-review")


def refused(problem: str) -> ProviderError:
    """Return the error for an invalid token. It says what is wrong, and never quotes the token."""
    return ProviderError(
        ErrorReason.CREDENTIALS_REJECTED, f"the token of the store's auth.serviceAccountRef is refused: {problem}"
    )


def undecided(problem: str) -> ProviderError:
    """Return the error for a token that could not be checked because the authority was not reachable."""
    return ProviderError(
        ErrorReason.BACKEND_UNAVAILABLE, f"the token of the store's auth.serviceAccountRef cannot be checked: {problem}"
    )


def account_of(subject: object, uid: object = "") -> ServiceAccount:
    """Return the account that a user name denotes."""
    found = _SUBJECT.fullmatch(subject) if isinstance(subject, str) else None
    if found is None:
        raise refused("it belongs to no service account")
    return ServiceAccount(found.group(1), found.group(2), uid if isinstance(uid, str) else "")


def check_account(account: ServiceAccount | None, context: Context) -> None:
    """Refuse a namespaced store that uses an account of another namespace; the operator checks this too."""
    namespace = context.store.namespace
    if account is not None and namespace and account.namespace != namespace:
        raise ProviderError(
            ErrorReason.NAMESPACE_DENIED,
            f'the token belongs to a service account of namespace "{account.namespace}", but the store is in'
            f' "{namespace}"; name an account of that namespace in auth.serviceAccountRef',
            subject=context.store,
        )


def _token(sent: list[str | bytes]) -> str:
    if len(sent) != 1 or not isinstance(text := sent[0], str):
        raise refused("the call carries more than one")
    scheme, _, token = text.partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise refused('the authorization metadata is not "Bearer TOKEN"')
    if len(token) > MAX_TOKEN_CHARS:
        raise refused(f"it is longer than {MAX_TOKEN_CHARS} characters")
    return token


# --- Verify tokens by asking the API server that issued them, which also knows deleted accounts and pods -------------
#
# The provider authenticates with its pod's credentials, which need the right to create `tokenreviews`. Answers are
# cached by the token's digest, so a token costs one request per minute.


REVIEW_FOLDER: Final = Path("/var/run/secrets/external-secrets.io/token-review")
"""Where the chart mounts a token for reviews only. No login of a store reads it."""
POD_FOLDER: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
ACCEPTED_SECONDS: Final = 60.0
REFUSED_SECONDS: Final = 10.0
MAX_REMEMBERED: Final = 1024
MAX_REVIEWS: Final = 8

_PATH: Final = "/apis/authentication.k8s.io/v1/tokenreviews"


@dataclass(frozen=True, slots=True)
class ReviewSettings:
    """The API server and the credentials for it. The token file is read for every request, because it is rotated."""

    server: str
    token_file: Path
    ca_file: Path

    @classmethod
    def of_pod(
        cls, environment: Mapping[str, str], folders: Sequence[Path] = (REVIEW_FOLDER, POD_FOLDER)
    ) -> ReviewSettings | None:
        """Find the API server, and credentials in the first folder that exists; None outside a pod."""
        host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "443")
        if not host:
            return None
        shown = f"[{host}]" if ":" in host else host
        folder = next((each for each in folders if each.is_dir()), folders[-1])
        return cls(f"https://{shown}:{port}", folder / "token", folder / "ca.crt")


class ReviewVerifier:
    """Accepts the tokens that the API server accepts for some audiences."""

    def __init__(self, settings: ReviewSettings, audiences: tuple[str, ...], clock: Clock) -> None:
        self._settings = settings
        self._audiences = audiences
        self._outbound = Outbound(clock, settings.ca_file)
        self._reviews: ExpiringDict[bytes, ServiceAccount | ProviderError] = ExpiringDict(MAX_REMEMBERED, clock)
        self._asking = asyncio.Semaphore(MAX_REVIEWS)

    async def verify(self, token: str) -> ServiceAccount:
        digest = hashlib.sha256(token.encode(errors="replace")).digest()
        response = self._reviews.get(digest)
        if response is None:
            async with self._asking:
                # Another call with the same token may have been answered while this one waited.
                response = self._reviews.get(digest) or await self._request_review(digest, token)
        if isinstance(response, ProviderError):
            raise refused_again(response)
        return response

    async def _request_review(self, digest: bytes, token: str) -> ServiceAccount | ProviderError:
        status = _status(await self._review(token))
        response: ServiceAccount | ProviderError
        try:
            response, seconds = self._account(status), ACCEPTED_SECONDS
        except ProviderError as exc:
            response, seconds = exc, REFUSED_SECONDS
        self._reviews.put(digest, response, seconds)
        return response

    async def _review(self, token: str) -> Response:
        review = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": self._audiences},
        }
        try:
            own = await asyncio.to_thread(self._settings.token_file.read_text, encoding="ascii")
            headers = {"Authorization": f"Bearer {own.strip()}", "Content-Type": "application/json"}
            return await self._outbound.post(self._settings.server + _PATH, headers, msgspec.json.encode(review))
        except UnreachedError as exc:
            raise undecided(str(exc)) from None
        except (OSError, ValueError):
            raise undecided(f"the provider has no token of its own in {self._settings.token_file}; mount one") from None

    def _account(self, status: Mapping[str, Any]) -> ServiceAccount:
        if status.get("authenticated") is not True:
            raise refused(f"the API server does not know it, or not for the audience {' or '.join(self._audiences)}")
        confirmed = status.get("audiences")
        if not isinstance(confirmed, list) or set(self._audiences).isdisjoint(map(str, confirmed)):
            # An authenticator without audience support accepts tokens that were issued for others.
            raise refused("the API server does not confirm that it is meant for this provider")
        match status.get("user"):
            case {"username": username, **rest}:
                return account_of(username, rest.get("uid", ""))
            case _:
                raise refused("it belongs to no service account")


def refused_again(error: ProviderError) -> ProviderError:
    """Copy a cached refusal: raising the same exception twice would keep its first traceback."""
    return ProviderError(ErrorReason.CREDENTIALS_REJECTED, error.message)


def _status(response: Response) -> Mapping[str, Any]:
    match response.status:
        case 200 | 201:
            pass
        case 401:
            raise undecided("the API server does not accept the provider's own token")
        case 403:
            raise undecided(
                "the provider may not create tokenreviews; bind its service account to system:auth-delegator"
            )
        case other:
            raise undecided(f"the API server answered with status {other}")
    try:
        review = msgspec.json.decode(response.body)
    except (msgspec.DecodeError, RecursionError):
        review = None
    match review:
        case {"status": dict() as status}:
            return status
        case _:
            raise undecided("the API server answered with something other than a TokenReview")


# --- Command-line flags for the verification of call tokens, and the `TokenGate` they configure ----------------------
#
#     no flags                         tokens are neither needed nor read
#     --token-jwks, --token-issuer     verify the signature (`jwks.py`)
#     --token-review                   ask the API server (`ReviewVerifier`)
#
# `--token-audience` names the audience that tokens must have. The operator requests `external-secrets-provider/NAME`,
# where NAME is the provider's class, or NAMESPACE/SERVICE for a store that names the Service itself.


_TRUE = frozenset({"1", "true", "yes"})


class CallAuthError(ValueError):
    """The flags contradict each other; the text says what to change."""


@dataclass(frozen=True, slots=True)
class CallAuth:
    """How tokens are verified."""

    audiences: tuple[str, ...]
    by: JwksSettings | ReviewSettings
    policy: TokenPolicy = TokenPolicy.REQUIRED


def token_gate(auth: CallAuth | None, clock: Clock) -> TokenGate:
    if auth is None:
        return TokenGate()
    verifier: Verifier
    match auth.by:
        case JwksSettings():
            # Most providers verify no signatures and do not need this import.
            from eso_sdk.jwks import JwksVerifier

            verifier = JwksVerifier(auth.by, auth.audiences, clock)
        case ReviewSettings():
            verifier = ReviewVerifier(auth.by, auth.audiences, clock)
        case _ as never:
            assert_never(never)
    return TokenGate(verifier, auth.policy)


def add_flags(parser: argparse.ArgumentParser, given: Mapping[str, str]) -> None:
    """Add the flags. `given` holds defaults from the environment, by the flag's name in capitals."""
    parser.add_argument(
        "--token-audience",
        action="append",
        default=[name for name in given.get("TOKEN_AUDIENCE", "").split(",") if name],
        metavar="AUDIENCE",
        help="verify the tokens of calls (auth.serviceAccountRef), which must be for this audience; may be repeated",
    )
    parser.add_argument(
        "--token-jwks",
        default=given.get("TOKEN_JWKS", ""),
        metavar="FILE_OR_URL",
        help="public keys of the token issuer: a file or an address",
    )
    parser.add_argument(
        "--token-issuer", default=given.get("TOKEN_ISSUER", ""), help="issuer of the tokens, with --token-jwks"
    )
    parser.add_argument(
        "--token-jwks-ca",
        default=given.get("TOKEN_JWKS_CA", ""),
        metavar="FILE",
        help="CA certificates for the address of --token-jwks; by default the system's",
    )
    parser.add_argument(
        "--token-review",
        action="store_true",
        default=given.get("TOKEN_REVIEW", "").lower() in _TRUE,
        help="ask the API server instead, with the pod's own token",
    )
    parser.add_argument(
        "--token-policy",
        choices=[policy.value for policy in TokenPolicy],
        default=given.get("TOKEN_POLICY", TokenPolicy.REQUIRED.value),
        help="whether calls without a token are refused",
    )


def call_auth(chosen: argparse.Namespace, environment: Mapping[str, str]) -> CallAuth | None:
    """Return the settings of the flags; None if tokens are not verified. Raises `CallAuthError`."""
    if not (chosen.token_jwks or chosen.token_review):
        if chosen.token_audience or chosen.token_issuer:
            raise CallAuthError("--token-audience and --token-issuer need --token-jwks or --token-review")
        return None
    if chosen.token_jwks and chosen.token_review:
        raise CallAuthError("--token-jwks and --token-review exclude each other")
    if not chosen.token_audience:
        raise CallAuthError("--token-audience is needed: a provider that accepts every audience accepts stolen tokens")
    by = _review(environment) if chosen.token_review else _jwks(chosen)
    return CallAuth(tuple(chosen.token_audience), by, _policy(chosen.token_policy))


def _review(environment: Mapping[str, str]) -> ReviewSettings:
    if (settings := ReviewSettings.of_pod(environment)) is None:
        raise CallAuthError("--token-review works in a pod only: KUBERNETES_SERVICE_HOST is not set")
    return settings


def _jwks(chosen: argparse.Namespace) -> JwksSettings:
    if not chosen.token_issuer:
        raise CallAuthError("--token-jwks needs --token-issuer: the iss of the tokens that are good")
    if "://" in chosen.token_jwks and not is_trustworthy(chosen.token_jwks):
        raise CallAuthError("--token-jwks takes a file, an https:// address, or an http:// one of this machine")
    return JwksSettings(
        chosen.token_jwks, chosen.token_issuer, Path(chosen.token_jwks_ca) if chosen.token_jwks_ca else None
    )


def _policy(text: str) -> TokenPolicy:
    """Parse the policy: argparse does not check a default from the environment against the choices."""
    try:
        return TokenPolicy(text)
    except ValueError:
        raise CallAuthError('--token-policy is "required" or "optional"') from None
