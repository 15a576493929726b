"""Names of objects that are valid in the path of a request."""

from __future__ import annotations

from typing import Final

from eso_sdk.errors import invalid_request

_LONGEST: Final = 253


def checked_name(name: str) -> str:
    """Return the name if it is valid, else raise."""
    if not name or len(name) > _LONGEST or name in {".", ".."} or any(char in "/%" or char < "!" for char in name):
        shown = name if len(name) <= _LONGEST and name.isprintable() else "…"
        form = 'names consist of lower-case letters, digits, "-" and "."'
        raise invalid_request(f'"{shown}" cannot be the name of an object; {form}')
    return name
