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
import base64
import hashlib
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from eso_api.references import SecretKeySelector
from eso_api.values import SecretBytes
from eso_sdk.backend import Backend
from eso_sdk.errors import invalid_config
from eso_sdk.processwide import shared_table
from eso_wire.errors import ErrorReason, ProviderError
from kubebase.bounded import BoundedDict
from kubebase.clock import Clock
from kubebase.deadline import Deadline

# --- Remember refused logins, so that wrong credentials neither hammer the server nor lock an account ----------------


MAX_REFUSALS: Final = 1024

REFUSALS: Final = frozenset(
    {
        ErrorReason.CREDENTIALS_REJECTED,
        ErrorReason.PERMISSION_DENIED,
        ErrorReason.CONFIG_INVALID,
        ErrorReason.BACKEND_ERROR,
    }
)
"""Errors that the same credentials will get again.

All other errors may be transient, and the operator backs off for them.
"""


@dataclass(frozen=True, slots=True)
class Pauses:
    """Seconds between login attempts with credentials that were refused; doubles from the first to the longest."""

    first: float = 5.0
    longest: float = 60.0

    def after(self, failures: int) -> float:
        return min(self.first * 2.0 ** min(failures - 1, 32), self.longest)


@dataclass(slots=True)
class _Refusal:
    failures: int
    until: float
    error: ProviderError


class Refusals:
    """The refused logins of one process, by identity and credentials. Bounded: the oldest is forgotten first."""

    def __init__(self) -> None:
        self._known: BoundedDict[bytes, _Refusal] = BoundedDict(MAX_REFUSALS)

    def check(self, key: bytes, now: float) -> None:
        """Raise the last refusal again while its pause lasts."""
        known = self._known.get(key)
        if known is not None and now < known.until:
            error = known.error  # its message stays the same, so that conditions do not change with every attempt
            wait = max(known.until - now, 1.0)
            raise ProviderError(error.reason, error.message, backend_code=error.backend_code, retry_after=wait)

    def add(self, key: bytes, error: ProviderError, pauses: Pauses, now: float) -> None:
        known = self._known.pop(key, None)
        failures = 1 if known is None else known.failures + 1
        self._known[key] = _Refusal(failures, now + pauses.after(failures), error)

    def forget(self, key: bytes) -> None:
        self._known.pop(key, None)


# --- Short-lived tokens of one identity ------------------------------------------------------------------------------


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


# --- The body of a login: texts of credentials, and bodies that stay the same ----------------------------------------
#
# key = text(self, auth.key_ref, "/auth/keyRef")        raises invalid_config if the value cannot be a credential
# body = fixed({"key": key})                            for a form of login that makes no body of its own


Body = Mapping[str, Any]
MakeBody = Callable[[], Awaitable[Body]]


def text(backend: Backend[Any], reference: SecretKeySelector | None, field: str) -> str:
    """Return a part of the credentials, without the line break that editors leave at its end."""
    if reference is None or not reference.name:
        raise invalid_config(field, "is needed: name the Secret and the key")
    try:
        found = backend.secret(reference).reveal().decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise invalid_config(field, "names a value that is not UTF-8 text") from None
    if not found:
        raise invalid_config(field, "names an empty value")
    return found


def optional_text(backend: Backend[Any], reference: SecretKeySelector | None, field: str) -> str:
    """Return a part of the credentials as `text` does, and an empty text if none is named."""
    return text(backend, reference, field) if reference is not None and reference.name else ""


def fixed(body: Body) -> MakeBody:
    """Return a maker of a body that does not change."""

    async def make() -> Body:
        return body

    return make


# --- How requests to a REST backend prove who sends them: fixed headers, or the token of a login ---------------------


class Authorization(Protocol):
    """The headers that authorize requests of one identity."""

    @property
    def proof(self) -> bytes:
        """Return a digest of the identity. Sessions with equal proofs share connections and limits."""
        ...

    @property
    def logs_in(self) -> bool:
        """Return whether a login judges the credentials. Then a 401 to a new token is about one resource."""
        ...

    async def headers(self) -> Mapping[str, str]: ...

    async def replace(self, rejected: Mapping[str, str]) -> bool:
        """Replace headers that the backend rejected; return whether another attempt makes sense."""
        ...


class FixedHeaders:
    """Headers that do not change while the store is open."""

    logs_in = False

    def __init__(self, headers: Mapping[str, str] | None = None) -> None:
        self._headers = dict(headers or {})
        self.proof = digest(*(part for pair in sorted(self._headers.items()) for part in pair))

    def __repr__(self) -> str:
        return "<FixedHeaders>"

    async def headers(self) -> Mapping[str, str]:
        return self._headers

    async def replace(self, rejected: Mapping[str, str]) -> bool:
        del rejected
        return False


class LoginHeaders:
    """Headers made from the token of a login."""

    logs_in = True

    def __init__(self, login: Login, proof: bytes, headers_of: Callable[[SecretBytes], Mapping[str, str]]) -> None:
        self._login = login
        self._headers_of = headers_of
        self._used: SecretBytes | None = None
        self.proof = proof

    def __repr__(self) -> str:
        return "<LoginHeaders>"

    async def headers(self) -> Mapping[str, str]:
        self._used = await self._login.token()
        return self._headers_of(self._used)

    async def replace(self, rejected: Mapping[str, str]) -> bool:
        """Log in again, unless the rejected headers were replaced meanwhile."""
        used = self._used
        if used is None or dict(self._headers_of(used)) != dict(rejected):
            return True
        return await self._login.replace(used)


def bearer(token: SecretBytes, field: str = "/auth") -> dict[str, str]:
    """Return the header for a bearer token. `field` names the place of the token in the configuration."""
    return {"Authorization": f"Bearer {header_text(token, field)}"}


def basic(user: SecretBytes, password: SecretBytes) -> dict[str, str]:
    """Return the header for a user and a password."""
    pair = user.reveal() + b":" + password.reveal()
    return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}


def header_text(token: SecretBytes, field: str = "/auth") -> str:
    """Return a token for use in a header; raise if it is empty or has characters that no token has."""
    text = token.reveal().decode("ascii", "replace")
    if not text or not text.isprintable() or " " in text or "\ufffd" in text:
        raise invalid_config(
            field, "the token is empty, or has a blank, a line break or a character that no token has; check the Secret"
        )
    return text


def digest(*parts: str | bytes) -> bytes:
    """Digest parts so that no two lists of parts are mistaken for each other. It never leaves the process."""
    made = hashlib.sha256()
    for part in parts:
        raw = part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part
        made.update(len(raw).to_bytes(8, "big") + raw)
    return made.digest()
