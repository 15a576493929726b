"""What is inside a remote value: the members of a JSON object."""

from __future__ import annotations

import msgspec


class NotAnObjectError(ValueError):
    """The value is no JSON object. Says nothing about the value."""


def json_map(raw: bytes) -> dict[str, bytes]:
    """The members of a JSON object: strings unquoted, null as nothing, everything else as it is written."""
    try:
        members = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        return {name: _member(bytes(member)) for name, member in members.items()}
    except (msgspec.DecodeError, UnicodeDecodeError):
        # A decoding error quotes what it found.
        raise NotAnObjectError("the value is no JSON object") from None


def _member(text: bytes) -> bytes:
    if text == b"null":
        return b""
    return msgspec.json.decode(text, type=str).encode() if text.startswith(b'"') else text
