"""The calls of one session to Secret Manager: its token, its limits, its deadline, and mapped errors.

response = await api.call("AccessSecretVersion", {"name": api.version("db", "latest")}, key="db")
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Final

from google.api_core.exceptions import GoogleAPICallError
from grpc import StatusCode, aio

from eso_provider_gcp.identities import Access, Identity, Runtime, secret_manager
from eso_sdk.errors import invalid_request, timed_out, with_status
from eso_wire.errors import ErrorReason, ProviderError
from kubebase.deadline import Deadline

# --- The mapping of Google's status codes to `ProviderError` ---------------------------------------------------------
#
#     SECRET_NOT_FOUND       NOT_FOUND; also a secret without versions
#     VERSION_NOT_FOUND      NOT_FOUND for a version that a reference names; a destroyed version
#     CREDENTIALS_REJECTED   UNAUTHENTICATED
#     PERMISSION_DENIED      PERMISSION_DENIED; names the permission and the smallest role that has it
#     RATE_LIMITED           RESOURCE_EXHAUSTED, with the pause that the service requests
#     PRECONDITION_FAILED    ABORTED, and FAILED_PRECONDITION of a write: another writer was faster
#     BACKEND_UNAVAILABLE    UNAVAILABLE, INTERNAL
#
# Messages of the service only distinguish cases. They are never quoted: some repeat parts of the request.


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
class CallSubject:
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


def refusal(failed: Exception, subject: CallSubject) -> ProviderError:
    """Return the error of a call that the service refused, or that did not reach it."""
    if not isinstance(failed, GoogleAPICallError):
        return ProviderError(ErrorReason.BACKEND_UNAVAILABLE, f"{subject}: {subject.operation} got no response")
    # The library knows which HTTP status belongs to a code of gRPC.
    return with_status(_of_code(failed, subject), int(failed.code or 0))


def _of_code(failed: GoogleAPICallError, subject: CallSubject) -> ProviderError:
    code: Any = failed.grpc_status_code
    name = code.name if isinstance(code, StatusCode) else "UNKNOWN"

    def error(reason: ErrorReason, text: str, **more: Any) -> ProviderError:
        return ProviderError(reason, text, backend_code=name, **more)

    match code:
        case StatusCode.NOT_FOUND:
            return _absent(failed, subject, name)
        case StatusCode.PERMISSION_DENIED:
            return error(ErrorReason.PERMISSION_DENIED, _denial(failed, subject))
        case StatusCode.UNAUTHENTICATED:
            return error(
                ErrorReason.CREDENTIALS_REJECTED,
                f"{subject}: Google does not accept the credentials; check that the account exists and is enabled",
            )
        case StatusCode.RESOURCE_EXHAUSTED:
            text = f'Secret Manager limits the calls of project "{subject.project}"; retried later'
            return error(ErrorReason.RATE_LIMITED, text, retry_after=_pause(failed))
        case StatusCode.ALREADY_EXISTS:
            return error(ErrorReason.ALREADY_EXISTS, f"{subject} exists already")
        case StatusCode.ABORTED:
            return error(ErrorReason.PRECONDITION_FAILED, f"{subject} was changed by another writer; tried again later")
        case StatusCode.FAILED_PRECONDITION:
            return _unfit(failed, subject)
        case StatusCode.DEADLINE_EXCEEDED | StatusCode.CANCELLED:
            return error(ErrorReason.BACKEND_TIMEOUT, f"{subject}: {subject.operation} got no response in time")
        case StatusCode.UNAVAILABLE | StatusCode.INTERNAL:
            text = f"{subject}: Secret Manager cannot be reached or fails; retried later"
            return error(ErrorReason.BACKEND_UNAVAILABLE, text)
        case StatusCode.INVALID_ARGUMENT:
            text = f"{subject}: Secret Manager refuses {subject.operation} as invalid; check projectID, location, names"
            return error(ErrorReason.INVALID_REQUEST, f"{text}, labels, annotations and topics")
    return error(ErrorReason.BACKEND_ERROR, f"{subject}: {subject.operation} failed with {name}")


def _absent(failed: GoogleAPICallError, subject: CallSubject, code: str) -> ProviderError:
    of_project = str(failed.message).startswith("Project ") or subject.operation == "CreateSecret"
    if not subject.key or of_project:
        # Deletion policies act on "not found", so it must be about one secret.
        text = f"{replace(subject, key='')} was not found; check projectID and location"
        return ProviderError(ErrorReason.BACKEND_ERROR, text, backend_code=code)
    if subject.version:
        text = f'{subject} has no version "{subject.version}", or does not exist'
        return ProviderError(ErrorReason.VERSION_NOT_FOUND, text, backend_code=code)
    return ProviderError(
        ErrorReason.SECRET_NOT_FOUND, f"{subject} does not exist, or has no version", backend_code=code
    )


def _unfit(failed: GoogleAPICallError, subject: CallSubject) -> ProviderError:
    """Return the error for a version that cannot be read, or for an etag that is not the current one."""
    code = StatusCode.FAILED_PRECONDITION.name
    version = f'version "{subject.version}"' if subject.version else "the latest version"
    if subject.operation != "AccessSecretVersion":
        text = f"{subject} was changed by another writer, or {subject.operation} is not possible now; tried again later"
        return ProviderError(ErrorReason.PRECONDITION_FAILED, text, backend_code=code)
    if "DESTROYED" in str(failed.message):
        text = f"{subject}: {version} is destroyed; add a version, or set secretVersionSelectionPolicy: LatestOrFetch"
        return ProviderError(ErrorReason.VERSION_NOT_FOUND, text, backend_code="DESTROYED")
    if "DISABLED" in str(failed.message):
        text = f"{subject}: {version} is disabled; enable it, or set secretVersionSelectionPolicy: LatestOrFetch"
        return ProviderError(ErrorReason.BACKEND_ERROR, text, backend_code="DISABLED")
    return ProviderError(ErrorReason.BACKEND_ERROR, f"{subject}: {version} cannot be read now", backend_code=code)


def _denial(failed: GoogleAPICallError, subject: CallSubject) -> str:
    if failed.reason == "SERVICE_DISABLED":
        return f"{subject}: the Secret Manager API is not enabled; enable it in the project"
    permission, role = RIGHTS[subject.operation]
    return (
        f"{subject}: access is denied; grant the identity of the store {permission} (in {role}), if the secret exists"
    )


def _pause(failed: GoogleAPICallError) -> float:
    """Return the seconds that the service requests; 0 if it names none."""
    for detail in failed.details:
        delay: Any = getattr(detail, "retry_delay", None)
        if delay is not None:
            return float(min(max(delay.seconds + delay.nanos / 1e9, 0.0), MAX_PAUSE))
    return 0.0


# --- The calls of one session to Secret Manager ----------------------------------------------------------------------


CALL_SECONDS: Final = 25.0

Observe = Callable[[str], AbstractContextManager[None]]

_SECRET_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,255}")
_VERSION: Final = re.compile(r"[A-Za-z0-9_-]{1,63}")
_CAPITAL: Final = re.compile(r"(?<!^)(?=[A-Z])")


class Api:
    """Secret Manager of one project and location, as one identity."""

    def __init__(self, runtime: Runtime, identity: Identity, project: str, location: str, *, observe: Observe) -> None:
        target = secret_manager(location)
        self.runtime = runtime
        self.clock = runtime.clock
        self.project = project
        self.location = location
        self._identity = identity
        self._client = identity.client(target)
        self._throttle = runtime.throttle(identity, project, target)
        self.observe = observe

    @property
    def parent(self) -> str:
        """Return the resource that holds the secrets. A regional store reads the secrets of its location only."""
        return f"projects/{self.project}" + (f"/locations/{self.location}" if self.location else "")

    def secret(self, key: str) -> str:
        """Return the resource name of a secret."""
        if not _SECRET_ID.fullmatch(key):
            raise invalid_request(
                f'"{key}" is not an id of a secret of Google; ids have letters, digits, dashes and underscores'
            )
        return f"{self.parent}/secrets/{key}"

    def version(self, key: str, version: str) -> str:
        """Return the resource name of a version: a number, an alias, or `latest`."""
        if not _VERSION.fullmatch(version):
            raise invalid_request(f'"{version}" is not a version of a secret; write a number, an alias or latest')
        return f"{self.secret(key)}/versions/{version}"

    def subject(self, operation: str, key: str = "", version: str = "") -> CallSubject:
        """Return the subject of an error of this call."""
        return CallSubject(operation, self.project, self.location, key, version)

    async def call(self, operation: str, request: Mapping[str, Any], *, key: str = "", version: str = "") -> Any:
        """Make one call. `key` and `version` name its object in errors.

        A token may be revoked before it expires: if Google rejects it, the call is repeated once with a new one.
        """
        subject = self.subject(operation, key, version)
        access = await self._identity.access()
        try:
            return await self._once(subject, request, access)
        except ProviderError as failed:
            if failed.reason is not ErrorReason.CREDENTIALS_REJECTED:
                raise
            self._identity.discard(access)
        return await self._once(subject, request, await self._identity.access())

    async def pages(
        self, operation: str, request: Mapping[str, Any], members: str, *, key: str = ""
    ) -> AsyncIterator[list[Any]]:
        """Make calls until the service has no further page; yield the members of each."""
        token = ""
        while True:
            page = await self.call(operation, {**request, "page_token": token}, key=key)
            yield list(getattr(page, members))
            token = page.next_page_token
            if not token:
                return

    async def _once(self, subject: CallSubject, request: Mapping[str, Any], access: Access) -> Any:
        method = getattr(self._client, _CAPITAL.sub("_", subject.operation).lower())
        metadata = [("authorization", f"Bearer {access.token}")]
        if access.quota_project:
            metadata.append(("x-goog-user-project", access.quota_project))
        async with self._throttle.slot():
            try:
                with self.observe(subject.operation):
                    async with Deadline(self.clock, CALL_SECONDS):
                        # The operator retries.
                        return await method(request=dict(request), metadata=metadata, retry=None, timeout=CALL_SECONDS)
            except TimeoutError:
                raise timed_out(f"{subject}: {subject.operation} got no response in time") from None
            except (GoogleAPICallError, aio.AioRpcError) as failed:
                raise refusal(failed, subject) from None
