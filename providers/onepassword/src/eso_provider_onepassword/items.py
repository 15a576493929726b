"""Items as both forms of 1Password have them, and the part of an item that a reference names.

| `property` | part |
|---|---|
| absent | the field `password`; the first file of a document |
| `field/LABEL`, `file/NAME` | that field, that file |
| any other | a file of this name if the item is a document, else a field of this label |
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from eso_sdk.errors import invalid_request, property_not_found

DEFAULT_FIELD: Final = "password"
DOCUMENT: Final = "DOCUMENT"

_ID: Final = re.compile(r"[0-9a-z]{26}")
_FIELD, _FILE = "field/", "file/"

T = TypeVar("T", "Field", "File")


@dataclass(frozen=True, slots=True)
class Vault:
    """A vault. `version` changes with every change of its contents."""

    id: str
    name: str
    version: str
    count: int = 0
    """How many items it has."""


@dataclass(frozen=True, slots=True)
class Overview:
    """An item without its values. `version` changes with every change of the item."""

    id: str
    vault: str
    title: str
    version: str
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Field:
    """A field of an item. `value` is secret."""

    label: str
    value: str = field(repr=False)
    id: str = ""
    is_note: bool = False
    """Whether it is the field for notes that 1Password adds to items."""


@dataclass(frozen=True, slots=True)
class File:
    """A file of an item, without its content."""

    id: str
    name: str
    size: int = 0
    origin: Any = field(default=None, repr=False)
    """The file as the backend describes it."""


@dataclass(frozen=True, slots=True)
class Item:
    """An item with the values of its fields."""

    overview: Overview
    category: str
    fields: tuple[Field, ...] = ()
    files: tuple[File, ...] = ()
    sections: int = 0
    whole: bool = False
    """Whether External Secrets created it from a whole Secret."""
    origin: Any = field(default=None, repr=False)
    """The item as the backend describes it, so that a write changes nothing else."""

    @property
    def size(self) -> int:
        """Return about how many bytes the item occupies."""
        return 1024 + sum(256 + len(each.value) for each in self.fields)


def is_id(text: str) -> bool:
    """Return whether a text has the form of an id: 26 small letters and digits."""
    return _ID.fullmatch(text) is not None


def part_of(item: Item, key: str, name: str) -> Field | File:
    """Return the one field or file that a property names."""
    if not _names_file(item, name):
        label = name.removeprefix(_FIELD) or DEFAULT_FIELD
        fields = [each for each in item.fields if each.label == label]
        return _only(fields, key, label, [each.label for each in item.fields])
    label = name.removeprefix(_FILE)
    if not label and item.files:
        return item.files[0]
    files = [each for each in item.files if each.name == label]
    return _only(files, key, label, [each.name for each in item.files])


def parts_of(item: Item, name: str) -> Sequence[Field | File]:
    """Return all fields, or all files of a document; a property selects among them."""
    if _names_file(item, name):
        label = name.removeprefix(_FILE)
        return [each for each in item.files if label in ("", each.name)]
    label = name.removeprefix(_FIELD)
    return [each for each in item.fields if label in ("", each.label)]


def all_parts_of(item: Item) -> Sequence[Field | File]:
    """Return all fields and all files."""
    return (*item.fields, *item.files)


def name_of(part: Field | File) -> str:
    return part.label if isinstance(part, Field) else part.name


def _names_file(item: Item, name: str) -> bool:
    if name.startswith((_FIELD, _FILE)):
        return name.startswith(_FILE)
    return item.category == DOCUMENT


def _only(found: Sequence[T], key: str, name: str, known: Iterable[str]) -> T:
    if not found:
        raise property_not_found(key, name, known=known)
    if len(found) > 1:
        raise invalid_request(f'"{key}" has {len(found)} parts named "{name}"; rename all but one in 1Password')
    return found[0]
