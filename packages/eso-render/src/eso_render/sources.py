"""The templates of one object in rendering order, from all their sources.

The caller reads ConfigMaps and Secrets with templates beforehand (`eso_api.template.template_references` names them)
and passes them as `TemplateObjects`; this module only finds the keys in them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

from eso_api.template import Template, TemplateFrom, TemplateItem, TemplateSource
from eso_api.values import SecretBytes
from eso_render.errors import TargetError, TemplatePath
from gotmpl.values import to_text
from kubebase.hints import with_hint

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
