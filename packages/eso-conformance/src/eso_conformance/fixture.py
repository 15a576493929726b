"""What a conformance run has to know of a provider: a configuration that works, and a few keys that exist.

    kinds:
      - kind: Notes
        spec: {url: "http://127.0.0.1:9999"}
        credentials: {/tokenSecretRef: "token"}
        known: [{key: greeting, value: hello}]
        maps: [{key: login, value: {user: anna}}]
        find: {name: "^greet", keys: [greeting]}
        invalid: [{}]

Everything but the kind may be left out: values are then pushed first, if the provider can be written to.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import msgspec

ENTRY_POINTS = "eso.conformance"


class FixtureError(ValueError):
    """A fixture that cannot be used; the text says why."""


class KnownValue(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A value that the backend has."""

    key: str
    value: str
    version: str = ""
    property: str = ""


class KnownMap(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A remote key with properties."""

    key: str
    value: dict[str, str]
    version: str = ""


class KnownFind(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A search and the keys it gives."""

    keys: list[str]
    name: str = ""
    path: str = ""
    tags: dict[str, str] = {}


class KindFixture(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One kind of configuration: how to set it up, and what it then gives."""

    kind: str
    group: str = ""
    spec: dict[str, Any] = {}
    credentials: dict[str, str] = {}
    known: list[KnownValue] = []
    maps: list[KnownMap] = []
    find: KnownFind | None = None
    absent: str = "conformance/no-such-key"
    writable: str = "conformance/"
    """Prefix of the keys that the write profile may create and delete."""
    property: str = ""
    """Property that the write profile pushes, reads and deletes; for backends that hold values under names in a key."""
    invalid: list[dict[str, Any]] = []
    """Configurations that must be refused."""


class Fixture(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is known of a provider."""

    kinds: list[KindFixture] = []

    def of(self, group: str, kind: str) -> KindFixture | None:
        return next((entry for entry in self.kinds if entry.kind == kind and entry.group in ("", group)), None)


def load(path: Path) -> Fixture:
    """The fixture in a YAML or JSON file."""
    try:
        return msgspec.yaml.decode(path.read_bytes(), type=Fixture)
    except OSError as problem:
        raise FixtureError(f"{path}: {problem.strerror}") from problem
    except msgspec.DecodeError as problem:
        raise FixtureError(f"{path}: {problem}") from problem


def installed(provider: str) -> Fixture:
    """The fixture that an installed provider brings along; an empty one if it brings none."""
    for entry_point in entry_points(group=ENTRY_POINTS, name=provider):
        return from_plain(entry_point.load())
    return Fixture()


def from_plain(plain: Mapping[str, Any]) -> Fixture:
    """A fixture written in Python."""
    try:
        return msgspec.convert(plain, Fixture)
    except msgspec.ValidationError as problem:
        raise FixtureError(str(problem)) from problem
