"""What a provider's error means to a store and its users, and the errors the operator's own end raises.

    ProviderError                      as the wire carries it (eso_wire.errors)
    ├── TransportError                 the process was not reached (eso_wire.status)
    ├── CertificateError               it could not even be tried (certs.problems)
    └── NoAnswerError                  it was reached and stayed silent until the deadline

Controllers do not look at reasons: they ask `effect_of`, one row for each reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from eso_operator.certs.problems import CertificateError
from eso_wire.errors import ErrorReason, ProviderError, RetryClass
from eso_wire.status import TransportError
from eso_wire.values import Handshake
from eso_wire.versions import ProtocolVersion, spelled

LONGEST_WAIT: Final = 3600.0
"""However long a provider asks to be left alone, nobody is put off for longer: it may be mistaken, or malicious."""


class StoreHealth(StrEnum):
    """What a failed call says about the store it was made for."""

    UNAFFECTED = "unaffected"
    NOT_READY = "not ready"
    """The store cannot work as it is; its gate closes."""
    THROTTLED = "throttled"
    UNREACHABLE = "unreachable"
    """Counts toward breaker and gate."""
    INCOMPATIBLE = "incompatible"
    """The class is not ready either."""


@dataclass(frozen=True, slots=True)
class Effect:
    """What controllers make of one error: `reason` is the condition's."""

    store_health: StoreHealth
    reason: str


_SYNC_FAILED = "SecretSyncedError"
_ABSENT = Effect(StoreHealth.UNAFFECTED, _SYNC_FAILED)
_BAD_CONFIG = Effect(StoreHealth.NOT_READY, "InvalidProviderConfig")
_NO_ACCESS = Effect(StoreHealth.NOT_READY, "AuthenticationFailed")
_CONFLICT = Effect(StoreHealth.UNAFFECTED, "Conflict")
_UNREACHABLE = Effect(StoreHealth.UNREACHABLE, _SYNC_FAILED)
_FAILED = Effect(StoreHealth.UNAFFECTED, _SYNC_FAILED)
_BAD_REQUEST = Effect(StoreHealth.UNAFFECTED, "InvalidSpec")
_INCOMPATIBLE = Effect(StoreHealth.INCOMPATIBLE, "ProviderIncompatible")

EFFECTS: dict[ErrorReason, Effect] = {
    ErrorReason.UNSPECIFIED: _FAILED,
    ErrorReason.SECRET_NOT_FOUND: _ABSENT,
    ErrorReason.PROPERTY_NOT_FOUND: _ABSENT,
    ErrorReason.VERSION_NOT_FOUND: _ABSENT,
    ErrorReason.CONFIG_NOT_FOUND: _BAD_CONFIG,
    ErrorReason.CONFIG_INVALID: _BAD_CONFIG,
    ErrorReason.CREDENTIALS_NOT_FOUND: _NO_ACCESS,
    ErrorReason.CREDENTIALS_REJECTED: _NO_ACCESS,
    ErrorReason.PERMISSION_DENIED: Effect(StoreHealth.UNAFFECTED, "AccessDenied"),
    ErrorReason.NAMESPACE_DENIED: Effect(StoreHealth.UNAFFECTED, "NamespaceDenied"),
    ErrorReason.ALREADY_EXISTS: Effect(StoreHealth.UNAFFECTED, "SecretAlreadyExists"),
    ErrorReason.OWNERSHIP_CONFLICT: _CONFLICT,
    ErrorReason.PRECONDITION_FAILED: _CONFLICT,
    ErrorReason.UNSUPPORTED_OPERATION: Effect(StoreHealth.UNAFFECTED, "NotImplemented"),
    ErrorReason.UNSUPPORTED_KIND: _INCOMPATIBLE,
    ErrorReason.PROTOCOL_INCOMPATIBLE: _INCOMPATIBLE,
    ErrorReason.RATE_LIMITED: Effect(StoreHealth.THROTTLED, _SYNC_FAILED),
    ErrorReason.BACKEND_UNAVAILABLE: _UNREACHABLE,
    ErrorReason.BACKEND_TIMEOUT: _UNREACHABLE,
    ErrorReason.BACKEND_ERROR: _FAILED,
    ErrorReason.INVALID_REQUEST: _BAD_REQUEST,
    ErrorReason.PAYLOAD_TOO_LARGE: _BAD_REQUEST,
    ErrorReason.INTERNAL: _FAILED,
}

