"""The names of objects and of kinds."""

from __future__ import annotations

from typing import NamedTuple

from eso_wire.errors import Subject

ObjectRef = Subject
"""An object by name, with its uid and generation."""


class KindId(NamedTuple):
    """Group, version and kind of a configuration."""

    group: str
    version: str
    kind: str

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def __str__(self) -> str:
        return f"{self.kind}.{self.version}.{self.group}"
