"""Errors of calls to providers, and their effect on stores and conditions.

    ProviderError                      an error of the provider, from the wire (eso_wire.errors)
    ├── TransportError                 the provider was not reached (eso_wire.status)
    ├── CertificateError               the certificates for the call are missing (certificates.problems)
    ├── IncompatibleError              the provider speaks no version of the protocol that this operator speaks
    └── NoResponseError                  the provider was reached, but did not respond before the deadline

Controllers use `effect_of`, which has one row for each reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from eso_operator.certificates.problems import CertificateError, ProblemName
from eso_wire.errors import ErrorReason, ProviderError, RetryClass
from eso_wire.probe import TlsProblemKind
from eso_wire.status import TransportError
from eso_wire.values import Handshake
from eso_wire.versions import ProtocolVersion, spelled

LONGEST_WAIT: Final = 3600.0
"""The longest `retry_after` that a provider can demand; a longer one may be a mistake or malicious."""

_PASSING: Final = frozenset({ErrorReason.RATE_LIMITED, ErrorReason.BACKEND_UNAVAILABLE, ErrorReason.BACKEND_TIMEOUT})

UNSURE: Final = frozenset({ErrorReason.BACKEND_TIMEOUT, ErrorReason.BACKEND_UNAVAILABLE, ErrorReason.INTERNAL})
"""Errors after which a call may still have had its effect, because only the response was lost."""

_START_PROBLEMS: Final = frozenset(
    {"", TlsProblemKind.DNS_FAILURE.value, TlsProblemKind.REFUSED.value, TlsProblemKind.TIMEOUT.value}
)
"""Findings of the probe at an address where a provider does not listen yet."""


class StoreHealth(StrEnum):
    """The effect of a failed call on its store."""

    UNAFFECTED = "unaffected"
    NOT_READY = "not ready"
    """The store cannot work without a change; its gate closes."""
    THROTTLED = "throttled"
    UNREACHABLE = "unreachable"
    """The failure counts towards breaker and gate."""
    INCOMPATIBLE = "incompatible"
    """The class is not ready either."""


@dataclass(frozen=True, slots=True)
class Effect:
    """The effect of one error; `reason` is that of the condition."""

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

DEFAULT_MESSAGES: dict[ErrorReason, str] = {
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
    ErrorReason.OWNERSHIP_CONFLICT: "the remote key belongs to another owner",
    ErrorReason.PRECONDITION_FAILED: "the remote key is not in the expected state",
    ErrorReason.UNSUPPORTED_OPERATION: "the provider cannot do this",
    ErrorReason.UNSUPPORTED_KIND: "the provider does not serve this kind",
    ErrorReason.PROTOCOL_INCOMPATIBLE: "the provider speaks no version of the protocol that this operator speaks",
    ErrorReason.RATE_LIMITED: "the backend limits the rate of calls",
    ErrorReason.BACKEND_UNAVAILABLE: "the backend is not reached",
    ErrorReason.BACKEND_TIMEOUT: "the backend did not answer in time",
    ErrorReason.BACKEND_ERROR: "the backend failed",
    ErrorReason.INVALID_REQUEST: "the provider does not accept the request",
    ErrorReason.PAYLOAD_TOO_LARGE: "it is too large",
    ErrorReason.INTERNAL: "the provider failed",
}
"""Messages for errors that have none."""


def effect_of(error: ProviderError) -> Effect:
    """Return the effect of an error."""
    return EFFECTS[error.reason]


class NoResponseError(ProviderError):
    """The provider took the call, but did not respond in time."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorReason.BACKEND_TIMEOUT, message)


def is_infrastructure(error: ProviderError) -> bool:
    """Return whether the provider did not respond at all, as opposed to responding with an error."""
    return isinstance(error, TransportError | NoResponseError)


def may_be_starting(error: ProviderError) -> bool:
    """Return whether a provider that is being started fails in this way: no certificates, no address, no listener."""
    if isinstance(error, CertificateError):
        return error.problem.name is ProblemName.NOT_ISSUED
    if isinstance(error, TransportError):
        return error.backend_code in _START_PROBLEMS
    return isinstance(error, NoResponseError)


def invalid_response(label: str, what: str) -> ProviderError:
    """Return the error for a response that breaks the protocol. `what` must not quote it."""
    return ProviderError(
        ErrorReason.INTERNAL, f"provider {label} sent an invalid response: {what}; this is a defect of the provider"
    )


