"""Identities at Entra ID. All stores with the same identity share one, and with it its token.

|                       | a call                                                    |
|-----------------------|-----------------------------------------------------------|
| the token is fresh    | uses it                                                   |
| it expires soon       | waits for a new one; if that fails, uses the old one      |
| no token, or expired  | waits for the one login in progress                       |
| the last login failed | gets its error again until a pause is over                |

The libraries request tokens from an identity. It ignores the scope and tenant of the vault's challenge: a token is
always for the cloud and tenant of the store.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections.abc import AsyncIterator, Callable, Hashable, MutableMapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from types import TracebackType
from typing import Any, Final, NoReturn, Protocol, Self
from urllib.parse import urlsplit
from weakref import WeakSet

import msgspec
from azure.core.credentials import AccessToken
from azure.core.exceptions import AzureError, HttpResponseError
from azure.core.pipeline.transport import AsyncHttpTransport
from azure.core.rest import AsyncHttpResponse, HttpRequest
from azure.identity import CredentialUnavailableError
from multidict import CIMultiDict

from eso_api.stores.azure import AzureCustomCloud, AzureProvider
from eso_api.values import SecretBytes
from eso_sdk.errors import backend_error, credentials_not_found, invalid_config, rejected, timed_out, unavailable
from eso_sdk.http import HttpClient, HttpResponse, retry_after, url_of
from eso_sdk.http import HttpRequest as KitRequest
from eso_sdk.logins import REFUSALS, Pauses, Refusals
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Token
from kubebase.bounded import BoundedDict
from kubebase.clock import Clock
from kubebase.deadline import Deadline

# --- The clouds of Microsoft: which authority issues tokens, and for which resource ----------------------------------
#
# A token is sent only to hosts of the resource that it was issued for. Otherwise a store could name a host of its
# author as `vaultUrl`, and receive a token of the provider's own identity there.


CUSTOM: Final = "AzureStackCloud"


@dataclass(frozen=True, slots=True)
class Cloud:
    """Addresses of one cloud, without a slash at the end."""

    authority: str
    vaults: str
    """The resource of Key Vault, which tokens are issued for."""
    management: str = ""
    """The resource of the management API, whose tokens container registries accept."""
    queues: str = ""
    """The domain of storage queues."""

    @property
    def vault_scope(self) -> str:
        return f"{self.vaults}/.default"


CLOUDS: Final = {
    "PublicCloud": Cloud(
        "https://login.microsoftonline.com",
        "https://vault.azure.net",
        "https://management.core.windows.net/",
        "queue.core.windows.net",
    ),
    "USGovernmentCloud": Cloud(
        "https://login.microsoftonline.us",
        "https://vault.usgovcloudapi.net",
        "https://management.core.usgovcloudapi.net/",
        "queue.core.usgovcloudapi.net",
    ),
    "ChinaCloud": Cloud(
        "https://login.chinacloudapi.cn",
        "https://vault.azure.cn",
        "https://management.core.chinacloudapi.cn/",
        "queue.core.chinacloudapi.cn",
    ),
    "GermanCloud": Cloud(
        "https://login.microsoftonline.de",
        "https://vault.microsoftazure.de",
        "https://management.core.cloudapi.de/",
        "queue.core.cloudapi.de",
    ),
}

AUTHORITY_HOSTS: Final = tuple(urlsplit(cloud.authority).hostname or "" for cloud in CLOUDS.values())
VAULT_HOSTS: Final = tuple(f".{urlsplit(cloud.vaults).hostname}" for cloud in CLOUDS.values())
REGISTRY_HOSTS: Final = (".azurecr.io", ".azurecr.us", ".azurecr.cn", ".azurecr.de")
"""Hosts of Microsoft. Proofs of the provider's own identity go to others only if the administrator lists them."""


def cloud_of(config: AzureProvider) -> Cloud:
    """Return the cloud of a store."""
    if config.environment_type != CUSTOM:
        if config.custom_cloud_config is not None:
            raise invalid_config("/customCloudConfig", f"is for environmentType {CUSTOM} only; remove one of them")
        return CLOUDS[config.environment_type]
    if config.custom_cloud_config is None:
        raise invalid_config("/customCloudConfig", f"name the endpoints of the cloud, as environmentType is {CUSTOM}")
    return _custom(config.custom_cloud_config)


def registry_cloud(environment: str) -> Cloud:
    """Return the cloud of a container registry."""
    if environment not in CLOUDS:
        raise invalid_config("/environmentType", f"container registries are not supported in {environment}")
    return CLOUDS[environment]


