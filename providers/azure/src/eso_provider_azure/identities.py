"""Identities at Entra ID. All stores with the same identity share one, and with it its token.

|                       | a call                                                    |
|-----------------------|-----------------------------------------------------------|
| the token is fresh    | uses it                                                   |
| it expires soon       | waits for a new one; if that fails, uses the old one      |
| no token, or expired  | waits for the one login in progress                       |
| the last login failed | gets its error again until a pause is over                |

The libraries ask an identity for tokens. It ignores the scope and tenant of the vault's challenge: a token is always
for the cloud and tenant of the store.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Hashable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, NoReturn, Protocol, Self
from weakref import WeakSet

from azure.core.credentials import AccessToken
from azure.core.exceptions import AzureError

from eso_api.values import SecretBytes
from eso_provider_azure.logins import login_error
from eso_sdk.errors import timed_out
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
"""Seconds before expiry at which a token is renewed. The libraries ask for a new one at the same time."""
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
    """The source of a service account token. The session that owns it keeps it alive."""

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
        """Share an identity and keep it, so that later sessions need no new login."""
        found = self._known.use(made.key)
        if found is None or type(found) is not type(made):
            self._known[made.key] = found = made
        return found

    async def one(self, identity: Identity, scope: str) -> AccessToken:
        """Log in once."""
        proof = identity.proof()
        self._refusals.check(proof, self.clock.monotonic())
        try:
            token = await self._asked(identity, scope)
        except ProviderError as failed:
            pauses = _REFUSED if failed.reason in REFUSALS else _FAILED
            self._refusals.add(proof, failed, pauses, self.clock.monotonic())
            raise
        self._refusals.forget(proof)
        return token

    async def _asked(self, identity: Identity, scope: str) -> AccessToken:
        try:
            async with Deadline(self.clock, LOGIN_SECONDS), identity.open() as credential:
                return await credential.get_token(scope)
        except TimeoutError:
            raise timed_out(f"no token for {identity.subject} within {LOGIN_SECONDS:g} s") from None
        except (AzureError, ValueError, OSError) as failed:
            raise login_error(failed, identity.subject, self.clock) from None
