"""Share one Vault token among all sessions that log in as the same identity.

    join(key, login) -> SharedToken -> token()           the current token: logged in once, renewed before it expires
                                    -> renewed(rejected) another token after a 403, or None if the 403 is a denial
                                    -> close()           the last one revokes the token, unless a lease depends on it

An identity is a server, a namespace, a method, a mount, a role and the credentials; `auth/` computes its key. Sessions
come and go (the operator opens a new one for each new ServiceAccount token), the identity and its token stay. An
identity always logs in with the newest session's credentials.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

from eso_api.values import SecretBytes
from eso_sdk.backend import Closable
from eso_sdk.logins import REFUSALS, Pauses, Refusals
from eso_sdk.processwide import shared_table
from eso_wire.errors import ErrorReason, ProviderError
from kubebase.clock import Clock


class TokenSource(Protocol):
    """Returns the token for each request, and another one after the server rejected it."""

    async def token(self) -> SecretBytes | None:
        """Return the token to send; None if an agent in front of the server adds one."""
        ...

    async def renewed(self, rejected: SecretBytes | None) -> SecretBytes | None:
        """Replace a token that a request got a 403 with.

        Called at most once for a request. Returns the token to try again with. Returns None when a new login cannot
        help: the token is a static one, or the present token is younger than the refusal.
        """
        ...

    async def close(self) -> None: ...


class NoToken:
    """For stores without `auth`: an agent in front of the server adds the token."""

    async def token(self) -> None:
        return None

    async def renewed(self, rejected: SecretBytes | None) -> None:
        del rejected

    async def close(self) -> None:
        """Keep nothing, so close nothing."""


MARGIN_SECONDS: Final = 60.0
"""A token is renewed or replaced when less of its life is left; a short one when less than a third is left."""
LEASE_GRACE: Final = 30.0
"""A token lives this much longer than the leases that depend on it."""
TRUST_SECONDS: Final = 10.0
"""After a 403 that no login followed, the token is not looked up again for this long."""
EXAMINE_AFTER: Final = 5.0
"""A token of a Secret is looked up so much later than it is used first: reads do not wait for it."""
RELOGIN_PAUSE: Final = 30.0
LONGEST_RELOGIN_PAUSE: Final = 3600.0
_ATTEMPTS: Final = 3


@dataclass(frozen=True, slots=True)
class Grant:
    """A token as Vault granted it. Times in seconds; infinite if the token never expires."""

    token: SecretBytes
    ttl: float = math.inf
    """Lifetime after a login or a renewal."""
    renewable: bool = False
    revocable: bool = True
    """False for batch tokens, which only expire."""
    examined: bool = True
    """False while the lifetime of the token is unknown, because the token was created outside this provider."""
    left: float | None = None
    """Seconds until it expires, if the token is not new."""


class Login(Protocol):
    """Obtains, renews and revokes tokens over the connection of one session."""

    @property
    def proof(self) -> bytes:
        """Return a digest of the credentials with which the store logs in."""
        ...

    @property
    def pauses(self) -> Pauses: ...

    @property
    def owns_tokens(self) -> bool:
        """True if its tokens come from a login: then they are replaced after a 403 and revoked at the end."""
        ...

    async def log_in(self) -> Grant: ...

    async def examine(self, token: SecretBytes) -> Grant:
        """Look up the life of a token that was granted without."""
        ...

    async def renew(self, token: SecretBytes, increment: float) -> Grant: ...

    async def is_valid(self, token: SecretBytes) -> bool: ...

    async def revoke(self, token: SecretBytes) -> None: ...


@dataclass(slots=True, eq=False)
class Held:
    """A token in use. Times are on the clock's monotonic scale."""

    token: SecretBytes
    since: float
    ttl: float
    ends_at: float
    renewable: bool
    revocable: bool = True
    examined: bool = True
    pins: int = 0
    """Running generations: their leases depend on this token, and the length of the leases is not known yet."""
    leased_until: float = 0.0
    trusted_until: float = 0.0

    @classmethod
    def of(cls, grant: Grant, now: float) -> Held:
        return cls(grant.token, now, grant.ttl, now + grant.ttl, grant.renewable, grant.revocable, grant.examined)

    @property
    def due_at(self) -> float:
        """Return the time of the next renewal or replacement."""
        return self.ends_at if math.isinf(self.ends_at) else self.ends_at - min(MARGIN_SECONDS, self.ttl / 3)

    def is_leased(self, now: float) -> bool:
        return self.pins > 0 or self.leased_until > now


