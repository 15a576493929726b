"""The templates of one object: collected in order, rendered, decoded, and written to the fields they name.

    pieces -> render_into -> RenderedObject

The caller reads ConfigMaps and Secrets with templates beforehand (`eso_api.template.template_references` names them)
and passes them as `TemplateObjects`. All kinds of objects are rendered by `render_into`: that of a Secret holds bytes
and three maps; that of any other kind is a JSON object.

YAML from templates and users is read as Kubernetes tools written in Go read it; unlike in `fromYaml`, whole numbers
stay integers. Messages name keys, strategies and lines; they never contain a value.
"""

from __future__ import annotations

import binascii
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Protocol, TypeVar, assert_never

from eso_api.template import Template, TemplateFrom, TemplateItem, TemplateSource
from eso_api.values import SecretBytes
from eso_render.errors import RenderError, TargetError, TemplatePath
from eso_render.functions.yamlreader import float_key
from eso_render.metering import YAML_NANOS, allow
from eso_render.paths import PathError
from gotmpl.floats import format_float32
from gotmpl.values import to_text
from kubebase.hints import with_hint
from kubebase.yamlvalues import Rules, YamlError, read_all, read_first

# --- templates in order -----------------------------------------------------------------------------------------------


ENGINE_VERSION = "v2"

Held = TypeVar("Held", bound=Mapping[str, object])


class Scope(Enum):
    """The result of a template: one value under its key, or a YAML map of keys and values."""

    VALUES = "Values"
    KEYS_AND_VALUES = "KeysAndValues"


@dataclass(frozen=True, slots=True)
class Piece:
    """One template to render. `key` names it in messages, and is the key of a single value."""

    key: str
    text: str = field(repr=False)
    target: str
    scope: Scope
    decoding: str
    path: TemplatePath


@dataclass(frozen=True, slots=True)
class TemplateObjects:
    """The content of the ConfigMaps and Secrets with templates, by name."""

    config_maps: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    secrets: Mapping[str, Mapping[str, SecretBytes]] = field(default_factory=dict, repr=False)


TemplateReader = Callable[[TemplateFrom, int, TemplateObjects], Iterator[Piece]]
"""Yields the templates of one kind of source in one entry of templateFrom."""


def pieces(template: Template, objects: TemplateObjects, order: tuple[TemplateReader, ...]) -> Iterator[Piece]:
    """Yield every template of the object. Later ones win: templateFrom, then data, then labels, then annotations."""
    if template.engine_version != ENGINE_VERSION:
        message = f"unsupported template engine version {template.engine_version}; use {ENGINE_VERSION}"
        raise TargetError(message, TemplatePath(("engineVersion",)))
    for index, entry in enumerate(template.template_from):
        for reader in order:
            yield from reader(entry, index, objects)
    yield from _values(template.data, "Data", ("data",))
    if template.metadata:
        yield from _values(template.metadata.labels, "Labels", ("metadata", "labels"))
        yield from _values(template.metadata.annotations, "Annotations", ("metadata", "annotations"))


def in_config_map(entry: TemplateFrom, index: int, objects: TemplateObjects) -> Iterator[Piece]:
    """Yield the templates in the `data` of a ConfigMap; `binaryData` is ignored."""
    if source := entry.config_map:
        path = TemplatePath(("templateFrom", index, "configMap"), "ConfigMap", source.name)
        held = _found(objects.config_maps, path)
        yield from _items(entry, source, held, path)


def in_secret(entry: TemplateFrom, index: int, objects: TemplateObjects) -> Iterator[Piece]:
    """Yield the templates in a Secret."""
    if source := entry.secret:
        path = TemplatePath(("templateFrom", index, "secret"), "Secret", source.name)
        held = _found(objects.secrets, path)
        wanted = {item.key for item in source.items} & held.keys()
        yield from _items(entry, source, {key: to_text(held[key].reveal()) for key in wanted}, path)


def in_literal(entry: TemplateFrom, index: int, _objects: TemplateObjects) -> Iterator[Piece]:
    """Yield the template in the entry itself."""
    if entry.literal is not None:
        # The Go operator uses the whole text as the name of such a template, which makes messages unreadable.
        name = f"templateFrom[{index}].literal"
        path = TemplatePath(("templateFrom", index, "literal"))
        decoding = entry.values_decoding_strategy
        yield Piece(name, entry.literal, entry.target, Scope.KEYS_AND_VALUES, decoding, path)


SECRET_ORDER: tuple[TemplateReader, ...] = (in_config_map, in_secret, in_literal)
MANIFEST_ORDER: tuple[TemplateReader, ...] = (in_literal, in_config_map, in_secret)
"""The two orders differ only for an entry with several sources, of which the last one wins."""


def _values(templates: Mapping[str, str], target: str, field_path: tuple[str, ...]) -> Iterator[Piece]:
    for key in sorted(templates):
        yield Piece(key, templates[key], target, Scope.VALUES, "None", TemplatePath((*field_path, key)))


