"""From a JSON answer to values: an optional JSONPath to one place in it, then the members of the object that is there.

Only paths to one place: what finds several gives a list, and a list has no keys to name values by. Pure; errors tell
of the path, never of what the answer holds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from eso_sdk.errors import backend_error
from gotmpl.errors import FuncError
from gotmpl.floats import plain, shortest_digits
from gotmpl.jsontext import JsonError, encode

Path = tuple[str | int, ...]
"""Names of members and indexes of lists."""

MAX_STEPS: Final = 64

_STEP: Final = re.compile(
    r"""\.(?P<name>[^\W\d][\w-]*)
      | \[\s*(?P<index>-?\d{1,9})\s*\]
      | \[\s*'(?P<single>(?:[^'\\]|\\.)*)'\s*\]
      | \[\s*"(?P<double>(?:[^"\\]|\\.)*)"\s*\]""",
    re.VERBOSE,
)
_SEVERAL: Final = re.compile(r"\.\.|\.\*|\[\s*[*?(:]|\[[^'\"\]]*[:,]|['\"]\s*,")
_ESCAPE: Final = re.compile(r"\\(.)")


class PathError(ValueError):
    """The text is no path, or not one to a single place."""


def parsed(text: str) -> Path:
    """The steps of a JSONPath; none for an empty one."""
    rest = text.strip()
    if rest and not rest.startswith("$"):
        raise PathError("must begin with $")
    steps: list[str | int] = []
    at = 1
    while at < len(rest):
        found = _STEP.match(rest, at)
        if found is None:
            raise PathError(_problem(rest, at))
        steps.append(_step(found))
        at = found.end()
    if len(steps) > MAX_STEPS:
        raise PathError(f"has more than {MAX_STEPS} steps")
    return tuple(steps)


def members(answer: bytes, path: Path = ()) -> dict[str, bytes]:
    """Every member of the object at the path, as bytes. A string there is read as JSON once more."""
    found = _at(_decoded(answer, "the answer of the endpoint is no JSON"), path)
    if isinstance(found, str):
        found = _decoded(found.encode(), f"what the answer has at {_spelled(path)} is text, but no JSON")
    if not isinstance(found, dict):
        raise backend_error(
            f"what the answer has at {_spelled(path)} is {_kind(found)}, and must be an object; set result.jsonPath"
        )
    return {name: _value(name, member) for name, member in found.items()}


def _problem(rest: str, at: int) -> str:
    if _SEVERAL.match(rest, at):
        return "may find several values, and must lead to one object"
    return f"cannot be read from character {at + 1} on; write $.name, $['name'] or $.list[0]"


def _step(found: re.Match[str]) -> str | int:
    match found.lastgroup:
        case "index":
            return int(found["index"])
        case "name":
            return found["name"]
        case other:
            return _ESCAPE.sub(r"\1", found[other or "single"])


def _decoded(text: bytes, complaint: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise backend_error(complaint) from None  # the decoder quotes what it found


def _at(found: Any, path: Path) -> Any:
    for done, step in enumerate(path, start=1):
        match found, step:
            case dict(), str() if step in found:
                found = found[step]
            case list(), int() if -len(found) <= step < len(found):
                found = found[step]
            case _:
                raise backend_error(f"the answer has nothing at {_spelled(path[:done])}; see result.jsonPath")
    return found


def _spelled(path: Path) -> str:
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else f"['{step}']" for step in path)


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case list():
            return "a list"
        case _:
            return "something else"


def _value(name: str, member: Any) -> bytes:
    """As the Go operator turns JSON into bytes, but for whole numbers: these keep all their digits."""
    match member:
        case str():
            return member.encode()
        case None:
            return b""
        case bool():
            return b"true" if member else b"false"
        case int():
            return str(member).encode()
        case float():
            sign, digits, exponent = shortest_digits(member)
            return (sign + plain(digits, exponent)).encode()
        case _:
            return _nested(name, member)


def _nested(name: str, member: Mapping[str, Any] | list[Any]) -> bytes:
    try:
        return encode(member).encode()
    except (JsonError, FuncError):
        raise backend_error(f'the member "{name}" of the answer is nested too deeply') from None
