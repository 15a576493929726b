"""The inputs of a conformance run: a working configuration, and a few existing keys.

    kinds:
    - kind: Notes
      spec: {url: "http://127.0.0.1:9999"}
      credentials: {/tokenSecretRef: "token"}
      tokens: {/serviceAccountRef: "eyJ..."}
      known: [{key: greeting, value: hello}]
      maps: [{key: login, value: {user: anna}}]
      find: {name: "^greet", keys: [greeting]}
      invalid: [{}]

Everything except the kind is optional: without known values, the run pushes its own if the provider supports it.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import msgspec

ENTRY_POINTS = "eso.conformance"


class FixtureError(ValueError):
    """The fixture is unusable; the text says why."""


class KnownValue(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A value that exists at the backend."""

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
    """A search and the keys it finds."""

    keys: list[str]
    name: str = ""
    path: str = ""
    tags: dict[str, str] = {}


class KindFixture(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One kind of configuration: how to set it up, and the values it gives."""

    kind: str
    group: str = ""
    spec: dict[str, Any] = {}
    credentials: dict[str, str] = {}
    tokens: dict[str, str] = {}
    """Tokens of service accounts, by the pointer of the reference."""
    known: list[KnownValue] = []
    maps: list[KnownMap] = []
    find: KnownFind | None = None
    absent: str = "conformance/no-such-key"
    writable: str = "conformance/"
    """Prefix of the keys that the write profile may create and delete."""
    property: str = ""
    """Property that the write profile pushes, reads and deletes, for backends that store named values in a key."""
    invalid: list[dict[str, Any]] = []
    """Configurations that must be refused."""
    failing: list[str] = []
    """Keys for which the backend answers with its own error: an HTML page, or JSON with a message."""
    ownership: bool = True
    """Whether the provider stores the owner of a pushed value. False for a backend without a place for it."""


class Fixture(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fixtures of a provider."""

    kinds: list[KindFixture] = []

    def of(self, group: str, kind: str) -> KindFixture | None:
        return next((entry for entry in self.kinds if entry.kind == kind and entry.group in ("", group)), None)


def load(path: Path) -> Fixture:
    """Load the fixture from a YAML or JSON file."""
    try:
        return msgspec.yaml.decode(path.read_bytes(), type=Fixture)
    except OSError as problem:
        raise FixtureError(f"{path}: {problem.strerror}") from problem
    except msgspec.DecodeError as problem:
        raise FixtureError(f"{path}: {problem}") from problem


def installed(provider: str) -> Fixture:
    """Return the fixture of an installed provider; an empty one if it has none."""
    for entry_point in entry_points(group=ENTRY_POINTS, name=provider):
        return from_plain(entry_point.load())
    return Fixture()


def from_plain(plain: Mapping[str, Any]) -> Fixture:
    """Build a fixture from plain Python data."""
    try:
        return msgspec.convert(plain, Fixture)
    except msgspec.ValidationError as problem:
        raise FixtureError(str(problem)) from problem
