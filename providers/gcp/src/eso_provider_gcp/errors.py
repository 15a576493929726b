"""The mapping of Google's status codes to `ProviderError`.

    SECRET_NOT_FOUND       NOT_FOUND; also a secret without versions
    VERSION_NOT_FOUND      NOT_FOUND for a version that a reference names; a destroyed version
    CREDENTIALS_REJECTED   UNAUTHENTICATED
    PERMISSION_DENIED      PERMISSION_DENIED; names the permission and the smallest role that has it
    RATE_LIMITED           RESOURCE_EXHAUSTED, with the pause that the service asks for
    PRECONDITION_FAILED    ABORTED, and FAILED_PRECONDITION of a write: another writer was faster
    BACKEND_UNAVAILABLE    UNAVAILABLE, INTERNAL

Messages of the service only distinguish cases. They are never quoted: some repeat parts of the request.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from google.api_core.exceptions import GoogleAPICallError
from grpc import StatusCode

from eso_sdk.errors import with_status
from eso_wire.errors import ErrorReason, ProviderError

MAX_PAUSE: Final = 300.0

_ADMIN: Final = "roles/secretmanager.admin"
_VIEWER: Final = "roles/secretmanager.viewer"

RIGHTS: Final = {
    "AccessSecretVersion": ("secretmanager.versions.access", "roles/secretmanager.secretAccessor"),
    "AddSecretVersion": ("secretmanager.versions.add", "roles/secretmanager.secretVersionAdder"),
    "CreateSecret": ("secretmanager.secrets.create", _ADMIN),
    "DeleteSecret": ("secretmanager.secrets.delete", _ADMIN),
    "GetSecret": ("secretmanager.secrets.get", _VIEWER),
    "GetSecretVersion": ("secretmanager.versions.get", _VIEWER),
    "ListSecretVersions": ("secretmanager.versions.list", _VIEWER),
    "ListSecrets": ("secretmanager.secrets.list", _VIEWER),
    "UpdateSecret": ("secretmanager.secrets.update", _ADMIN),
}
"""The permission of each call, and the smallest predefined role that has it."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The subject of a call, for its error."""

    operation: str
    project: str
    location: str = ""
    key: str = ""
    """The id of the secret; empty if the call is about none."""
    version: str = ""
    """The version that the reference names; empty for the latest one."""

    def __str__(self) -> str:
        what = f'secret "{self.key}" of ' if self.key else ""
        return f'{what}project "{self.project}"' + (f" in {self.location}" if self.location else "")


def refusal(failed: Exception, asked: Asked) -> ProviderError:
    """Return the error of a call that the service refused, or that did not reach it."""
    if not isinstance(failed, GoogleAPICallError):
        return ProviderError(ErrorReason.BACKEND_UNAVAILABLE, f"{asked}: {asked.operation} got no answer")
    # The library knows which HTTP status belongs to a code of gRPC.
    return with_status(_of_code(failed, asked), int(failed.code or 0))


