"""The problems of certificates by name. Conditions show the names as reasons.

Names that a TLS probe uses too (ServerCertExpired, UnknownCA, HostnameMismatch) mean the same here: the probe saw it on
the wire, we saw it in the Secret.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from eso_wire.errors import ErrorReason, ProviderError, RetryClass


class ProblemName(StrEnum):
    SERVER_CERT_EXPIRED = "ServerCertExpired"
    CLIENT_CERT_EXPIRED = "ClientCertExpired"
    AUTHORITY_EXPIRED = "AuthorityExpired"
    NOT_YET_VALID = "NotYetValid"
    UNKNOWN_CA = "UnknownCA"
    HOSTNAME_MISMATCH = "HostnameMismatch"
    KEY_MISMATCH = "KeyMismatch"
    MALFORMED = "CertificateMalformed"
    SECRET_NOT_FOUND = "CertificateSecretNotFound"  # noqa: S105 - a reason, not a credential
    SECRET_KEY_MISSING = "CertificateSecretKeyMissing"  # noqa: S105 - a reason, not a credential
    SECRET_UNREADABLE = "CertificateSecretUnreadable"  # noqa: S105 - a reason, not a credential
    SECRET_NOT_OURS = "CertificateSecretNotOurs"  # noqa: S105 - a reason, not a credential
    SECRET_NOT_WRITABLE = "CertificateSecretNotWritable"  # noqa: S105 - a reason, not a credential
    SERVICE_NOT_FOUND = "ProviderServiceNotFound"
    SERVICE_IS_ALIAS = "ProviderServiceIsAlias"
    SERVICE_UNREADABLE = "ProviderServiceUnreadable"
    NAMESPACE_NOT_ALLOWED = "ProviderNamespaceNotAllowed"
    TOO_MANY_PROVIDERS = "TooManyNamespacedProviders"
    NOT_ISSUED = "CertificatesNotIssued"


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem. The message has the problem, the object and the remedy, and never contains key material."""

    name: ProblemName
    message: str

    def __str__(self) -> str:
        return f"{self.name}: {self.message}"


_HEALS_BY_WAITING: Final = frozenset(
    {
        ProblemName.NOT_ISSUED,
        ProblemName.SECRET_UNREADABLE,
        ProblemName.SERVICE_UNREADABLE,
        ProblemName.SECRET_NOT_WRITABLE,
        ProblemName.NOT_YET_VALID,
    }
)


class CertificateError(ProviderError):
    """A call cannot be made for lack of valid certificates; callers treat the provider as unreachable."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(
            ErrorReason.BACKEND_UNAVAILABLE,
            problem.message,
            retry=RetryClass.BACKOFF if problem.name in _HEALS_BY_WAITING else RetryClass.AFTER_CHANGE,
            backend_code=problem.name,
        )
        self.problem = problem


def alias_problem(service: str) -> Problem:
    """Return the problem of a Service that is an alias of another host."""
    message = (
        f"Service {service} only stands for another host (type ExternalName): it is not dialled and gets no"
        " certificates; name a Service with pods behind it"
    )
    return Problem(ProblemName.SERVICE_IS_ALIAS, message)
