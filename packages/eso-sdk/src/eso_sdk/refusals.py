"""Remember refused logins, so that wrong credentials neither hammer the server nor lock an account."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from eso_wire.errors import ErrorReason, ProviderError
from kubebase.bounded import BoundedDict

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
