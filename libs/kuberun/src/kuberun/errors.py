"""The errors of calls to an API server, as one tree.

    KubeError
    ├── ConfigError              the kubeconfig or the pod's service account cannot be used
    └── ApiError                 code, reason, message, details, where
        ├── Unreachable          no HTTP response: DNS, refused, TLS, timeout, cut off, credentials unavailable for now
        ├── BadAnswer            a response that is not what the API promises: not JSON, too large, of another shape
        ├── BadRequest           400
        ├── Unauthorized         401
        ├── Forbidden            403
        ├── NotFound             404
        │   ├── ImpossibleName   no object can have such a name; no request was sent
        │   └── NotServed        404 without a Status: the API server does not know this resource (no such CRD)
        ├── MethodNotAllowed     405
        ├── NotAcceptable        406
        ├── Conflict             409: the object changed, or (with causes) another field manager owns a field
        ├── AlreadyExists        409
        ├── Gone                 410: the resource version or continue token is too old
        ├── TooLarge             413
        ├── UnsupportedMediaType 415
        ├── Invalid              422, with causes
        ├── Throttled            429, with retry_after
        └── ServerError          5xx
            ├── ServiceUnavailable  503
            └── ServerTimeout       504, and 500 with reason ServerTimeout

A class is chosen by the reason the server names, else by the HTTP code. No message repeats anything of a request body.
"""
# ruff: noqa: N818  the classes carry the names of the API's own reasons; "Error" behind each says nothing more

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from kuberun.redaction import field_without_echo, without_echo, without_values


@dataclass(frozen=True, slots=True)
class Cause:
    """One problem of a request: the field, the rule and what to do."""

    field: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Details:
    """The structured part of a Status: the object and the reason."""

    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: tuple[Cause, ...] = ()
    retry_after: float | None = None


NO_DETAILS: Final = Details()


class KubeError(Exception):
    """Base of everything this package raises for reasons outside the program."""


class ConfigError(KubeError):
    """The connection settings are unusable; the message names the file, the entry and what to do."""


