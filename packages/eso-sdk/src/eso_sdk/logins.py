"""Short-lived tokens of one identity: all sessions that log in as the same identity share one token.

    login = join_login(proof, clock, self._log_in)      in `open`
    token = await login.token()                          for each request
    login.leave(self._log_in)                            in `close`

|                       | a call                                                |
|-----------------------|-------------------------------------------------------|
| the token is fresh    | uses it                                               |
| it expires soon       | waits for a new one; if that fails, uses the old one  |
| no token, or expired  | waits for the one login in progress                   |
| the last login failed | gets its error again until a pause is over            |

A backend can reject a token for one resource only. `replace` then logs in once, to find out whether the token expired;
all other calls keep the token meanwhile, and further rejections within a minute cause no login.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from eso_api.values import SecretBytes
from eso_sdk.processwide import shared_table
from eso_sdk.refusals import REFUSALS, Pauses, Refusals
from eso_wire.errors import ErrorReason, ProviderError
from kubebase.clock import Clock
from kubebase.deadline import Deadline

LOGIN_SECONDS: Final = 20.0
RENEW_AHEAD: Final = 60.0
"""A token is replaced when less of its life is left; a short one when less than a third is left."""
SHORTEST_LIFE: Final = 30.0
"""Shorter lives, also negative ones, come from clocks that differ; the identity must not log in with every call."""
REPLACE_PAUSE: Final = 60.0
"""Tokens that the backend rejects are replaced at most this often."""
REFUSED: Final = Pauses(first=60.0, longest=60.0)
"""Rejected credentials cost one call a minute: small services count failures against their rate limits."""


@dataclass(frozen=True, slots=True)
class Grant:
    """A token as the backend granted it, and its life in seconds."""

    token: SecretBytes
    seconds: float = math.inf


LogIn = Callable[[], Awaitable[Grant]]
"""Obtains a token with the credentials of one session."""


@dataclass(frozen=True, slots=True)
class _Held:
    token: SecretBytes
    renew_at: float
    ends_at: float


class Login:
    """One identity. It logs in with the credentials of the session that joined last."""

    def __init__(self, proof: bytes, clock: Clock, refusals: Refusals) -> None:
        self._proof = proof
        self._clock = clock
        self._refusals = refusals
        self._sessions: list[LogIn] = []
        self._held: _Held | None = None
        self._replaced_at = -math.inf
        self._replace_error: ProviderError | None = None
        self._lock = asyncio.Lock()

    def __repr__(self) -> str:
        return "<Login>"

    def join(self, log_in: LogIn) -> None:
        self._sessions.append(log_in)

    def leave(self, log_in: LogIn) -> None:
        """Take a session out. The last one drops the token: it expires on its own."""
        if log_in in self._sessions:
            self._sessions.remove(log_in)
        if not self._sessions:
            self._held = None
            _logins(self._clock).pop(self._proof, None)

    async def token(self) -> SecretBytes:
        """Return a token that is valid as far as we know."""
        if (held := self._fresh()) is not None:
            return held
        async with self._lock:
            return self._fresh() or await self._obtain()

    async def replace(self, rejected: SecretBytes) -> bool:
        """Log in anew for a token that the backend rejected; return whether there is another one now.

        If there is none, a login has just succeeded: the credentials are good, and the rejection is about one resource.
        """
        async with self._lock:
            held, now = self._held, self._clock.monotonic()
            if held is None or held.token != rejected:
                return True
            if now - self._replaced_at < REPLACE_PAUSE:
                if (failed := self._replace_error) is not None:
                    raise ProviderError(failed.reason, failed.message, backend_code=failed.backend_code)
                return False
            self._replaced_at, self._replace_error = now, None
            try:
                await self._log_in()
            except ProviderError as failed:
                self._replace_error = failed
                if failed.reason in REFUSALS:
                    self._held = None
                raise
            return True

    def _fresh(self) -> SecretBytes | None:
        held = self._held
        return held.token if held is not None and self._clock.monotonic() < held.renew_at else None

    async def _obtain(self) -> SecretBytes:
        """Return a new token; the old one while it is valid, if no new one can be obtained."""
        try:
            return await self._log_in()
        except ProviderError:
            held = self._held
            if held is None or held.ends_at <= self._clock.monotonic():
                raise
            return held.token

    async def _log_in(self) -> SecretBytes:
        """Log in, unless that was refused lately; remember the token or the refusal."""
        now = self._clock.monotonic()
        try:
            self._refusals.check(self._proof, now)
            async with Deadline(self._clock, LOGIN_SECONDS):
                grant = await self._sessions[-1]()
        except TimeoutError:
            raise ProviderError(ErrorReason.BACKEND_TIMEOUT, "the login did not end in time") from None
        except ProviderError as failed:
            if failed.reason in REFUSALS and not failed.retry_after:
                self._refusals.add(self._proof, failed, REFUSED, now)
            raise
        self._refusals.forget(self._proof)
        now = self._clock.monotonic()
        life = max(grant.seconds, SHORTEST_LIFE)
        self._held = _Held(grant.token, now + life - min(RENEW_AHEAD, life / 3), now + life)
        return grant.token


def join_login(proof: bytes, clock: Clock, log_in: LogIn) -> Login:
    """Return the identity with this proof: a digest of everything that determines who logs in where, and how."""
    logins = _logins(clock)
    if proof not in logins:
        refusals = shared_table("eso_sdk.logins.refusals", clock, Refusals)
        logins[proof] = Login(proof, clock, refusals)
    logins[proof].join(log_in)
    return logins[proof]


def _logins(clock: Clock) -> dict[bytes, Login]:
    """Return the identities of this process. Each belongs to an open session, and sessions are bounded."""
    return shared_table("eso_sdk.logins", clock, dict[bytes, Login])
