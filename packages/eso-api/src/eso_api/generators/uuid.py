"""UUID: random identifiers, version 4."""

from __future__ import annotations

import msgspec

from eso_api.generators.definition import generator_kind
from eso_api.shapes import Fragment
from kubebase.meta import Object


class UUIDSpec(Fragment, frozen=True, kw_only=True):
    """This generator has no settings."""


class UUID(Object, kw_only=True):
    """Random identifiers, version 4."""

    spec: UUIDSpec = msgspec.field(default_factory=UUIDSpec)


UUID_KIND = generator_kind(UUID, "uuids")
