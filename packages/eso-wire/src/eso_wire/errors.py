"""Provider failures as a closed list of reasons, and the exception that carries them.

    ProviderError(reason, message, retry, ...)    call level: raised; item level: a value inside a result

A provider raises it, the wire carries it (`codec.py`), the operator catches it. The message is for users: what failed,
which key, what to do; never a value.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ErrorReason(StrEnum):
    """Why an item or a call failed. The names are those of the wire without the prefix."""

    UNSPECIFIED = "UNSPECIFIED"
    SECRET_NOT_FOUND = "SECRET_NOT_FOUND"  # noqa: S105 - a reason, not a credential
    PROPERTY_NOT_FOUND = "PROPERTY_NOT_FOUND"
    VERSION_NOT_FOUND = "VERSION_NOT_FOUND"
    CONFIG_NOT_FOUND = "CONFIG_NOT_FOUND"
    CONFIG_INVALID = "CONFIG_INVALID"
    CREDENTIALS_NOT_FOUND = "CREDENTIALS_NOT_FOUND"
    CREDENTIALS_REJECTED = "CREDENTIALS_REJECTED"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    NAMESPACE_DENIED = "NAMESPACE_DENIED"
    ALREADY_EXISTS = "ALREADY_EXISTS"
    OWNERSHIP_CONFLICT = "OWNERSHIP_CONFLICT"
    PRECONDITION_FAILED = "PRECONDITION_FAILED"
    UNSUPPORTED_OPERATION = "UNSUPPORTED_OPERATION"
    UNSUPPORTED_KIND = "UNSUPPORTED_KIND"
    PROTOCOL_INCOMPATIBLE = "PROTOCOL_INCOMPATIBLE"
    RATE_LIMITED = "RATE_LIMITED"
    BACKEND_UNAVAILABLE = "BACKEND_UNAVAILABLE"
    BACKEND_TIMEOUT = "BACKEND_TIMEOUT"
    BACKEND_ERROR = "BACKEND_ERROR"
    INVALID_REQUEST = "INVALID_REQUEST"
    PAYLOAD_TOO_LARGE = "PAYLOAD_TOO_LARGE"
    INTERNAL = "INTERNAL"


class RetryClass(StrEnum):
    """Whether a retry can help."""

    UNSPECIFIED = "UNSPECIFIED"
    NEVER = "NEVER"
    BACKOFF = "BACKOFF"
    AFTER_CHANGE = "AFTER_CHANGE"


NOT_FOUND_REASONS = frozenset(
    {ErrorReason.SECRET_NOT_FOUND, ErrorReason.PROPERTY_NOT_FOUND, ErrorReason.VERSION_NOT_FOUND}
)

_RETRY_OF: dict[ErrorReason, RetryClass] = {
    ErrorReason.RATE_LIMITED: RetryClass.BACKOFF,
    ErrorReason.BACKEND_UNAVAILABLE: RetryClass.BACKOFF,
    ErrorReason.BACKEND_TIMEOUT: RetryClass.BACKOFF,
    ErrorReason.BACKEND_ERROR: RetryClass.BACKOFF,
    ErrorReason.INTERNAL: RetryClass.BACKOFF,
    ErrorReason.UNSPECIFIED: RetryClass.BACKOFF,
    ErrorReason.PERMISSION_DENIED: RetryClass.BACKOFF,
    ErrorReason.OWNERSHIP_CONFLICT: RetryClass.BACKOFF,
    ErrorReason.PRECONDITION_FAILED: RetryClass.BACKOFF,
    ErrorReason.INVALID_REQUEST: RetryClass.NEVER,
    ErrorReason.PAYLOAD_TOO_LARGE: RetryClass.NEVER,
}


def retry_of(reason: ErrorReason) -> RetryClass:
    """Return the retry class of a reason for which the sender gives none."""
    return _RETRY_OF.get(reason, RetryClass.AFTER_CHANGE)


@dataclass(frozen=True, slots=True)
class Subject:
    """The object an error is about."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    generation: int = 0


class ProviderError(Exception):
    """A call or an item failed. `retry_after` is in seconds; 0 means unspecified."""

    def __init__(
        self,
        reason: ErrorReason,
        message: str,
        *,
        retry: RetryClass = RetryClass.UNSPECIFIED,
        retry_after: float = 0.0,
        backend_code: str = "",
        subject: Subject | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.retry = retry if retry is not RetryClass.UNSPECIFIED else retry_of(reason)
        self.retry_after = retry_after
        self.backend_code = backend_code
        self.subject = subject

    @property
    def is_not_found(self) -> bool:
        """Return whether the backend reported that the remote key, property or version does not exist."""
        return self.reason in NOT_FOUND_REASONS

    def __eq__(self, other: object) -> bool:
        """Compare by content, because errors travel as values inside results."""
        return isinstance(other, ProviderError) and type(other) is type(self) and self._content() == other._content()

    def __hash__(self) -> int:
        return hash(self._content())

    def _content(self) -> tuple[object, ...]:
        return (self.reason, self.message, self.retry, self.retry_after, self.backend_code, self.subject)
