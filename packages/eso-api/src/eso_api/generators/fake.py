"""Fake: fixed values, for tests and demonstrations."""

from __future__ import annotations

import msgspec

from eso_api.generators.definition import generator_kind
from eso_api.shapes import Fragment
from kubebase.meta import Object


class FakeSpec(Fragment, frozen=True, kw_only=True):
    """The values."""

    data: dict[str, str] = {}
    """Keys and values."""
    controller: str = ""
    """Class of the operator that handles this generator."""


class Fake(Object, kw_only=True):
    """Fixed values, for tests and demonstrations."""

    spec: FakeSpec = msgspec.field(default_factory=FakeSpec)


FAKE = generator_kind(Fake, "fakes")