def check_vault(url: str, cloud: Cloud) -> str:
    """Return the URL of a vault without its path, or refuse it if it is not of this cloud."""
    host, port = _host(url, "/vaultUrl")
    of = urlsplit(cloud.vaults).hostname or ""
    if host != of and not host.endswith(f".{of}"):
        raise invalid_config(
            "/vaultUrl",
            f"is not a vault of this cloud: tokens are issued for hosts of {of} and are sent to no others; correct"
            " vaultUrl or environmentType, or name the cloud in customCloudConfig",
        )
    return f"https://{host}{port}"


def _custom(named: AzureCustomCloud) -> Cloud:
    _host(named.active_directory_endpoint, "/customCloudConfig/activeDirectoryEndpoint")
    authority = named.active_directory_endpoint.rstrip("/")
    vaults = named.key_vault_endpoint
    if not vaults and named.key_vault_dns_suffix:
        vaults = f"https://{named.key_vault_dns_suffix.strip('.')}"
    if not vaults:
        return Cloud(authority, CLOUDS["PublicCloud"].vaults)
    _host(vaults, "/customCloudConfig/keyVaultEndpoint")
    return Cloud(authority, vaults.rstrip("/"))


def _host(url: str, field: str) -> tuple[str, str]:
    """Return host and port of an https URL; the port is empty, or begins with its colon."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port is not None else ""
    except ValueError:
        raise invalid_config(field, "is not a URL") from None
    if parts.scheme != "https" or not parts.hostname or parts.username is not None or parts.query or parts.fragment:
        raise invalid_config(field, "write an https URL with a host, such as https://NAME.vault.azure.net")
    return parts.hostname, port


# --- The HTTP client of the SDK as the transport of Microsoft's libraries --------------------------------------------
#
# All requests of the libraries then follow the address rule, have a deadline and a bounded response, and follow
# redirects never. Failures without a response are `ProviderError`s already; the libraries pass them on.


class ReceivedResponse(AsyncHttpResponse):
    """A response that was received completely."""

    def __init__(self, request: HttpRequest, response: HttpResponse) -> None:
        self._request = request
        self._response = response
        self._headers: MutableMapping[str, str] = CIMultiDict(response.headers)
        self._encoding: str | None = None

    @property
    def request(self) -> HttpRequest:
        return self._request

    @property
    def status_code(self) -> int:
        return self._response.status

    @property
    def headers(self) -> MutableMapping[str, str]:
        return self._headers

    @property
    def reason(self) -> str:
        try:
            return HTTPStatus(self._response.status).phrase
        except ValueError:
            return ""

    @property
    def content_type(self) -> str | None:
        return self._headers.get("Content-Type")

    @property
    def is_closed(self) -> bool:
        return True

    @property
    def is_stream_consumed(self) -> bool:
        return True

    @property
    def encoding(self) -> str | None:
        return self._encoding

    @encoding.setter
    def encoding(self, value: str | None) -> None:
        self._encoding = value

    @property
    def url(self) -> str:
        return self._request.url

    @property
    def content(self) -> bytes:
        return self._response.body

    def body(self) -> bytes:
        """Return the content, as azure-identity expects it."""
        return self._response.body

    def text(self, encoding: str | None = None) -> str:
        return self._response.body.decode(encoding or self._encoding or "utf-8", errors="replace")

    def json(self) -> Any:
        try:
            return msgspec.json.decode(self._response.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise ValueError("the response is not JSON") from None  # the decoder's own message may quote it

    def raise_for_status(self) -> None:
        if self._response.status >= HTTPStatus.BAD_REQUEST:
            raise HttpResponseError(response=self)

    async def read(self) -> bytes:
        return self._response.body

    async def iter_raw(self, **_: Any) -> AsyncIterator[bytes]:
        yield self._response.body

    async def iter_bytes(self, **_: Any) -> AsyncIterator[bytes]:
        yield self._response.body

    async def close(self) -> None:
        """Do nothing: the connection has been returned."""

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        await self.close()


class KitTransport(AsyncHttpTransport[HttpRequest, AsyncHttpResponse]):
    """Sends the requests of a library through a client of the SDK, which its owner closes."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client

    async def send(self, request: HttpRequest, **_: Any) -> AsyncHttpResponse:
        body = request.content
        sent = KitRequest(
            request.method, url_of(request.url), dict(request.headers), body.encode() if isinstance(body, str) else body
        )
        return ReceivedResponse(request, await self._client.send(sent))

    async def open(self) -> None:
        """Do nothing: the client opens itself."""

    async def close(self) -> None:
        """Do nothing: the client is shared."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        await self.close()


# --- Identities at Entra ID ------------------------------------------------------------------------------------------


MAX_IDENTITIES: Final = 1024
MAX_SCOPES: Final = 8
LOGIN_SECONDS: Final = 20.0
RENEW_AHEAD: Final = 300.0
"""Seconds before expiry at which a token is renewed. The libraries request a new one at the same time."""
DISCARD_PAUSE: Final = 60.0
"""Tokens that a vault rejects are replaced at most this often."""

_REFUSED: Final = Pauses()
_FAILED: Final = Pauses(first=1.0, longest=30.0)
_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)


class Credential(Protocol):
    """A credential of azure-identity."""

    async def get_token(self, *scopes: str, **kwargs: Any) -> AccessToken: ...


Opens = Callable[[], AbstractAsyncContextManager[Credential]]
"""Makes a credential for one login. Exceptions of type ValueError mean that its parts are unusable."""


class AccountToken:
    """The source of a service account token. It lives as long as the session that owns it."""

    def __init__(self, read: Callable[[], Token]) -> None:
        self.read = read


class Identity:
    """One identity, as a credential of the libraries."""

    def __init__(self, key: Hashable, subject: str, opens: Opens) -> None:
        self.key = key
        self.subject = subject
        """The identity in messages: `client "ID" of tenant "ID"`."""
        self._opens = opens
        self._held: BoundedDict[str, AccessToken] = BoundedDict(MAX_SCOPES)
        self._lock = asyncio.Lock()
        self._discarded = float("-inf")

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        raise TypeError("identities hold credentials and are not serialised")

    def bind(self, logins: Logins, scope: str) -> BoundIdentity:
        """Return the identity as a credential for one scope."""
        return BoundIdentity(self, logins, scope)

    async def token(self, logins: Logins, scope: str) -> AccessToken:
        """Return a token for a scope."""
        if (held := self._fresh(logins, scope)) is not None:
            return held
        async with self._lock:
            if (held := self._fresh(logins, scope)) is not None:
                return held
            try:
                self._held[scope] = await logins.one(self, scope)
            except ProviderError:
                held = self._held.get(scope)
                if held is None or held.expires_on <= logins.now:
                    raise
            return self._held[scope]

    def discard(self, logins: Logins) -> bool:
        """Drop tokens that a vault rejected; return whether new ones may be obtained."""
        now = logins.clock.monotonic()
        if now - self._discarded < DISCARD_PAUSE:
            return False
        self._discarded = now
        self._held.clear()
        return True

    def proof(self) -> bytes:
        """Return the key under which a failed login is remembered."""
        return hashlib.sha256(repr(self.key).encode()).digest()

    def open(self) -> AbstractAsyncContextManager[Credential]:
        return self._opens()

    def _fresh(self, logins: Logins, scope: str) -> AccessToken | None:
        held = self._held.use(scope)
        return held if held is not None and held.expires_on - logins.now > RENEW_AHEAD else None


class AccountIdentity(Identity):
    """An application that trusts a service account. Its assertions are the account's tokens."""

    def __init__(self, key: Hashable, subject: str, opens: Callable[[Callable[[], str]], Any]) -> None:
        super().__init__(key, subject, lambda: opens(self._assertion))
        self._sources: WeakSet[AccountToken] = WeakSet()

    def add(self, source: AccountToken) -> None:
        """Take tokens from one more session. Those of sessions that are in use are renewed with every call."""
        self._sources.add(source)

    def proof(self) -> bytes:
        return hashlib.sha256(super().proof() + self._newest().reveal()).digest()

    def _assertion(self) -> str:
        return self._newest().reveal().decode()

    def _newest(self) -> SecretBytes:
        tokens = [source.read() for source in self._sources]
        if not tokens:
            raise ProviderError(ErrorReason.CREDENTIALS_NOT_FOUND, "no token of the service account was sent")
        return max(tokens, key=lambda token: token.expires_at or _LONG_AGO).token


