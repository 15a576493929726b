"""One decoded response of a server, with the address of its request."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final, NoReturn, TypeAlias
from urllib.parse import urlsplit

from eso_sdk.errors import MissingPathError, with_status
from eso_sdk.gjson_values import quoted
from eso_wire.errors import ErrorReason, ProviderError, RetryClass

# --- JSON as Vault writes it: numbers keep the digits they were written with -----------------------------------------
#
#     parse(b'{"n": 12345678901234567890}') -> {"n": Number("12345678901234567890")}
#     compact(...)                          -> the same text; keys sorted, `<`, `>` and `&` escaped as Go's encoder does
#
# `float` would round what has more than 53 bits, so no number of a response ever becomes one.


MAX_DEPTH: Final = 256


class NotJsonError(ValueError):
    """The text is not JSON, or is nested too deeply. The message never quotes the text."""


@dataclass(frozen=True, slots=True)
class Number:
    """A JSON number, as written."""

    text: str

    def exact(self) -> Decimal:
        """Return the value of the number, with all its digits."""
        return Decimal(self.text)

    @property
    def fits_a_float(self) -> bool:
        """Tell whether a server that stores 64-bit floats gives the same number back."""
        return Decimal(repr(float(self.text))) == self.exact()


Json: TypeAlias = "bool | str | Number | list[Json] | dict[str, Json] | None"
Members: TypeAlias = "dict[str, Json]"


def parse(raw: bytes) -> Json:
    """Decode a JSON text; raise `NotJsonError` if it is not JSON."""
    try:
        parsed: Json = json.loads(raw, parse_int=Number, parse_float=Number, parse_constant=_refuse)
    except (ValueError, RecursionError):
        # The decoder's own message quotes the text.
        raise NotJsonError("the text is not JSON") from None
    return parsed


def compact(document: Json) -> bytes:
    """Encode as Go's encoder does: no blanks, keys sorted, safe inside HTML, numbers as written."""
    return b"".join(_pieces(document, 0))


def text_of(value: Json) -> bytes:
    """Return one member as a secret value: strings unquoted, null empty, everything else as JSON."""
    match value:
        case None:
            return b""
        case str():
            return _utf8(value)
        case _:
            return compact(value)


def members(document: Json) -> Members:
    """Return the members of an object; none if it is not an object."""
    return document if isinstance(document, dict) else {}


def text(document: Json, *path: str) -> str:
    """Return the string at a path of members; empty if there is none."""
    found = at(document, *path)
    return found if isinstance(found, str) else ""


def integer(document: Json, *path: str) -> int | None:
    """Return the whole number at a path of members; None if there is none."""
    found = at(document, *path)
    if isinstance(found, Number) and len(found.text) <= 19:
        try:
            return int(found.text)
        except ValueError:
            return None
    return None


def at(document: Json, *path: str) -> Json:
    """Return the value at a path of members; None if a member is missing."""
    for name in path:
        document = members(document).get(name)
    return document


def same(one: Json, other: Json) -> bool:
    """Compare by meaning: the order of members and the spelling of a number do not matter."""
    match one, other:
        case Number(), Number():
            return one.text == other.text or one.exact() == other.exact()
        case dict(), dict():
            return one.keys() == other.keys() and all(same(value, other[name]) for name, value in one.items())
        case list(), list():
            return len(one) == len(other) and all(same(*pair) for pair in zip(one, other, strict=True))
        case _:
            return type(one) is type(other) and one == other


def _pieces(value: Json, depth: int) -> list[bytes]:
    if depth > MAX_DEPTH:
        raise NotJsonError(f"the document is nested deeper than {MAX_DEPTH} levels")
    match value:
        case None:
            return [b"null"]
        case bool():
            return [b"true" if value else b"false"]
        case str():
            return [quoted(_utf8(value))]
        case Number(text=digits):
            return [digits.encode()]
        case list():
            return _joined(b"[", [_pieces(entry, depth + 1) for entry in value], b"]")
        case dict():
            encoded = ((_utf8(name), entry) for name, entry in value.items())
            entries = [[quoted(name), b":", *_pieces(entry, depth + 1)] for name, entry in sorted(encoded, key=_name)]
            return _joined(b"{", entries, b"}")


def _name(member: tuple[bytes, Json]) -> bytes:
    return member[0]


def _joined(opening: bytes, entries: list[list[bytes]], closing: bytes) -> list[bytes]:
    pieces = [opening]
    for position, entry in enumerate(entries):
        if position:
            pieces.append(b",")
        pieces += entry
    return [*pieces, closing]


def _utf8(value: str) -> bytes:
    """Encode as UTF-8; half a surrogate pair, which JSON permits, becomes U+FFFD as in Go."""
    try:
        return value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


def _refuse(_constant: str) -> NoReturn:
    raise ValueError


# --- One decoded response of a server, with the address of its request -----------------------------------------------


_OK: Final = range(200, 300)


@dataclass(frozen=True, slots=True)
class Reply:
    """The response of a server. `repr` shows nothing of the body: it may contain secrets or repeat the request."""

    status: int
    json: Json = field(repr=False)
    """The decoded body; None when it is empty."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Header names are lower-case."""
    is_json: bool = True
    """False if the body is not a JSON object: then a proxy responded, not Vault."""

    @property
    def ok(self) -> bool:
        return self.status in _OK

    @property
    def data(self) -> Members:
        return members(at(self.json, "data"))

    @property
    def errors(self) -> tuple[str, ...] | None:
        """Return the list `errors`, to classify by; never quote it. None if the body has none."""
        found = at(self.json, "errors")
        return tuple(str(entry) for entry in found) if isinstance(found, list) else None

    def mentions(self, text: str) -> bool:
        """Return whether an error of the body has this text."""
        return any(text in error.lower() for error in self.errors or ())


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Server, namespace and path of a request, for messages."""

    server: str
    path: str
    namespace: str = ""
    has_auth: bool = True
    """False if the store has no `auth`: then its requests carry no token."""

    def __str__(self) -> str:
        inside = f', namespace "{self.namespace}"' if self.namespace else ""
        return f'"{self.path}" (server {shown(self.server)}{inside})'


def shown(server: str) -> str:
    """Return an address for messages, without user and password."""
    parts = urlsplit(server)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


# --- The mapping of error responses (status and body) to `ProviderError` ---------------------------------------------
#
#     503 sealed, 5xx, 472, 473, 412   BACKEND_UNAVAILABLE
#     429                              RATE_LIMITED
#     413                              PAYLOAD_TOO_LARGE
#     403                              PERMISSION_DENIED; of a login or a dead token CREDENTIALS_REJECTED
#     404                              CONFIG_INVALID; only `reading.py` decides that a key does not exist
#     anything that is not Vault's     BACKEND_ERROR
#
# Bodies are used to classify and are not quoted: several backends repeat the request in them. Only a refused login
# shows the server's own message, masked (`auth/login.py`).


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
