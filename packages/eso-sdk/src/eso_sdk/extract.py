"""Access to the inside of a remote value: a property by gjson path, the members of a JSON object, a push's payload."""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Any, Final

import msgspec

from eso_api.values import SecretBytes
from eso_sdk.backend import CURRENT_CALL
from eso_sdk.errors import invalid_request, property_not_found, unsupported
from eso_sdk.lookups import Job, Outcome, perform
from eso_wire.values import PushItem, RemoteRef
from kubebase.hints import similar
from kubebase.redaction import Redactor

_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")
_PLAIN_PATH: Final = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_SUGGESTED: Final = 3
_HINT_WORK: Final = 64
"""Work of a hint for each byte of the value."""


class NotAnObjectError(ValueError):
    """The value is not a JSON object. The message does not quote the value."""


async def property_of(raw: bytes, path: str, key: str = "") -> bytes | None:
    """Return the property at a gjson path; None if there is none. A null exists, and is empty.

    An expensive path is evaluated in another process, and refused if it is too expensive for the call (`lookups.py`).
    `key` is the remote key, for errors.
    """
    outcome = await outcome_of(Job("get", raw, path), key)
    if outcome.problem:
        raise invalid_request(f"the property cannot be looked up: {outcome.problem}")
    return outcome.value


async def outcome_of(job: Job, key: str = "") -> Outcome:
    """Do a job within the budgets of the call that is being answered."""
    call = CURRENT_CALL.get(None)
    return perform(job) if call is None or call.lookups is None else await call.lookups.run(job, key)


async def property_in(raw: bytes, ref: RemoteRef) -> bytes:
    """Return the property that a reference names, or the whole value if it names none."""
    found = await property_of(raw, ref.property, ref.key) if ref.property else raw
    if found is None:
        raise property_not_found(ref.key, ref.property, known=property_names(raw, ref.property))
    return found


def property_names(raw: bytes, path: str) -> list[str]:
    """Return paths to the properties of a JSON value that an author may have meant with a path, for a hint.

    They have the names beside the first name of the path that does not exist. A name that occurs in a value is left
    out: only names may be shown. Paths of other forms than `a.b` give none, nor do large values.
    """
    call = CURRENT_CALL.get(None)
    if not _PLAIN_PATH.fullmatch(path):
        return []
    if call is not None and call.lookups is not None and not call.lookups.take_inline(_HINT_WORK * len(raw)):
        return []
    try:
        level: Any = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    parts, walked = path.split("."), 0
    while isinstance(level, dict) and walked < len(parts) - 1 and parts[walked] in level:
        level, walked = level[parts[walked]], walked + 1
    if not isinstance(level, dict):
        return []
    before, after = parts[:walked], parts[walked + 1 :]
    close = similar(parts[walked], (name for name in level if _PLAIN_NAME.fullmatch(name)), count=_SUGGESTED)
    redactor = Redactor([raw])
    return [".".join((*before, name, *after)) for name in close if redactor.text(name) == name]


def pushed_value(item: PushItem) -> bytes:
    """Return the value of a push. Whole Secrets reach only stores that declare them with `@pushes`."""
    if isinstance(item.payload, SecretBytes):
        return item.payload.reveal()
    raise unsupported(f'"{item.remote.key}" takes one value, not a whole Secret')


def json_map(raw: bytes) -> dict[str, bytes]:
    """Return the members of a JSON object: strings unquoted, null as empty bytes, all others as written."""
    try:
        members = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        return {name: _member(bytes(member)) for name, member in members.items()}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # A decoding error quotes the value.
        raise NotAnObjectError("the value is no JSON object") from None


def _member(text: bytes) -> bytes:
    if text == b"null":
        return b""
    return msgspec.json.decode(text, type=str).encode() if text.startswith(b'"') else text


# --- names with dots -------------------------------------------------------------------------------------------------


class Dots(Enum):
    """What a name with dots means if the value has both a member of that name and the path."""

    MEMBER_FIRST = auto()
    PATH_FIRST = auto()


async def part_of(value: bytes, ref: RemoteRef, dots: Dots = Dots.MEMBER_FIRST) -> bytes:
    """Return a property of a value, or the whole value."""
    if not ref.property:
        return value
    found = await property_of(value, await path_in(value, ref.property, dots, ref.key), ref.key)
    if found is None:
        raise property_not_found(ref.key, ref.property, known=property_names(value, ref.property))
    return found


async def path_in(value: bytes, name: str, dots: Dots = Dots.MEMBER_FIRST, key: str = "") -> str:
    """Return the path to a property. If a member of that name is meant, its dots are escaped."""
    literal = name.replace(".", "\\.")
    if "." not in name or await property_of(value, literal, key) is None:
        return name
    return name if dots is Dots.PATH_FIRST and await property_of(value, name, key) is not None else literal