class BoundIdentity:
    """An identity with the scope of one cloud: the form in which the libraries take it."""

    def __init__(self, identity: Identity, logins: Logins, scope: str) -> None:
        self.identity = identity
        self.scope = scope
        self._logins = logins

    async def token(self) -> AccessToken:
        return await self.identity.token(self._logins, self.scope)

    def discard(self) -> bool:
        return self.identity.discard(self._logins)

    async def get_token(self, *_scopes: str, claims: str | None = None, **_options: Any) -> AccessToken:
        """Return a token. A claims challenge means that the vault no longer accepts the present one."""
        if claims:
            self.discard()
        return await self.token()

    async def close(self) -> None:
        """Do nothing: the identity is shared."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        """Do nothing: the identity is shared."""


class Logins:
    """The identities of one process and their logins; refused ones are repeated only after a pause."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._known: BoundedDict[Hashable, Identity] = BoundedDict(MAX_IDENTITIES)
        self._refusals = Refusals()

    @property
    def now(self) -> float:
        """Return the time in seconds since 1970, as tokens state their expiry."""
        return self.clock.now().timestamp()

    def shared(self, made: Identity) -> Identity:
        """Share an identity and cache it, so that later sessions need no new login."""
        found = self._known.use(made.key)
        if found is None or type(found) is not type(made):
            self._known[made.key] = found = made
        return found

    async def one(self, identity: Identity, scope: str) -> AccessToken:
        """Log in once."""
        proof = identity.proof()
        self._refusals.check(proof, self.clock.monotonic())
        try:
            token = await self._requested_at(identity, scope)
        except ProviderError as failed:
            pauses = _REFUSED if failed.reason in REFUSALS else _FAILED
            self._refusals.add(proof, failed, pauses, self.clock.monotonic())
            raise
        self._refusals.forget(proof)
        return token

    async def _requested_at(self, identity: Identity, scope: str) -> AccessToken:
        try:
            async with Deadline(self.clock, LOGIN_SECONDS), identity.open() as credential:
                return await credential.get_token(scope)
        except TimeoutError:
            raise timed_out(f"no token for {identity.subject} within {LOGIN_SECONDS:g} s") from None
        except (AzureError, ValueError, OSError) as failed:
            raise login_error(failed, identity.subject, self.clock) from None


