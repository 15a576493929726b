"""The mapping of Key Vault's responses to `ProviderError`.

| response | reason |
|---|---|
| 404 SecretNotFound, KeyNotFound, CertificateNotFound | SECRET_NOT_FOUND; with a version, VERSION_NOT_FOUND |
| 403 with an inner code about a disabled or expired object | BACKEND_ERROR: access is granted, the value is not |
| 403 ForbiddenByRbac, ForbiddenByPolicy, AccessDenied | PERMISSION_DENIED; names the role to grant |
| 403 ForbiddenByFirewall, ForbiddenByConnection | PERMISSION_DENIED; names the network rules |
| 401 | CREDENTIALS_REJECTED |
| 429 | RATE_LIMITED, with Retry-After |
| 409 ObjectIsDeletedButRecoverable, ObjectIsBeingDeleted, ObjectIsBeingRecovered | `DeletedError` |
| any other 409 | `ConflictError`: the deleted object shows whether that is the reason |
| 413, and 400 about the length of a value | PAYLOAD_TOO_LARGE |
| 5xx | BACKEND_UNAVAILABLE |

The text of a response is never quoted, because it repeats parts of the request. It only helps to distinguish cases.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from azure.core.exceptions import AzureError, HttpResponseError

from eso_provider_azure.names import Kind
from eso_sdk.errors import backend_error, rejected, unavailable, with_status
from eso_wire.errors import ErrorReason, ProviderError

_ABSENT: Final = re.compile(r"(Secret|Key|Certificate)NotFound")
_DELETED: Final = re.compile(r"ObjectIs(DeletedButRecoverable|BeingDeleted|BeingRecovered)")
_PLAIN: Final = re.compile(r"[A-Za-z]\w{0,63}")
_DISABLED: Final = re.compile(r"Disabled$")
_EXPIRED: Final = re.compile(r"(Expired|NotYetValid)$")
_NETWORK: Final = frozenset({"ForbiddenByFirewall", "ForbiddenByConnection"})
_LONG: Final = re.compile(r"(value|secret|size).{0,80}(too long|too large|maximum|exceed|length)", re.IGNORECASE)

_READS: Final = {
    Kind.SECRET: "Key Vault Secrets User",
    Kind.KEY: "Key Vault Crypto User",
    Kind.CERTIFICATE: "Key Vault Certificate User",
}
_WRITES: Final = {
    Kind.SECRET: "Key Vault Secrets Officer",
    Kind.KEY: "Key Vault Crypto Officer",
    Kind.CERTIFICATE: "Key Vault Certificates Officer",
}


class ConflictError(ProviderError):
    """A write conflicts with something. Not every vault reports that it is a deleted object."""


class DeletedError(ConflictError):
    """The name belongs to an object that was deleted and can be recovered, or is between both states."""


@dataclass(frozen=True, slots=True)
class CallSubject:
    """The subject of a call, for its error."""

    operation: str
    vault: str
    kind: Kind
    name: str = ""
    version: str = ""

    def __str__(self) -> str:
        if not self.name:
            return f"vault {self.vault}"
        version = f', version "{self.version}"' if self.version else ""
        return f'{self.kind.label} "{self.name}"{version} in vault {self.vault}'

    @property
    def grant(self) -> str:
        """Return what to grant for this call, under both models of permissions."""
        reads = self.operation.startswith("Get") and "Deleted" not in self.operation
        role = _READS[self.kind] if reads else _WRITES[self.kind]
        action = re.sub(r"(Secrets?|Keys?|Certificates?|Deleted)", "", self.operation).lower() or "get"
        if not self.name:
            action = "list"
        return f'grant the role "{role}", or {action} on {self.kind.label}s in the access policy of the vault'


def refusal(failed: Exception, subject: CallSubject) -> ProviderError:
    """Return the error of a call that the vault refused. 429 is the caller's business."""
    if not isinstance(failed, HttpResponseError) or failed.response is None:
        text = f"{subject}: {subject.operation} got a response that is not from Key Vault"
        return backend_error(f"{text} ({type(failed).__name__}); check vaultUrl and proxies on the way")
    status = int(failed.status_code or 0)
    return with_status(_of_status(status, failed, subject), status)


