"""`spec.provider.fake`: values written in the store itself."""

from __future__ import annotations

from eso_api.shapes import Fragment


class FakeValue(Fragment, frozen=True, kw_only=True):
    """One remote secret."""

    key: str
    """Name of the remote secret."""
    value: str = ""
    """Its value."""
    value_map: dict[str, str] = {}
    """Its properties, if it has several; an older form of a value that is a JSON object."""
    version: str = ""
    """Version that a remote reference must ask for."""


class FakeProvider(Fragment, frozen=True, kw_only=True):
    """Values written in the store itself, for tests and demonstrations."""

    data: list[FakeValue]
    """The remote secrets."""
    validation_result: int = 0
    """Result of the validation: 0 ready, 1 unknown, 2 error."""