# --- errors of logins ------------------------------------------------------------------------------------------------
# The texts of Entra ID are never quoted: they repeat parts of the request.

_CODE: Final = re.compile(r"AADSTS\d{4,8}")
_HINTS: Final = {
    "AADSTS7000215": "the client secret is wrong; write its value, not its id, into the Secret",
    "AADSTS7000222": "the client secret has expired; create a new one",
    "AADSTS7000229": "the application has no service principal in the tenant; create it",
    "AADSTS700016": "the tenant does not know the application; correct the client id or the tenant id",
    "AADSTS700027": "the certificate is not registered with the application; upload it",
    "AADSTS90002": "the tenant does not exist; correct the tenant id",
    "AADSTS900023": "the tenant id is wrong; write the id or a domain of the tenant",
    "AADSTS70021": "no federated credential fits the token; check its issuer, subject and audience",
    "AADSTS700211": "no federated credential has the issuer of the token; check the issuer of the cluster",
    "AADSTS700212": "no federated credential has the audience of the token; use api://AzureADTokenExchange",
    "AADSTS700213": "no federated credential has the subject of the token; it is system:serviceaccount:NAMESPACE:NAME",
    "AADSTS700024": "the token of the service account has expired, or the clock of the cluster is wrong",
    "AADSTS500011": "the tenant does not know the resource; check environmentType and customCloudConfig",
}

# azure-identity logs the responses of Entra ID, which repeat parts of the request. The error below reports what failed.
logging.getLogger("azure").setLevel(logging.CRITICAL)


def login_error(failed: Exception, subject: str, clock: Clock) -> ProviderError:
    """Return the error of a login that Entra ID or the instance metadata refused."""
    if isinstance(failed, CredentialUnavailableError):
        return credentials_not_found(
            f"{subject} is not available to the provider process: instance metadata has no such identity or does not"
            " respond; assign the identity to the node, or use WorkloadIdentity"
        )
    if not isinstance(failed, AzureError):
        return credentials_not_found(f"{subject} cannot log in ({type(failed).__name__}); check its id, tenant and key")
    response: Any = getattr(failed, "response", None)
    status = int(getattr(response, "status_code", 0) or 0)
    found = _CODE.search(str(getattr(failed, "message", "")))
    code = found.group() if found else str(status or "")
    if status == 429:
        message = f"Entra ID limits the logins of {subject} (HTTP 429); retried later"
        wait = retry_after(response.headers, clock.now())
        return ProviderError(ErrorReason.RATE_LIMITED, message, retry_after=wait, backend_code=code)
    if status >= 500:
        return unavailable(f"Entra ID has no token for {subject}: HTTP {status}", backend_code=code)
    if found is None and status in (0, 404):
        message = f"the login of {subject} got a response that is not from Entra ID"
        return backend_error(f"{message}; check the authority and proxies on the way", backend_code=code)
    hint = _HINTS.get(code, "check its id, its tenant and its credential")
    return rejected(f"Entra ID refuses {subject} ({code}): {hint}", backend_code=code)