def _found(objects: Mapping[str, Held], path: TemplatePath) -> Held:
    if path.name not in objects:
        raise TargetError(f"{path.kind} {path.name}, which holds templates, was not found", path)
    return objects[path.name]


def _items(entry: TemplateFrom, source: TemplateSource, held: Mapping[str, str], path: TemplatePath) -> Iterator[Piece]:
    for index, item in enumerate(source.items):
        where = path._replace(field=(*path.field, "items", index), key=item.key)
        if item.key not in held:
            problem = f"{path.kind} {path.name} has no key {item.key}, which should hold a template"
            raise TargetError(with_hint(problem, item.key, held), where)
        yield Piece(item.key, held[item.key], entry.target, _scope(item, where), entry.values_decoding_strategy, where)


def _scope(item: TemplateItem, path: TemplatePath) -> Scope:
    try:
        return Scope(item.template_as)
    except ValueError:
        message = f"templateAs {item.template_as} is unknown; use Values or KeysAndValues"
        raise TargetError(message, path) from None


# --- decoding ---------------------------------------------------------------------------------------------------------


_STANDARD = re.compile(rb"[A-Za-z0-9+/]*={0,2}")
_URL = re.compile(rb"[A-Za-z0-9_-]*={0,2}")
_URL_TO_STANDARD = bytes.maketrans(b"-_", b"+/")


class DecodingError(ValueError):
    """The value does not fit the strategy, or the strategy does not exist."""


def decode(strategy: str, value: bytes) -> bytes:
    """Decode the value. Auto never fails: valid Base64 is decoded, any other text is kept."""
    match strategy:
        case "" | "None":
            return value
        case "Base64":
            return _required(_base64(value), strategy)
        case "Base64URL":
            return _required(_base64url(value), strategy)
        case "Auto":
            return next((raw for raw in (_base64(value), _base64url(value)) if raw is not None), value)
        case _:
            raise DecodingError(f"decoding strategy {strategy} is not supported; use Auto, Base64, Base64URL or None")


def _required(decoded: bytes | None, strategy: str) -> bytes:
    if decoded is None:
        raise DecodingError(f"the value is not valid {strategy}")
    return decoded


def _base64(value: bytes) -> bytes | None:
    """Decode RFC 4648 Base64 with padding. As in Go, line breaks are allowed anywhere, other stray bytes are not."""
    return _decoded(value.translate(None, b"\r\n"), _STANDARD)


def _base64url(value: bytes) -> bytes | None:
    return _decoded(value.translate(None, b"\r\n"), _URL)


def _decoded(value: bytes, alphabet: re.Pattern[bytes]) -> bytes | None:
    if len(value) % 4 or not alphabet.fullmatch(value):
        return None
    return binascii.a2b_base64(value.translate(_URL_TO_STANDARD))


# --- YAML -------------------------------------------------------------------------------------------------------------


_YAML_RULES: Final = Rules(float_key=float_key, ignores_unknown_tags=True)


def document(raw: bytes) -> Any:
    """Return the first document as JSON: maps, lists, text, numbers, booleans and null. An empty text is null."""
    value = read_first(raw, _YAML_RULES)
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        raise YamlError("JSON cannot hold infinity and not-a-number") from None
    return value


def documents(raw: bytes) -> list[Any]:
    """Return all documents of a file."""
    return read_all(raw, _YAML_RULES)


def flat_map(raw: bytes) -> dict[str, str | None]:
    """Return a map of keys to scalars as text; None for a map or a list. An empty text is an empty map."""
    entries = read_first(raw, _YAML_RULES)
    if entries is None:
        return {}
    if not isinstance(entries, dict):
        raise YamlError("a YAML map of keys and values is needed")
    return {key: _scalar_text(value) for key, value in entries.items()}


def _scalar_text(value: Any) -> str | None:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return format_float32(value)
        case str():
            return value
        case _:
            return None


# --- rendering --------------------------------------------------------------------------------------------------------


class RenderText(Protocol):
    """`eso_render.render_text`, or the same with other delimiters or another clock."""

    def __call__(self, template: str, values: Mapping[str, bytes], *, name: str) -> bytes: ...


class RenderedObject(ABC):
    """The object being rendered."""

    @property
    @abstractmethod
    def labels(self) -> dict[str, str]: ...

    @property
    @abstractmethod
    def annotations(self) -> dict[str, str]: ...

    @abstractmethod
    def put_data(self, key: str, value: bytes, /) -> None: ...

    @abstractmethod
    def put_at(self, target: str, key: str, value: bytes, /) -> None:
        """Write one value to a field other than data, labels and annotations."""

    @abstractmethod
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


def _put_value(rendered_object: RenderedObject, target: str, key: str, value: bytes, /) -> None:
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
