"""The errors that authors may raise: `raise errors.not_found(ref.key)`.

Each is a `ProviderError` with its reason. Say what failed, which key, and what to do next; never a value. Any other
exception of author code becomes INTERNAL with only its type and place (`redaction.py`).
`docs/guides/provider-errors.md` says how the operator reacts to each error.
"""

from __future__ import annotations

from collections.abc import Iterable

from eso_wire.errors import ErrorReason, ProviderError
from kubebase.hints import with_hint


class CutStream(Exception):  # noqa: N818 - what happens to the stream, not an error of the author
    """End a find before its last page, without an error: for providers that inject faults."""


class MissingPathError(ProviderError):
    """The root of a search does not exist.

    Raise it in `find`, and only if the backend reports that: deletion policies act on it as they do on a missing key.
    """

    def __init__(self, message: str) -> None:
        super().__init__(ErrorReason.SECRET_NOT_FOUND, message)


def not_found(key: str, *, known: Iterable[str] = ()) -> ProviderError:
    """Return the error "the key does not exist".

    Raise it only if the backend reports that: deletion policies act on it. `known` are keys that exist, if they are at
    hand: the message suggests a similar one.
    """
    return ProviderError(ErrorReason.SECRET_NOT_FOUND, with_hint(f'"{key}" does not exist', key, known))


def property_not_found(key: str, path: str, *, known: Iterable[str] = ()) -> ProviderError:
    """Return the error "the key exists, but it has no such property".

    `known` are names of properties that it has and that may be shown: the message suggests a similar one. For a JSON
    value, `extract.property_names` returns them.
    """
    return ProviderError(ErrorReason.PROPERTY_NOT_FOUND, with_hint(f'"{key}" has no property "{path}"', path, known))


def version_not_found(key: str, version: str) -> ProviderError:
    """Return the error "the key exists, but it has no such version"."""
    return ProviderError(ErrorReason.VERSION_NOT_FOUND, f'"{key}" has no version "{version}"')


def not_json(key: str) -> ProviderError:
    """Return the error "a map was requested, but the value is not a JSON object"."""
    return ProviderError(
        ErrorReason.BACKEND_ERROR, f'the value of "{key}" is no JSON object; read it as a single value instead'
    )


def invalid_config(path: str, problem: str) -> ProviderError:
    """Return the error "the configuration is unusable". `path` names the field (`/auth/role`), never its content."""
    return ProviderError(ErrorReason.CONFIG_INVALID, f"{path or '/'}: {problem}")


def credentials_not_found(what: str) -> ProviderError:
    """Return the error "a credential that the configuration refers to was not sent"."""
    return ProviderError(ErrorReason.CREDENTIALS_NOT_FOUND, what)


def rejected(what: str, *, backend_code: str = "") -> ProviderError:
    """Return the error "the backend rejects the credentials"."""
    return ProviderError(ErrorReason.CREDENTIALS_REJECTED, what, backend_code=backend_code)


def denied(key: str, *, backend_code: str = "") -> ProviderError:
    """Return the error "the credentials are valid, but do not permit access to this key"."""
    return ProviderError(
        ErrorReason.PERMISSION_DENIED, f'the backend denies access to "{key}"', backend_code=backend_code
    )


def already_exists(key: str) -> ProviderError:
    return ProviderError(ErrorReason.ALREADY_EXISTS, f'"{key}" exists already')


def not_ours(key: str) -> ProviderError:
    """Return the error "the key exists without our mark, so it is neither overwritten nor deleted"."""
    return ProviderError(
        ErrorReason.OWNERSHIP_CONFLICT,
        f'remote key "{key}" exists and was not created by External Secrets; delete it or choose another remoteKey',
    )


def version_differs(key: str) -> ProviderError:
    """Return the error "the key does not have the version that the push expects"."""
    return ProviderError(ErrorReason.PRECONDITION_FAILED, f'"{key}" no longer has the expected version')


def throttled(retry_after: float = 0.0, *, backend_code: str = "", subject: str = "the backend") -> ProviderError:
    """Return the error "the backend throttles calls". `retry_after` is in seconds; 0 if the backend names no time.

    `backend_code` is the HTTP status, if there is one.
    """
    status_text = f": HTTP {backend_code}" if backend_code.isdecimal() else ""
    what = f"{subject} limits its calls{status_text}"
    return ProviderError(ErrorReason.RATE_LIMITED, what, retry_after=retry_after, backend_code=backend_code)


def with_status(error: ProviderError, status: int) -> ProviderError:
    """Add the HTTP status of a response to the message, unless it is there already; return the error.

    Errors about a missing key, property or version stay as they are: they say all that matters.
    """
    status_text = f"HTTP {status}"
    if status and not error.is_not_found and status_text not in error.message:
        problem, semicolon, remedy = error.message.partition("; ")
        error.message = f"{problem} ({status_text}){semicolon}{remedy}"
        error.args = (error.message,)
    return error


def unavailable(what: str, *, backend_code: str = "") -> ProviderError:
    """Return the error "the backend cannot be reached"."""
    return ProviderError(ErrorReason.BACKEND_UNAVAILABLE, what, backend_code=backend_code)


def timed_out(what: str) -> ProviderError:
    return ProviderError(ErrorReason.BACKEND_TIMEOUT, what)


def backend_error(what: str, *, backend_code: str = "") -> ProviderError:
    """Return the error "the backend returned an error"."""
    return ProviderError(ErrorReason.BACKEND_ERROR, what, backend_code=backend_code)


def invalid_request(what: str) -> ProviderError:
    """Return the error "this backend cannot serve such a request, whatever its configuration"."""
    return ProviderError(ErrorReason.INVALID_REQUEST, what)


def too_large(key: str) -> ProviderError:
    return ProviderError(ErrorReason.PAYLOAD_TOO_LARGE, f'"{key}" is larger than a message may be')


def unsupported(what: str) -> ProviderError:
    """Return the error "this kind does not support the operation"."""
    return ProviderError(ErrorReason.UNSUPPORTED_OPERATION, what)


def error_for_status(status: int, subject: str, *, retry_after: float = 0.0) -> ProviderError | None:
    """Return the usual error for an HTTP status; None for 2xx. `subject` names the backend.

    404 becomes BACKEND_ERROR: only the caller knows whether it means "no such key", a wrong path or a proxy.
    """
    code = str(status)
    match status:
        case _ if 200 <= status < 300:
            return None
        case 401:
            return rejected(f"{subject} does not accept the credentials: HTTP 401", backend_code=code)
        case 403:
            message = f"{subject} denies access: HTTP 403"
            return ProviderError(ErrorReason.PERMISSION_DENIED, message, backend_code=code)
        case 413:
            message = f"{subject} says that the request is too large: HTTP 413"
            return ProviderError(ErrorReason.PAYLOAD_TOO_LARGE, message, backend_code=code)
        case 429:
            return throttled(retry_after, backend_code=code, subject=subject)
        case _ if status >= 500:
            return unavailable(f"{subject} answers with HTTP {code}", backend_code=code)
        case _:
            return backend_error(f"{subject} answers with HTTP {code}", backend_code=code)
