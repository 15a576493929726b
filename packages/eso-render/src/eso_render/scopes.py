"""Render templates and write their results to the fields they name.

All kinds of objects use this path: `render_into` renders the templates in order with `render_text` and writes into a
`RenderedObject`. That of a Secret holds bytes and three maps; that of any other kind is a JSON object.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol, assert_never

from eso_api.values import SecretBytes
from eso_render.decoding import DecodingError, decode
from eso_render.errors import RenderError, TargetError
from eso_render.metering import YAML_NANOS, allow
from eso_render.paths import PathError
from eso_render.sources import Piece, Scope
from eso_render.yamldata import YamlError, document, flat_map


class RenderText(Protocol):
    """`eso_render.render_text`, or the same with other delimiters or another clock."""

    def __call__(self, template: str, values: Mapping[str, bytes], *, name: str) -> bytes: ...


class RenderedObject(Protocol):
    """The object being rendered."""

    @property
    def labels(self) -> dict[str, str]: ...

    @property
    def annotations(self) -> dict[str, str]: ...

    def put_data(self, key: str, value: bytes, /) -> None: ...

    def put_at(self, target: str, key: str, value: bytes, /) -> None:
        """Write one value to a field other than data, labels and annotations."""

    def put_document_at(self, target: str, content: Any, /) -> None:
        """Write a whole document to such a field."""


_GENERATED_KEY: Final = "(made by the template)"
"""Stands in messages for a key that is not in the template's own text, because it may be made from a value."""


_TEXT_FIELDS: Final = frozenset({"", "data", "labels", "annotations", "spec"})
"""Targets that take a value as text; all others parse it as YAML."""


class RenderedObjectError(ValueError):
    """The object cannot hold that. The message names keys and fields, never a value."""


def render_into(
    rendered_object: RenderedObject, pieces: Iterable[Piece], *, values: Mapping[str, SecretBytes], render: RenderText
) -> None:
    """Render all templates in order. The first error ends it; the object is then unusable."""
    revealed = {key: value.reveal() for key, value in values.items()}
    for piece in pieces:
        try:
            rendered = render(piece.text, revealed, name=piece.key)
            if piece.scope is Scope.KEYS_AND_VALUES or piece.target.lower() not in _TEXT_FIELDS:
                allow(render, YAML_NANOS * len(rendered))
            _put(rendered_object, piece, rendered)
        except RenderError as error:
            raise TargetError(str(error), piece.path, phase=error.phase, line=error.line, column=error.column) from None
        except YamlError as error:
            message = f"template at key {piece.key}: the rendered text cannot be used as YAML: {error}"
            raise TargetError(message, piece.path) from None
        except (DecodingError, PathError, RenderedObjectError) as error:
            raise TargetError(f"template at key {piece.key}: {error}", piece.path) from None


def as_text(value: bytes, what: str) -> str:
    """Decode the value as text: everything except the data of a Secret holds only text."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise RenderedObjectError(f"{what} would not be UTF-8 text; encode it, for example with b64enc") from None


def _put(rendered_object: RenderedObject, piece: Piece, rendered: bytes) -> None:
    match piece.scope:
        case Scope.VALUES:
            _put_value(rendered_object, piece.target, piece.key, decode(piece.decoding, rendered))
        case Scope.KEYS_AND_VALUES:
            _put_document(rendered_object, piece, rendered)
        case _:
            assert_never(piece.scope)


def _put_value(rendered_object: RenderedObject, target: str, key: str, value: bytes) -> None:
    match target.lower():
        case "" | "data":
            rendered_object.put_data(key, value)
        case "labels":
            rendered_object.labels[key] = as_text(value, f"label {key}")
        case "annotations":
            rendered_object.annotations[key] = as_text(value, f"annotation {key}")
        case _:
            rendered_object.put_at(target, key, value)


def _put_document(rendered_object: RenderedObject, piece: Piece, rendered: bytes) -> None:
    if piece.target.lower() not in {"", "data", "labels", "annotations"}:
        rendered_object.put_document_at(piece.target, document(rendered))
        return
    for key, value in flat_map(rendered).items():
        shown = key if key in piece.text else _GENERATED_KEY
        try:
            _put_value(rendered_object, piece.target, key, decode(piece.decoding, _single(value, shown).encode()))
        except DecodingError as error:
            raise DecodingError(f"key {shown}: {error}") from None
        except RenderedObjectError as error:
            raise RenderedObjectError(str(error).replace(key, shown)) from None


def _single(value: str | None, shown: str) -> str:
    if value is None:
        raise YamlError(f"key {shown} must be a single value, not a map or a list")
    return value