@dataclass(slots=True)
class _Relogins:
    """Limits the logins that follow a 403."""

    after_denial: int = 0
    """How often a valid token was replaced after a 403, in case the policies of its role have changed."""
    denial_allowed_at: float = 0.0
    loss_allowed_at: float = 0.0

    def allows(self, held: Held, now: float, *, valid: bool) -> bool:
        if not valid:
            return now >= self.loss_allowed_at
        return now >= max(self.denial_allowed_at, held.since + RELOGIN_PAUSE)

    def count(self, now: float, *, valid: bool) -> None:
        if not valid:
            self.loss_allowed_at = now + RELOGIN_PAUSE
            return
        self.after_denial = min(self.after_denial + 1, 16)
        self.denial_allowed_at = now + min(RELOGIN_PAUSE * 2.0**self.after_denial, LONGEST_RELOGIN_PAUSE)


Flight = Callable[[Login], Coroutine[Any, Any, Held]]


class Identity:
    """One identity with its token. Everything that changes the token runs in one task at a time."""

    def __init__(self, key: bytes, clock: Clock, refusals: Refusals) -> None:
        self._key = key
        self._clock = clock
        self._refusals = refusals
        self._logins: list[Login] = []
        self._held: Held | None = None
        self._flight: asyncio.Task[Held] | None = None
        self._flies_with: Login | None = None
        self._renewal: asyncio.Task[None] | None = None
        self._judging = asyncio.Lock()
        self._relogins = _Relogins()

    # --- sessions ----------------------------------------------------------------------------------------------------

    def join(self, login: Login) -> None:
        self._logins.append(login)

    def leave(self, login: Login) -> bool:
        """Take a session out; return whether it was the last."""
        self._logins.remove(login)
        return not self._logins

    async def finish(self, login: Login) -> None:
        """Finish what runs over the connection of a session that left. The last one returns the token."""
        if self._flight is not None and self._flies_with is login:
            await asyncio.wait({self._flight})
        if self._logins:
            return
        if self._renewal is not None:
            self._renewal.cancel()
        held, self._held = self._held, None
        if held is not None:
            await self._return(held, login)

    async def _return(self, held: Held, login: Login) -> None:
        """Revoke an unused token, unless leases depend on it: they would be revoked too."""
        now = self._clock.monotonic()
        if login.owns_tokens and held.revocable and not held.is_leased(now) and held.ends_at > now:
            with suppress(ProviderError):  # then it expires on its own
                await login.revoke(held.token)

    # --- tokens ------------------------------------------------------------------------------------------------------

    async def held(self) -> Held:
        """Return a token that is valid as far as we know. Callers wait only if there is none."""
        for _ in range(_ATTEMPTS):
            now, held = self._clock.monotonic(), self._held
            if held is None or held.ends_at <= now:
                await self._fly(self._refresh)
                continue
            if held.due_at <= now and self._flight is None:
                self._start(self._refresh)
            return held
        raise ProviderError(ErrorReason.BACKEND_UNAVAILABLE, "Vault grants tokens that expire at once")

    async def replaced(self, refused: SecretBytes) -> Held | None:
        """Return another token after a 403; None if the token is valid and the 403 is a denial."""
        async with self._judging:
            held, now = self._held, self._clock.monotonic()
            if held is None or held.token.reveal() != refused.reveal() or held.ends_at <= now:
                return await self.held()
            login = self._logins[-1]
            if not login.owns_tokens or now < held.trusted_until:
                return None
            valid = await login.is_valid(held.token)
            if not self._relogins.allows(held, now, valid=valid):
                held.trusted_until = now + TRUST_SECONDS
                return None
            if (made := await self._fly(self._log_in)) is held:  # that flight was a renewal of the same token
                made = await self._fly(self._log_in)
            self._relogins.count(now, valid=valid)
            if valid:
                await self._return(held, login)
            return made

    async def extend(self, held: Held, seconds: float) -> float:
        """Make a token live at least that long, as far as Vault allows; return the seconds it lives without us."""
        now = self._clock.monotonic()
        held.leased_until = max(held.leased_until, now + seconds)
        with suppress(ProviderError):
            await self._examine(held)
        if held.renewable and held.ends_at < now + seconds + LEASE_GRACE:
            with suppress(ProviderError):  # the caller learns how long the token lives
                await self._renew(held, self._logins[-1])
        return held.ends_at - self._clock.monotonic()

    # --- one flight at a time ----------------------------------------------------------------------------------------

    async def _fly(self, work: Flight) -> Held:
        """Join the flight under way, or start one. A caller that is cancelled does not take the others' token away."""
        return await asyncio.shield(self._flight or self._start(work))

    def _start(self, work: Flight) -> asyncio.Task[Held]:
        login = self._logins[-1]
        flight = asyncio.get_running_loop().create_task(work(login))
        self._flight, self._flies_with = flight, login
        flight.add_done_callback(self._land)
        return flight

    def _land(self, flight: asyncio.Task[Held]) -> None:
        if self._flight is flight:
            self._flight = self._flies_with = None
        if not flight.cancelled():
            flight.exception()  # callers that wait have it; a refresh ahead of time has none

    async def _refresh(self, login: Login) -> Held:
        held = self._held
        if held is not None and held.renewable and held.ends_at > self._clock.monotonic():
            await self._renew(held, login)
            if held.due_at > self._clock.monotonic():
                return held
        return await self._log_in(login)

    async def _renew(self, held: Held, login: Login) -> Held:
        """Renew a token in place, for its usual lifetime or until its last lease expires."""
        now = self._clock.monotonic()
        # A renewal without increment would shorten a life that was extended for a lease.
        increment = max(held.ttl, held.leased_until + LEASE_GRACE - now)
        try:
            grant = await login.renew(held.token, increment)
        except ProviderError as error:
            if error.reason not in REFUSALS:
                raise
            held.renewable = False
            return held
        held.ends_at = now + grant.ttl
        held.renewable = grant.renewable and held.due_at > now  # otherwise the maximum TTL is near
        return held

    async def _log_in(self, login: Login) -> Held:
        key = self._key + login.proof
        self._refusals.check(key, self._clock.monotonic())
        requested_at = self._clock.monotonic()
        try:
            grant = await login.log_in()
        except ProviderError as error:
            if error.reason in REFUSALS:
                self._refusals.add(key, error, login.pauses, self._clock.monotonic())
            raise
        self._refusals.forget(key)
        self._held = held = Held.of(grant, requested_at)
        renews = held.renewable and math.isfinite(held.ttl)
        if (renews or not held.examined) and (self._renewal is None or self._renewal.done()):
            self._renewal = asyncio.get_running_loop().create_task(self._renew_in_background())
        return held

    async def _examine(self, held: Held) -> None:
        if held.examined:
            return
        now = self._clock.monotonic()
        grant = await self._logins[-1].examine(held.token)
        held.ttl, held.renewable, held.examined = grant.ttl, grant.renewable, True
        held.ends_at = now + (grant.ttl if grant.left is None else grant.left)

    async def _renew_in_background(self) -> None:
        """Renew the token also when no read needs it. A new login waits for a read that needs one."""
        while (held := self._held) is not None and not held.examined:
            await self._clock.sleep(EXAMINE_AFTER)
            with suppress(ProviderError):
                await self._examine(held)
        while (held := self._held) is not None and held.renewable:
            now = self._clock.monotonic()
            if held.ends_at <= now:
                return
            if held.due_at > now:
                await self._clock.sleep(held.due_at - now)
                continue
            with suppress(ProviderError):
                await self._fly(self._renew_held)
            if held.due_at <= now:  # the server was not reached
                await self._clock.sleep(max((held.ends_at - now) / 4, 1.0))

    async def _renew_held(self, login: Login) -> Held:
        held = self._held
        return await (self._log_in(login) if held is None else self._renew(held, login))


