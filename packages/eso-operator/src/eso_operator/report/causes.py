"""Errors of providers in one word, for the reasons of conditions."""

from __future__ import annotations

from typing import Final

from eso_operator.certificates.problems import CertificateError
from eso_operator.providers.errors import effect_of, is_infrastructure
from eso_wire.errors import ErrorReason, ProviderError

_UNREACHABLE: Final = "ProviderUnreachable"
_NO_ANSWER: Final = "ProviderTimeout"


def cause_of(error: ProviderError) -> str:
    """Return the reason of a condition: the failure on the way to the provider, or the provider's own error."""
    if isinstance(error, CertificateError):
        return error.problem.name.value
    if is_infrastructure(error):
        silent = error.reason is ErrorReason.BACKEND_TIMEOUT
        return error.backend_code or (_NO_ANSWER if silent else _UNREACHABLE)
    reason = effect_of(error).reason
    return _camel(error.reason) if reason == "SecretSyncedError" else reason


def _camel(reason: ErrorReason) -> str:
    return "".join(word.capitalize() for word in reason.value.split("_"))
