"""The mapping of error responses (status and body) to `ProviderError`.

    503 sealed, 5xx, 472, 473, 412   BACKEND_UNAVAILABLE
    429                              RATE_LIMITED
    413                              PAYLOAD_TOO_LARGE
    403                              PERMISSION_DENIED; of a login or a dead token CREDENTIALS_REJECTED
    404                              CONFIG_INVALID; only `reading.py` decides that a key does not exist
    anything that is not Vault's     BACKEND_ERROR

Bodies are used to classify and are not quoted: several backends repeat the request in them. Only a refused login shows
the server's own message, masked (`auth/login.py`).
"""

from __future__ import annotations

from typing import Final

from eso_provider_vault.replies import Endpoint, Reply, shown
from eso_sdk.errors import MissingPathError, with_status
from eso_wire.errors import ErrorReason, ProviderError, RetryClass

_STANDBY: Final = frozenset({472, 473})
_REDIRECTS: Final = range(300, 400)


def refusal(reply: Reply, endpoint: Endpoint) -> ProviderError:
    """Return the error of a failed request; never "not found"."""
    code = f"HTTP {reply.status}"
    error = _by_status(reply, endpoint, code) or ProviderError(
        ErrorReason.BACKEND_ERROR, f"{endpoint} returned {code}; see the server's log", backend_code=code
    )
    return with_status(error, reply.status)


def sealed_or_down(reply: Reply, endpoint: Endpoint, code: str) -> ProviderError | None:
    """Return the error of a server that is sealed or unavailable; None for other responses."""
    server = shown(endpoint.server)
    if reply.status == 503 and (reply.mentions("sealed") or not reply.is_json or not reply.errors):
        problem = f"{server} is sealed or unavailable; unseal it"
    elif reply.status in _STANDBY:
        problem = f"{server} is a standby node that does not respond; point server at the active node or the cluster"
    elif reply.status == 412:
        problem = f"{server} has not caught up with the last write yet"
    elif reply.status == 400 and reply.mentions("upgrading"):
        problem = f"the engine behind {endpoint} is being upgraded to version 2"
    elif reply.status >= 500:
        problem = f"{server} failed to respond for {endpoint} ({code})"
    else:
        return None
    return ProviderError(ErrorReason.BACKEND_UNAVAILABLE, problem, backend_code=code)


def denied(endpoint: Endpoint, *, backend_code: str = "HTTP 403") -> ProviderError:
    """Return the error for a valid token without the right to this path."""
    return ProviderError(
        ErrorReason.PERMISSION_DENIED,
        f"no policy of the token allows {endpoint}; grant it, or correct path and key",
        backend_code=backend_code,
    )


def dead_token(endpoint: Endpoint) -> ProviderError:
    """Return the error for a token that the server does not accept, or that the request did not have."""
    if not endpoint.has_auth:
        return misconfigured(
            f"there is no token for {endpoint}: the store has no auth, and nothing in front of the server added a"
            " token; set auth, or let server name an agent that adds the token",
            backend_code="HTTP 403",
        )
    return ProviderError(
        ErrorReason.CREDENTIALS_REJECTED,
        f"{shown(endpoint.server)} does not accept the token: it is wrong, expired or revoked; replace it",
        backend_code="HTTP 403",
    )


def accepts_token(reply: Reply) -> bool | None:
    """Return whether the server accepted the token of a request; None if the response does not show it.

    A 403 of the policies is a list ("1 error occurred"), a 403 of an unknown token is not, or names the token.
    """
    if reply.status != 403:
        return reply.ok or None
    if reply.mentions("invalid token"):
        return False
    return True if reply.mentions("1 error occurred") else None


def redirected(problem: str) -> ProviderError:
    """Return the error for a redirect that is not followed."""
    return ProviderError(
        ErrorReason.BACKEND_UNAVAILABLE,
        f"{problem}; set server to the address of the active node or the cluster",
        backend_code="redirect",
    )


def misconfigured(problem: str, *, backend_code: str = "") -> ProviderError:
    """Return the error for a store that does not match its server. Either side may be corrected, so it is retried."""
    return ProviderError(ErrorReason.CONFIG_INVALID, problem, retry=RetryClass.BACKOFF, backend_code=backend_code)


def absent(key: str, endpoint: Endpoint) -> ProviderError:
    """Return the error for a missing key. Deletion policies act on it."""
    return ProviderError(
        ErrorReason.SECRET_NOT_FOUND, f'"{key}" does not exist: nothing at {endpoint}', backend_code="HTTP 404"
    )


def absent_folder(path: str, endpoint: Endpoint) -> ProviderError:
    """Return the error for a search in a folder without keys. Deletion policies act on it."""
    folder = f'folder "{path}" does not exist' if path else "the engine has no keys"
    return MissingPathError(f"{folder}: nothing below {endpoint}; correct find.path")


def absent_version(key: str, version: str, endpoint: Endpoint) -> ProviderError:
    return ProviderError(
        ErrorReason.VERSION_NOT_FOUND, f'"{key}" has no version "{version}" at {endpoint}', backend_code="HTTP 404"
    )


def not_vault(endpoint: Endpoint, status: int) -> ProviderError:
    """Return the error for a response that is not from Vault, such as a proxy's page."""
    return ProviderError(
        ErrorReason.BACKEND_ERROR,
        f"the response for {endpoint} (HTTP {status}) does not come from Vault's API; check server, and any proxy"
        " before it",
        backend_code=f"HTTP {status}",
    )


def _by_status(reply: Reply, endpoint: Endpoint, code: str) -> ProviderError | None:
    if down := sealed_or_down(reply, endpoint, code):
        return down
    match reply.status:
        case 401 | 403:
            return denied(endpoint, backend_code=code)
        case 404:
            return _nowhere(reply, endpoint)
        case 413:
            return ProviderError(
                ErrorReason.PAYLOAD_TOO_LARGE,
                f"the value for {endpoint} is larger than the server takes",
                backend_code=code,
            )
        case 429:
            return ProviderError(
                ErrorReason.RATE_LIMITED,
                f"a rate limit quota of {shown(endpoint.server)} is used up; requested {endpoint}",
                retry_after=_retry_after(reply),
                backend_code=code,
            )
        case 400 if reply.mentions("missing client token"):
            return dead_token(endpoint)
        case status if status in _REDIRECTS:
            return redirected(f"{shown(endpoint.server)} redirects to another address ({code}), which is not followed")
        case _:
            return None if reply.is_json else not_vault(endpoint, reply.status)


def _nowhere(reply: Reply, endpoint: Endpoint) -> ProviderError:
    """Return the error of a 404 whose cause is not a missing key."""
    if not reply.is_json or (reply.errors is None and not reply.json):
        return not_vault(endpoint, reply.status)
    if reply.mentions("namespace not found"):
        problem = f'namespace "{endpoint.namespace}" does not exist on {shown(endpoint.server)}; correct namespace'
    elif reply.mentions("no handler for route"):
        problem = f"no engine is mounted at {endpoint}; enable one, or correct path"
    else:
        problem = f"{endpoint} is not a path of a key/value engine; correct path and version"
    return misconfigured(problem, backend_code="HTTP 404")


def _retry_after(reply: Reply) -> float:
    header = reply.headers.get("retry-after", "")
    return min(float(header), 3600.0) if header.isdecimal() else 0.0