def overloaded(label: str, waiting: int) -> ProviderError:
    """Return the error for a full queue in the operator; the provider was not called."""
    return ProviderError(ErrorReason.BACKEND_UNAVAILABLE, f"{waiting} calls already wait for provider {label}")


class IncompatibleError(ProviderError):
    """Operator and provider share no version. `handshake` names the kinds that the provider would serve."""

    def __init__(self, message: str, handshake: Handshake) -> None:
        super().__init__(ErrorReason.PROTOCOL_INCOMPATIBLE, message)
        self.handshake = handshake


def incompatible(label: str, handshake: Handshake, ours: Sequence[ProtocolVersion]) -> ProviderError:
    disjoint = set(ours).isdisjoint(handshake.supported)
    if disjoint:
        advice = "upgrade the older of the two"
    else:
        advice = "it selected none that both speak; this is a defect of the provider"
    message = (
        f"provider {label} ({handshake.provider_name} {handshake.provider_version}) speaks protocol"
        f" {spelled(handshake.supported)}, this operator speaks {spelled(ours)}: {advice}"
    )
    if disjoint:
        return IncompatibleError(message, replace(handshake, selected=None))
    return ProviderError(ErrorReason.PROTOCOL_INCOMPATIBLE, message)


def other_major(label: str, ours: Sequence[ProtocolVersion]) -> ProviderError:
    """Return the error for a provider that does not know the handshake: each major has its own."""
    return ProviderError(
        ErrorReason.PROTOCOL_INCOMPATIBLE,
        f"provider {label} does not answer the handshake of protocol {max(ours).major}, so it speaks another major"
        f" version; this operator speaks {spelled(ours)}: upgrade the older of the two",
    )


def restated(
    error: ProviderError,
    *,
    message: str | None = None,
    backend_code: str | None = None,
    retry_after: float | None = None,
) -> ProviderError:
    """Return a copy of an error with a bounded `retry_after`: one exception must not be raised to several callers.

    All errors of providers pass here; an error without a message gets one.
    """
    text = error.message if message is None else message
    text = text if text.strip() else f"{DEFAULT_MESSAGES[error.reason]}; the provider says no more"
    code = error.backend_code if backend_code is None else backend_code
    if isinstance(error, CertificateError):
        copy: ProviderError = CertificateError(error.problem)
        copy.message, copy.args, copy.backend_code = text, (text,), code
    elif isinstance(error, TransportError):
        copy = TransportError(error.cause)
        copy.message, copy.args, copy.backend_code = text, (text,), code
    elif isinstance(error, NoResponseError):
        copy = NoResponseError(text)
    else:
        copy = ProviderError(error.reason, text, backend_code=code, subject=error.subject)
    copy.retry = error.retry
    copy.retry_after = min(error.retry_after if retry_after is None else retry_after, LONGEST_WAIT)
    return copy


def is_transient(error: ProviderError | None) -> bool:
    """Return whether one item of a response is worth a retry: the backend throttled it, was down or did not respond.

    Other errors of items are results of the backend, such as a value without the expected form.
    """
    return error is not None and error.reason in _PASSING and error.retry is RetryClass.BACKOFF


def is_retryable(error: ProviderError) -> bool:
    """Return whether the same call is likely to succeed within seconds."""
    slow = {ErrorReason.PERMISSION_DENIED, ErrorReason.OWNERSHIP_CONFLICT, ErrorReason.PRECONDITION_FAILED}
    return error.retry is RetryClass.BACKOFF and (error.reason not in slow or error.retry_after > 0)


_PROVIDER_UNREACHABLE: Final = "ProviderUnreachable"
_PROVIDER_TIMEOUT: Final = "ProviderTimeout"


def cause_of(error: ProviderError) -> str:
    """Return the reason of a condition: the failure on the way to the provider, or the provider's own error."""
    if isinstance(error, CertificateError):
        return error.problem.name.value
    if is_infrastructure(error):
        silent = error.reason is ErrorReason.BACKEND_TIMEOUT
        return error.backend_code or (_PROVIDER_TIMEOUT if silent else _PROVIDER_UNREACHABLE)
    reason = effect_of(error).reason
    return _camel(error.reason) if reason == "SecretSyncedError" else reason


def _camel(reason: ErrorReason) -> str:
    return "".join(word.capitalize() for word in reason.value.split("_"))