def _of_code(failed: GoogleAPICallError, asked: Asked) -> ProviderError:
    code: Any = failed.grpc_status_code
    name = code.name if isinstance(code, StatusCode) else "UNKNOWN"

    def error(reason: ErrorReason, words: str, **more: Any) -> ProviderError:
        return ProviderError(reason, words, backend_code=name, **more)

    match code:
        case StatusCode.NOT_FOUND:
            return _absent(failed, asked, name)
        case StatusCode.PERMISSION_DENIED:
            return error(ErrorReason.PERMISSION_DENIED, _denial(failed, asked))
        case StatusCode.UNAUTHENTICATED:
            return error(
                ErrorReason.CREDENTIALS_REJECTED,
                f"{asked}: Google does not accept the credentials; check that the account exists and is enabled",
            )
        case StatusCode.RESOURCE_EXHAUSTED:
            words = f'Secret Manager limits the calls of project "{asked.project}"; asked again later'
            return error(ErrorReason.RATE_LIMITED, words, retry_after=_pause(failed))
        case StatusCode.ALREADY_EXISTS:
            return error(ErrorReason.ALREADY_EXISTS, f"{asked} exists already")
        case StatusCode.ABORTED:
            return error(ErrorReason.PRECONDITION_FAILED, f"{asked} was changed by another writer; tried again later")
        case StatusCode.FAILED_PRECONDITION:
            return _unfit(failed, asked)
        case StatusCode.DEADLINE_EXCEEDED | StatusCode.CANCELLED:
            return error(ErrorReason.BACKEND_TIMEOUT, f"{asked}: {asked.operation} was not answered in time")
        case StatusCode.UNAVAILABLE | StatusCode.INTERNAL:
            words = f"{asked}: Secret Manager cannot be reached or fails; asked again later"
            return error(ErrorReason.BACKEND_UNAVAILABLE, words)
        case StatusCode.INVALID_ARGUMENT:
            words = f"{asked}: Secret Manager refuses {asked.operation} as invalid; check projectID, location, names"
            return error(ErrorReason.INVALID_REQUEST, f"{words}, labels, annotations and topics")
    return error(ErrorReason.BACKEND_ERROR, f"{asked}: {asked.operation} failed with {name}")


def _absent(failed: GoogleAPICallError, asked: Asked, code: str) -> ProviderError:
    of_project = str(failed.message).startswith("Project ") or asked.operation == "CreateSecret"
    if not asked.key or of_project:
        # Deletion policies act on "not found", so it must be about one secret.
        words = f"{replace(asked, key='')} was not found; check projectID and location"
        return ProviderError(ErrorReason.BACKEND_ERROR, words, backend_code=code)
    if asked.version:
        words = f'{asked} has no version "{asked.version}", or does not exist'
        return ProviderError(ErrorReason.VERSION_NOT_FOUND, words, backend_code=code)
    return ProviderError(ErrorReason.SECRET_NOT_FOUND, f"{asked} does not exist, or has no version", backend_code=code)


def _unfit(failed: GoogleAPICallError, asked: Asked) -> ProviderError:
    """Return the error for a version that cannot be read, or for an etag that is not the current one."""
    code = StatusCode.FAILED_PRECONDITION.name
    version = f'version "{asked.version}"' if asked.version else "the latest version"
    if asked.operation != "AccessSecretVersion":
        words = f"{asked} was changed by another writer, or {asked.operation} is not possible now; tried again later"
        return ProviderError(ErrorReason.PRECONDITION_FAILED, words, backend_code=code)
    if "DESTROYED" in str(failed.message):
        words = f"{asked}: {version} is destroyed; add a version, or set secretVersionSelectionPolicy: LatestOrFetch"
        return ProviderError(ErrorReason.VERSION_NOT_FOUND, words, backend_code="DESTROYED")
    if "DISABLED" in str(failed.message):
        words = f"{asked}: {version} is disabled; enable it, or set secretVersionSelectionPolicy: LatestOrFetch"
        return ProviderError(ErrorReason.BACKEND_ERROR, words, backend_code="DISABLED")
    return ProviderError(ErrorReason.BACKEND_ERROR, f"{asked}: {version} cannot be read now", backend_code=code)


def _denial(failed: GoogleAPICallError, asked: Asked) -> str:
    if failed.reason == "SERVICE_DISABLED":
        return f"{asked}: the Secret Manager API is not enabled; enable it in the project"
    permission, role = RIGHTS[asked.operation]
    return f"{asked}: access is denied; grant the identity of the store {permission} (in {role}), if the secret exists"


def _pause(failed: GoogleAPICallError) -> float:
    """Return the seconds that the service asks to wait; 0 if it names none."""
    for detail in failed.details:
        delay: Any = getattr(detail, "retry_delay", None)
        if delay is not None:
            return float(min(max(delay.seconds + delay.nanos / 1e9, 0.0), MAX_PAUSE))
    return 0.0