def _of_status(status: int, failed: HttpResponseError, subject: CallSubject) -> ProviderError:
    code, inner, message = _codes(failed)
    text = f"{subject}: {subject.operation}"
    if status == 404 and _ABSENT.fullmatch(code):
        return _absent(code, subject)
    if status == 403:
        return _forbidden(inner or code, message, subject)
    if status == 401:
        return rejected(
            f"vault {subject.vault} does not accept the token; check the tenant of the vault", backend_code=code
        )
    if status == 409 and (_DELETED.fullmatch(inner) or _DELETED.fullmatch(code)):
        return DeletedError(ErrorReason.ALREADY_EXISTS, f"{subject} is deleted and holds its name", backend_code=inner)
    if status == 409:
        problem = f"{text} was refused with status 409 ({code or 'no code'}): something else is changing it; try again"
        return ConflictError(ErrorReason.BACKEND_ERROR, problem, backend_code=code or "409")
    if status == 413 or (status == 400 and _LONG.search(message)):
        problem = (
            f"{text} exceeds a limit of Key Vault (a secret has at most 25,000 characters); make the value smaller"
        )
        return ProviderError(ErrorReason.PAYLOAD_TOO_LARGE, problem, backend_code=code)
    if status >= 500:
        return unavailable(f"{text} got HTTP {status}", backend_code=code or str(status))
    if status == 400 and code:
        return ProviderError(ErrorReason.INVALID_REQUEST, f"{text} was refused ({code})", backend_code=code)
    if not code:
        return backend_error(f"{text} got HTTP {status} without a code of Key Vault; check proxies on the way")
    return backend_error(f"{text} was refused ({code})", backend_code=code)


def _codes(failed: HttpResponseError) -> tuple[str, str, str]:
    """Return code, inner code and message of a response; empty if it is not from Key Vault."""
    response: Any = failed.response
    try:
        body: Any = response.json()
    except (ValueError, AzureError):
        return "", "", ""
    match body:
        case {"error": {"code": str(code), "innererror": {"code": str(inner)}} as error}:
            return _plain(code), _plain(inner), str(error.get("message", ""))
        case {"error": {"code": str(code)} as error}:
            return _plain(code), "", str(error.get("message", ""))
        case _:
            return "", "", ""


def _plain(code: str) -> str:
    return code if _PLAIN.fullmatch(code) else ""


def _absent(code: str, subject: CallSubject) -> ProviderError:
    if subject.version:
        return ProviderError(ErrorReason.VERSION_NOT_FOUND, f"{subject} does not exist", backend_code=code)
    return ProviderError(ErrorReason.SECRET_NOT_FOUND, f"{subject} does not exist", backend_code=code)


def _forbidden(code: str, message: str, subject: CallSubject) -> ProviderError:
    if _DISABLED.search(code) or "is not allowed on a disabled" in message:
        return backend_error(f"{subject} is disabled; enable it, or choose another version", backend_code=code)
    if _EXPIRED.search(code) or "is not allowed on an expired" in message:
        return backend_error(f"{subject} has expired or is not valid yet; renew it", backend_code=code)
    if code in _NETWORK:
        text = (
            f"{subject}: {subject.operation} is denied by the network rules of the vault; allow the provider's address"
        )
        return ProviderError(ErrorReason.PERMISSION_DENIED, text, backend_code=code)
    if not code:
        return backend_error(f"{subject}: {subject.operation} got HTTP 403 without a code of Key Vault; check proxies")
    text = f"{subject}: {subject.operation} is denied; {subject.grant}"
    return ProviderError(ErrorReason.PERMISSION_DENIED, text, backend_code=code)
