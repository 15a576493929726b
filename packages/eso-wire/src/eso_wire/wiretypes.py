"""How the fields of a value travel, where their type alone does not say it.

`tools/gen_codec.py` reads these marks and writes `_generated/codec.py`. A text without a mark is a name that programs
compare: it stays whole or is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any


class OneOf:
    """The members of a oneof of the same name, each with its type."""

    def __init__(self, **members: Any) -> None:
        self.members = members


@dataclass(frozen=True, slots=True)
class Text:
    """A text or secret with functions of its own; `{name}` and `{read}` stand for the field and its value."""

    decode: str
    encode: str = ""


@dataclass(frozen=True, slots=True)
class UpTo:
    """The bound of a list or map; without it, it is MAX_SHORT_LIST."""

    bound: str


@dataclass(frozen=True, slots=True)
class Renamed:
    """The name of the field in the contract."""

    name: str


@dataclass(frozen=True, slots=True)
class Known:
    """Instead of an unknown choice, this one."""

    otherwise: str


class Drop:
    """A value with an unknown choice here is ignored as a whole: no call can use it."""


Key = Annotated[str, Text('remote_key("{name}", {read})')]
"""A remote key, property, path or pointer."""
Prose = Annotated[str, Text("prose({read})", "prose")]
"""A text for people: shortened instead of refused."""
ShortProse = Annotated[str, Text("prose({read}, bounds.MAX_NAME_CHARS)")]
TokenText = Text("token_of({read})", "token_text")
