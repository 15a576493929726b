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
from collections.abc import Callable, Hashable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, NoReturn, Protocol, Self
from weakref import WeakSet

from azure.core.credentials import AccessToken
from azure.core.exceptions import AzureError
from azure.identity import CredentialUnavailableError

from eso_api.values import SecretBytes
from eso_sdk.errors import backend_error, credentials_not_found, rejected, timed_out, unavailable
from eso_sdk.http import retry_after
from eso_sdk.refusals import REFUSALS, Pauses, Refusals
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Token
from kubebase.bounded import BoundedDict
from kubebase.clock import Clock
from kubebase.deadline import Deadline

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