class ApiError(KubeError):
    """A call to the API server failed."""

    def __init__(self, code: int, reason: str, message: str, details: Details = NO_DETAILS, *, where: str = "") -> None:
        super().__init__(f"{where}: {message}" if where else message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.where = where

    @property
    def causes(self) -> tuple[Cause, ...]:
        return self.details.causes

    @property
    def retry_after(self) -> float | None:
        """Return the seconds that the server asks us to wait, if any."""
        return self.details.retry_after


class Unreachable(ApiError):
    def __init__(self, message: str, *, where: str = "") -> None:
        super().__init__(0, "Unreachable", message, where=where)


class BadResponse(ApiError):
    def __init__(self, message: str, *, code: int = 0, where: str = "") -> None:
        super().__init__(code, "BadAnswer", message, where=where)


class BadRequest(ApiError): ...


class Unauthorized(ApiError): ...


class Forbidden(ApiError): ...


class NotFound(ApiError): ...


class NotServed(NotFound): ...


class ImpossibleName(NotFound, ValueError):
    """A name that no object can have; no request was sent."""

    def __init__(self, message: str) -> None:
        super().__init__(404, "NotFound", message)


class MethodNotAllowed(ApiError): ...


class NotAcceptable(ApiError): ...


class Conflict(ApiError): ...


class AlreadyExists(ApiError): ...


class Gone(ApiError): ...


class TooLarge(ApiError): ...


class UnsupportedMediaType(ApiError): ...


class Invalid(ApiError): ...


class Throttled(ApiError): ...


class ServerError(ApiError): ...


class ServiceUnavailable(ServerError): ...


class ServerTimeout(ServerError): ...


BY_REASON: Final[Mapping[str, type[ApiError]]] = {
    "BadRequest": BadRequest,
    "Unauthorized": Unauthorized,
    "Forbidden": Forbidden,
    "NotFound": NotFound,
    "MethodNotAllowed": MethodNotAllowed,
    "NotAcceptable": NotAcceptable,
    "Conflict": Conflict,
    "AlreadyExists": AlreadyExists,
    "Gone": Gone,
    "Expired": Gone,
    "RequestEntityTooLarge": TooLarge,
    "UnsupportedMediaType": UnsupportedMediaType,
    "Invalid": Invalid,
    "TooManyRequests": Throttled,
    "InternalError": ServerError,
    "StoreReadError": ServerError,
    "ServiceUnavailable": ServiceUnavailable,
    "ServerTimeout": ServerTimeout,
    "Timeout": ServerTimeout,
}

BY_CODE: Final[Mapping[int, type[ApiError]]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    405: MethodNotAllowed,
    406: NotAcceptable,
    409: Conflict,
    410: Gone,
    413: TooLarge,
    415: UnsupportedMediaType,
    422: Invalid,
    429: Throttled,
    503: ServiceUnavailable,
    504: ServerTimeout,
}


def from_status(
    code: int, body: bytes, headers: Mapping[str, str], *, where: str = "", sent: bytes | None = None
) -> ApiError:
    """Return the error that an HTTP response (or the Status object of a watch frame) stands for.

    `sent` is the body of the request; its values are removed from the message.
    """
    status = _read(body)
    if status is None:
        return _without_status(code, headers, where)
    return _error(code or status.code, status, headers, where=where, sent=sent)


class _Cause(msgspec.Struct):
    reason: str = ""
    message: str = ""
    field: str = ""


class _Details(msgspec.Struct, rename="camel"):
    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: list[_Cause] | None = None
    retry_after_seconds: int = 0


class _Status(msgspec.Struct):
    kind: str = ""
    message: str = ""
    reason: str = ""
    details: _Details | None = None
    code: int = 0


_STATUS: Final = msgspec.json.Decoder(_Status)


def _read(body: bytes) -> _Status | None:
    try:
        status = _STATUS.decode(body)
    except msgspec.DecodeError:
        return None
    return status if status.kind == "Status" else None


def _error(code: int, status: _Status, headers: Mapping[str, str], *, where: str, sent: bytes | None) -> ApiError:
    def clean(text: str) -> str:
        return without_values(without_echo(text), sent)

    read = status.details or _Details()
    causes = tuple(Cause(field_without_echo(c.field, c.message), c.reason, clean(c.message)) for c in read.causes or ())
    details = Details(
        read.name, read.group, read.kind, read.uid, causes, read.retry_after_seconds or _retry_after(headers)
    )
    known = BY_REASON.get(status.reason) or _by_code(code)
    message = clean(_invalid_message(details)) if known is Invalid and causes else clean(status.message)
    return known(code, status.reason, message or f"the server responded {code}", details, where=where)


def _invalid_message(details: Details) -> str:
    """Build the message from the causes: the server's own sentence repeats them together with the rejected values."""
    what = f"{details.kind or 'the object'} {details.name!r}" if details.name else details.kind or "the request"
    return f"{what} is invalid: " + "; ".join(f"{cause.field}: {cause.message}" for cause in details.causes)


def _without_status(code: int, headers: Mapping[str, str], where: str) -> ApiError:
    """Return the error for a response without a Kubernetes Status: a proxy's error page, or the router's plain 404."""
    details = replace(NO_DETAILS, retry_after=_retry_after(headers))
    if code == 404:
        message = "the API server does not know this path; is the resource (or its CustomResourceDefinition) installed?"
        return NotServed(code, "", message, details, where=where)
    if code < 400:
        return BadResponse(f"HTTP {code}; is the server address that of a Kubernetes API?", code=code, where=where)
    return _by_code(code)(code, "", f"HTTP {code} without a Kubernetes status", details, where=where)


def _by_code(code: int) -> type[ApiError]:
    return BY_CODE.get(code, ServerError if code >= 500 else ApiError)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the Retry-After header if it counts seconds; Kubernetes never sends the date form."""
    text = headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdigit() and len(text) < 9 else None