WORDS: dict[ErrorReason, str] = {
    ErrorReason.UNSPECIFIED: "it failed",
    ErrorReason.SECRET_NOT_FOUND: "the backend has no such key",
    ErrorReason.PROPERTY_NOT_FOUND: "the key is there, and has no such property",
    ErrorReason.VERSION_NOT_FOUND: "the key is there, and has no such version",
    ErrorReason.CONFIG_NOT_FOUND: "the configuration of the store is not there",
    ErrorReason.CONFIG_INVALID: "the configuration of the store is wrong",
    ErrorReason.CREDENTIALS_NOT_FOUND: "a credential that the configuration refers to is missing",
    ErrorReason.CREDENTIALS_REJECTED: "the backend does not accept the credentials",
    ErrorReason.PERMISSION_DENIED: "the credentials do not allow this",
    ErrorReason.NAMESPACE_DENIED: "credentials of this namespace may not be used here",
    ErrorReason.ALREADY_EXISTS: "it exists already",
    ErrorReason.OWNERSHIP_CONFLICT: "what is there belongs to somebody else",
    ErrorReason.PRECONDITION_FAILED: "what is there is not what was expected",
    ErrorReason.UNSUPPORTED_OPERATION: "the provider cannot do this",
    ErrorReason.UNSUPPORTED_KIND: "the provider does not serve this kind",
    ErrorReason.PROTOCOL_INCOMPATIBLE: "the provider speaks no version of the protocol that this operator speaks",
    ErrorReason.RATE_LIMITED: "the backend wants to be asked less often",
    ErrorReason.BACKEND_UNAVAILABLE: "the backend is not reached",
    ErrorReason.BACKEND_TIMEOUT: "the backend did not answer in time",
    ErrorReason.BACKEND_ERROR: "the backend failed",
    ErrorReason.INVALID_REQUEST: "what was asked for makes no sense to the provider",
    ErrorReason.PAYLOAD_TOO_LARGE: "it is too large",
    ErrorReason.INTERNAL: "the provider failed",
}
"""What to tell users of an error whose sender found no words for it."""


def effect_of(error: ProviderError) -> Effect:
    """What to do about an error."""
    return EFFECTS[error.reason]


class NoAnswerError(ProviderError):
    """The provider took the call and gave no answer in time."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorReason.BACKEND_TIMEOUT, message)


def is_infrastructure(error: ProviderError) -> bool:
    """Whether the provider process failed to answer, as opposed to answering with an error."""
    return isinstance(error, TransportError | NoAnswerError)


def answered_wrongly(label: str, what: str) -> ProviderError:
    """An answer that breaks the protocol. Nothing of the answer itself is repeated."""
    return ProviderError(
        ErrorReason.INTERNAL, f"provider {label} answered wrongly: {what}; this is a defect of the provider"
    )


def overloaded(label: str, waiting: int) -> ProviderError:
    """The operator's own queue is full; the provider was not asked."""
    return ProviderError(ErrorReason.BACKEND_UNAVAILABLE, f"{waiting} calls already wait for provider {label}")


def incompatible(label: str, handshake: Handshake, ours: Sequence[ProtocolVersion]) -> ProviderError:
    if set(ours).isdisjoint(handshake.supported):
        advice = "upgrade the older of the two"
    else:
        advice = "it selected none that both speak; this is a defect of the provider"
    return ProviderError(
        ErrorReason.PROTOCOL_INCOMPATIBLE,
        f"provider {label} ({handshake.provider_name} {handshake.provider_version}) speaks protocol"
        f" {spelled(handshake.supported)}, this operator speaks {spelled(ours)}: {advice}",
    )


def restated(
    error: ProviderError,
    *,
    message: str | None = None,
    backend_code: str | None = None,
    retry_after: float | None = None,
) -> ProviderError:
    """An equal error of its own, within our bounds: one exception object must not be raised to several callers.

    Every error of a provider passes here; one without words gets some.
    """
    text = error.message if message is None else message
    text = text if text.strip() else f"{WORDS[error.reason]}; the provider says no more"
    code = error.backend_code if backend_code is None else backend_code
    if isinstance(error, CertificateError):
        copy: ProviderError = CertificateError(error.problem)
        copy.message, copy.args, copy.backend_code = text, (text,), code
    elif isinstance(error, TransportError):
        copy = TransportError(error.cause)
        copy.message, copy.args, copy.backend_code = text, (text,), code
    elif isinstance(error, NoAnswerError):
        copy = NoAnswerError(text)
    else:
        copy = ProviderError(error.reason, text, backend_code=code, subject=error.subject)
    copy.retry = error.retry
    copy.retry_after = min(error.retry_after if retry_after is None else retry_after, LONGEST_WAIT)
    return copy


def heals_by_itself(error: ProviderError) -> bool:
    """Whether the same call may well succeed within seconds."""
    slow = {ErrorReason.PERMISSION_DENIED, ErrorReason.OWNERSHIP_CONFLICT, ErrorReason.PRECONDITION_FAILED}
    return error.retry is RetryClass.BACKOFF and (error.reason not in slow or error.retry_after > 0)