class SharedToken:
    """One session's share of an identity: a `TokenSource`."""

    def __init__(self, table: Identities, key: bytes, login: Login, closes: Closable | None = None) -> None:
        self._table = table
        self._key = key
        self._login: Login | None = login
        self._closes = closes
        self.identity = table.enter(key, login)

    async def token(self) -> SecretBytes:
        return (await self.identity.held()).token

    async def renewed(self, rejected: SecretBytes | None) -> SecretBytes | None:
        held = await (self.identity.held() if rejected is None else self.identity.replaced(rejected))
        return None if held is None else held.token

    async def close(self) -> None:
        if self._login is not None:
            login, self._login = self._login, None
            try:
                await self._table.exit(self._key, self.identity, login)
            finally:
                if self._closes is not None:
                    await self._closes.close()


class Identities:
    """The identities of one process. Their number is bounded by that of the sessions that use them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._entries: dict[bytes, Identity] = {}
        self._refusals = Refusals()

    def __len__(self) -> int:
        return len(self._entries)

    def join(self, key: bytes, login: Login, closes: Closable | None = None) -> SharedToken:
        """Share the token of an identity with one more session; `closes` is closed with that session's share."""
        return SharedToken(self, key, login, closes)

    def enter(self, key: bytes, login: Login) -> Identity:
        """Add a session to the identity with that key."""
        identity = self._entries.get(key)
        if identity is None:
            identity = self._entries[key] = Identity(key, self._clock, self._refusals)
        identity.join(login)
        return identity

    async def exit(self, key: bytes, identity: Identity, login: Login) -> None:
        """Remove a session.

        An identity without sessions is dropped first, so that no new session gets a token that is being revoked.
        """
        if identity.leave(login) and self._entries.get(key) is identity:
            del self._entries[key]
        await identity.finish(login)


def shared_identities(clock: Clock) -> Identities:
    """Return the identities that all sessions of the process share."""
    return shared_table("vault.identities", clock, lambda: Identities(clock))
