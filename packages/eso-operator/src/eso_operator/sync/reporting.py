"""What controllers have in common when they tell people about an object."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from eso_operator.certs.problems import CertificateError
from eso_operator.providers.errors import effect_of, is_infrastructure
from eso_wire.errors import ErrorReason, ProviderError
from kuberun.clock import rfc3339
from kuberun.events import EventType

READY: Final = "Ready"

_UNREACHABLE: Final = "ProviderUnreachable"
_NO_ANSWER: Final = "ProviderTimeout"
_SOON: Final = 30.0


@dataclass(frozen=True, slots=True)
class News:
    """An event to record."""

    type: EventType
    reason: str
    message: str


def next_attempt(now: datetime, within: float) -> str | None:
    """Who looks at an object that is tried again in a moment need not know when; it would cost a write each time."""
    return rfc3339(now + timedelta(seconds=within)) if within >= _SOON else None


def cause_of(error: ProviderError) -> str:
    """The cause in one word, as a condition's reason: what broke on the way to the provider, or what it answered."""
    if isinstance(error, CertificateError):
        return error.problem.name.value
    if is_infrastructure(error):
        silent = error.reason is ErrorReason.BACKEND_TIMEOUT
        return error.backend_code or (_NO_ANSWER if silent else _UNREACHABLE)
    reason = effect_of(error).reason
    return _camel(error.reason) if reason == "SecretSyncedError" else reason


def _camel(reason: ErrorReason) -> str:
    return "".join(word.capitalize() for word in reason.value.split("_"))
