"""Failures as the API server reports them: one exception that carries a Kubernetes Status.

Every layer raises StatusError; only the HTTP layer turns it into a response. Messages and reasons follow the real
kube-apiserver, because clients (kubectl, client-go, our own) branch on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Cause:
    """One invalid field: `field` is a path such as spec.data[0].secretKey, `reason` such as FieldValueInvalid."""

    field: str
    message: str
    reason: str = "FieldValueInvalid"

    def to_json(self) -> dict[str, str]:
        return {"reason": self.reason, "message": self.message, "field": self.field}


class StatusError(Exception):
    """A request that ends with a Kubernetes Status of failure."""

    def __init__(self, code: int, reason: str, message: str, *, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details or {}
        self.metadata: dict[str, Any] = {}
        """ListMeta of the Status: a continue token that still works, next to a 410."""

    def to_json(self) -> dict[str, Any]:
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "details": self.details,
            "code": self.code,
        }
        return {key: value for key, value in status.items() if key == "metadata" or value}


def _named(resource: str, group: str, name: str) -> dict[str, Any]:
    return {key: value for key, value in (("name", name), ("group", group), ("kind", resource)) if value}


def qualified(resource: str, group: str) -> str:
    return f"{resource}.{group}" if group else resource


def not_found(resource: str, name: str, *, group: str = "") -> StatusError:
    message = f'{qualified(resource, group)} "{name}" not found'
    return StatusError(404, "NotFound", message, details=_named(resource, group, name))


def no_such_path() -> StatusError:
    return StatusError(404, "NotFound", "the server could not find the requested resource", details={})


def already_exists(resource: str, name: str, *, group: str = "") -> StatusError:
    message = f'{qualified(resource, group)} "{name}" already exists'
    return StatusError(409, "AlreadyExists", message, details=_named(resource, group, name))


def conflict(resource: str, name: str, why: str, *, group: str = "", causes: Sequence[Cause] = ()) -> StatusError:
    details = _named(resource, group, name)
    if causes:
        details["causes"] = [cause.to_json() for cause in causes]
    message = f'Operation cannot be fulfilled on {qualified(resource, group)} "{name}": {why}'
    return StatusError(409, "Conflict", message, details=details)


def invalid(kind: str, name: str, causes: Sequence[Cause], *, group: str = "") -> StatusError:
    """Return a 422 with every cause.

    One cause is written inline, several as a bracketed list, as in the real server.
    """
    texts = [f"{cause.field}: {cause.message}" if cause.field else cause.message for cause in causes]
    what = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    details = _named(kind, group, name) | {"causes": [cause.to_json() for cause in causes]}
    return StatusError(422, "Invalid", f'{qualified(kind, group)} "{name}" is invalid: {what}', details=details)


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def unauthorized() -> StatusError:
    return StatusError(401, "Unauthorized", "Unauthorized")


def forbidden(resource: str, name: str, why: str, *, group: str = "") -> StatusError:
    where = f'{qualified(resource, group)} "{name}"' if name else qualified(resource, group)
    return StatusError(403, "Forbidden", f"{where} is forbidden: {why}", details=_named(resource, group, name))


def method_not_allowed(message: str = "the server does not allow this method on the requested resource") -> StatusError:
    return StatusError(405, "MethodNotAllowed", message)


def not_acceptable(accepted: str) -> StatusError:
    return StatusError(406, "NotAcceptable", f"only the following media types are accepted: {accepted}")


def expired(message: str) -> StatusError:
    """Return a 410: the history that a watch or continue token needs was compacted."""
    return StatusError(410, "Expired", message)


def too_large(message: str) -> StatusError:
    return StatusError(413, "RequestEntityTooLarge", message)


def unsupported_media_type(accepted: str) -> StatusError:
    message = f"the body of the request was in an unknown format - accepted media types include: {accepted}"
    return StatusError(415, "UnsupportedMediaType", message)


def too_many_requests(message: str, retry_after: int) -> StatusError:
    return StatusError(429, "TooManyRequests", message, details={"retryAfterSeconds": retry_after})


def internal(message: str) -> StatusError:
    return StatusError(500, "InternalError", message)


def insufficient_storage(message: str) -> StatusError:
    return StatusError(507, "InsufficientStorage", message)


def server_timeout(message: str, retry_after: int) -> StatusError:
    return StatusError(504, "Timeout", message, details={"retryAfterSeconds": retry_after})
