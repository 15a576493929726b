"""The difference between a target as it is and as it would be, key by key. Pure; values leave it as digests only.

Keys of a Secret have their own name. Other parts of a target have a name with a prefix: `type`, `label:NAME`,
`annotation:NAME`; of a target that is not a Secret, the path of the field.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from eso_operator.targets.metadata import is_field_manager, parts_of
from kubebase.meta import JsonObject

_OWN: Final = ("reconcile.external-secrets.io/", "kubectl.kubernetes.io/")
"""Labels and annotations that describe the write, not the content."""
_NOT_CONTENT: Final = frozenset({"apiVersion", "kind", "metadata", "status"})


class Change(StrEnum):
    CREATE = "create"
    CHANGE = "change"
    REMOVE = "remove"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class KeyChange:
    """One key. An absent value has an empty digest."""

    key: str
    change: Change
    before: str = ""
    after: str = ""


Parts = Mapping[str, bytes]
Digest = Callable[[bytes], str]


def differences(before: JsonObject | None, after: JsonObject | None, digest: Digest) -> tuple[KeyChange, ...]:
    """Compare two states of a target. Parts of other writers are left out, unless they are removed."""
    old, new = parts(before), parts(after)
    others = frozenset() if _is_secret(after) else frozenset({*old, *new})  # of other kinds, writers are not known
    ours = managed(after) | others | {"type"}
    found = []
    for name in sorted({*old, *new}):
        change = change_of(old.get(name), new.get(name))
        if change is Change.REMOVE or name in ours:
            shown = [digest(side[name]) if name in side else "" for side in (old, new)]
            found.append(KeyChange(name, change, *shown))
    return tuple(found)


def change_of(before: bytes | None, after: bytes | None) -> Change:
    if before is None:
        return Change.CREATE
    if after is None:
        return Change.REMOVE
    return Change.UNCHANGED if before == after else Change.CHANGE


def parts(obj: JsonObject | None) -> Parts:
    """Return the content of a target by the name of each part."""
    if obj is None:
        return {}
    metadata = obj.get("metadata") or {}
    found = dict(_marks("label:", metadata.get("labels"))) | dict(_marks("annotation:", metadata.get("annotations")))
    if _is_secret(obj):
        if (kind := str(obj.get("type") or "Opaque")) != "Opaque":
            found["type"] = kind.encode()
        return found | {name: decoded(text) for name, text in (obj.get("data") or {}).items()}
    return found | dict(_leaves({name: part for name, part in obj.items() if name not in _NOT_CONTENT}, ""))


def managed(obj: JsonObject | None) -> frozenset[str]:
    """Return the names of the parts that ExternalSecrets wrote."""
    names = set()
    for path in parts_of(obj or {}, is_field_manager):
        match path:
            case ("data", name):
                names |= {name, f"data.{name}"}
            case ("metadata", "labels", name):
                names.add(f"label:{name}")
            case ("metadata", "annotations", name):
                names.add(f"annotation:{name}")
            case _:
                names.add(".".join(path))
    return frozenset(names)


def _is_secret(obj: JsonObject | None) -> bool:
    return obj is not None and obj.get("kind") == "Secret" and obj.get("apiVersion") == "v1"


def _marks(prefix: str, entries: Mapping[str, str] | None) -> Iterator[tuple[str, bytes]]:
    for name, text in (entries or {}).items():
        if not name.startswith(_OWN):
            yield f"{prefix}{name}", str(text).encode()


def _leaves(node: Any, path: str) -> Iterator[tuple[str, bytes]]:
    match node:
        case dict() if node:
            for name, member in node.items():
                yield from _leaves(member, f"{path}.{name}" if path else name)
        case list() if node:
            for index, member in enumerate(node):
                yield from _leaves(member, f"{path}[{index}]")
        case _:
            yield path, json.dumps(node).encode()


def decoded(text: str) -> bytes:
    """Return a value of a Secret."""
    try:
        return base64.b64decode(text)
    except (binascii.Error, ValueError):
        return text.encode()
