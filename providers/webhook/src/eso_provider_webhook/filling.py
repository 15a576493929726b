"""The computations that users define: their templates and their paths into responses. Pure; `offloop.py` runs them.

This module does not import the HTTP client, because every worker process loads it with its imports.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from eso_provider_webhook import jsonanswer
from eso_render.errors import RenderError
from eso_render.jobs import TextRenderer
from eso_render.metering import TooSlowError, allow
from eso_sdk.errors import invalid_config

Secrets = Mapping[str, Mapping[str, bytes]]
"""The keys of Secrets, by the name that the configuration gives each Secret."""

_JSON_NANOS: Final = 1_000
_FOREVER: Final = 10**12


@dataclass(frozen=True, slots=True)
class Piece:
    """One template with its values."""

    template: str
    groups: Secrets = field(repr=False)


def fill(pieces: Mapping[str, Piece], *, render: TextRenderer) -> dict[str, bytes]:
    """Fill in templates, by their fields in the configuration.

    The first error is raised, with the name of its field.
    """
    filled: dict[str, bytes] = {}
    for path, piece in pieces.items():
        try:
            filled[path] = render.groups(piece.template, piece.groups, name=path.removeprefix("/"))
        except TooSlowError:
            raise
        except RenderError as exc:
            raise invalid_config(path, str(exc)) from None
    return filled


def single(answer: bytes, path: str, *, render: TextRenderer) -> bytes:
    """Call `jsonanswer.single` with the path as text."""
    allow(render, _nanos(answer, path))
    return jsonanswer.single(answer, jsonanswer.path_of(path))


def members(answer: bytes, path: str, *, render: TextRenderer) -> dict[str, bytes]:
    """Call `jsonanswer.members` with the path as text."""
    allow(render, _nanos(answer, path))
    return jsonanswer.members(answer, jsonanswer.path_of(path))


def _nanos(answer: bytes, path: str) -> int:
    """Return the time limit in nanoseconds. A path that descends to any depth may visit one place many times."""
    return _FOREVER if ".." in path else _JSON_NANOS * (len(answer) + len(path))
