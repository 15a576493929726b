"""The errors an author may raise: `raise not_found(ref.key)`.

Each is a `ProviderError` with its reason. Say what failed, which key, what to do next; never a value. Whatever else
author code raises becomes INTERNAL with its type and place only (`redaction.py`).
"""

from __future__ import annotations

from eso_wire.errors import ErrorReason, ProviderError


class CutStream(Exception):  # noqa: N818 - what happens to the stream, not an error of the author
    """Ends a find before its last page, without an error: for providers that inject faults."""


def not_found(key: str) -> ProviderError:
    """The backend has no such key. Only when the backend said so: deletion policies act on it."""
    return ProviderError(ErrorReason.SECRET_NOT_FOUND, f'"{key}" does not exist')


def property_not_found(key: str, path: str) -> ProviderError:
    """The key is there, but not that property of it."""
    return ProviderError(ErrorReason.PROPERTY_NOT_FOUND, f'"{key}" has no property "{path}"')


def version_not_found(key: str, version: str) -> ProviderError:
    """The key is there, but not in that version."""
    return ProviderError(ErrorReason.VERSION_NOT_FOUND, f'"{key}" has no version "{version}"')


def not_json(key: str) -> ProviderError:
    """A map was asked for, and the value is no JSON object."""
    return ProviderError(
        ErrorReason.BACKEND_ERROR, f'the value of "{key}" is no JSON object; read it as a single value instead'
    )


def invalid_config(path: str, problem: str) -> ProviderError:
    """The configuration cannot be used. `path` names the field (`/auth/role`), never its content."""
    return ProviderError(ErrorReason.CONFIG_INVALID, f"{path or '/'}: {problem}")


def credentials_not_found(what: str) -> ProviderError:
    """A credential that the configuration refers to was not sent."""
    return ProviderError(ErrorReason.CREDENTIALS_NOT_FOUND, what)


def rejected(what: str, *, backend_code: str = "") -> ProviderError:
    """The backend does not accept the credentials."""
    return ProviderError(ErrorReason.CREDENTIALS_REJECTED, what, backend_code=backend_code)


def denied(key: str, *, backend_code: str = "") -> ProviderError:
    """The credentials are good, but not for this key."""
    return ProviderError(
        ErrorReason.PERMISSION_DENIED, f'the backend denies access to "{key}"', backend_code=backend_code
    )


def already_exists(key: str) -> ProviderError:
    return ProviderError(ErrorReason.ALREADY_EXISTS, f'"{key}" exists already')


def not_ours(key: str) -> ProviderError:
    """The key exists without our mark, so it is neither overwritten nor deleted."""
    return ProviderError(
        ErrorReason.OWNERSHIP_CONFLICT,
        f'remote key "{key}" exists and was not created by External Secrets; delete it or choose another remoteKey',
    )


def version_differs(key: str) -> ProviderError:
    """The key does not have the version that the push expects."""
    return ProviderError(ErrorReason.PRECONDITION_FAILED, f'"{key}" no longer has the expected version')


def throttled(retry_after: float = 0.0, *, backend_code: str = "") -> ProviderError:
    """The backend wants fewer calls; `retry_after` in seconds, 0 when it did not say."""
    return ProviderError(
        ErrorReason.RATE_LIMITED, "the backend limits its calls", retry_after=retry_after, backend_code=backend_code
    )


def unavailable(what: str, *, backend_code: str = "") -> ProviderError:
    """The backend cannot be reached."""
    return ProviderError(ErrorReason.BACKEND_UNAVAILABLE, what, backend_code=backend_code)


def timed_out(what: str) -> ProviderError:
    return ProviderError(ErrorReason.BACKEND_TIMEOUT, what)


def backend_error(what: str, *, backend_code: str = "") -> ProviderError:
    """The backend answered with an error of its own."""
    return ProviderError(ErrorReason.BACKEND_ERROR, what, backend_code=backend_code)


def invalid_request(what: str) -> ProviderError:
    """The request makes no sense to this backend, whatever its configuration is."""
    return ProviderError(ErrorReason.INVALID_REQUEST, what)


def too_large(key: str) -> ProviderError:
    return ProviderError(ErrorReason.PAYLOAD_TOO_LARGE, f'"{key}" is larger than a message may be')


def unsupported(what: str) -> ProviderError:
    """This kind does not do that."""
    return ProviderError(ErrorReason.UNSUPPORTED_OPERATION, what)
