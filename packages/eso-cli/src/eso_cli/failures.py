"""Finds all errors of a template; rendering itself stops at the first one.

The template is split into parts, and each part is rendered alone. The parts keep their places, so that errors name the
same lines as errors of the whole template.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from eso_api.externalsecret import Target
from eso_api.template import Template, TemplateFrom, TemplateMetadata, TemplateSource
from eso_api.validation import template_problems
from eso_render.errors import TargetError, TemplatePath
from eso_render.paths import parse
from eso_render.templates import ENGINE_VERSION

_NOTHING = TemplateFrom()


def failures(template: Template, target: Target | None, attempt: Callable[[Template], object]) -> list[TargetError]:
    """Return one error for each part that fails; none if only their combination fails.

    `attempt` renders a template, or raises. `target` is None for a push, whose template is not restricted.
    """
    found = {error.path: error for error in _denied(target)}
    for part in _parts(template):
        try:
            attempt(part.template)
        except TargetError as raised:
            error = part.placed(raised)
            found.setdefault(error.path, error)
    return list(found.values())


def _denied(target: Target | None) -> Iterator[TargetError]:
    above = ("spec", "target", "template")
    for problem in template_problems(target) if target else []:
        yield TargetError(str(problem), TemplatePath(parse(problem.path)[len(above) :]))


@dataclass(frozen=True, slots=True)
class _Part:
    """A template with one part of another template. `item` is the index of its only item in the original list."""

    template: Template
    item: int = 0

    def placed(self, error: TargetError) -> TargetError:
        match error.path.field:
            case (*above, "items", 0):
                path = error.path._replace(field=(*above, "items", self.item))
                return TargetError(str(error), path, phase=error.phase, line=error.line, column=error.column)
            case _:
                return error


def _parts(template: Template) -> Iterator[_Part]:
    """Yield the parts in the order in which they are rendered. The type is left out: `_denied` checks its rules."""
    empty = replace(template, type="", data={}, template_from=[], metadata=None)
    yield _Part(empty)  # can fail only because of the engine version
    bare = replace(empty, engine_version=ENGINE_VERSION)
    for index, entry in enumerate(template.template_from):
        before = [_NOTHING] * index
        for single, item in _singles(entry):
            yield _Part(replace(bare, template_from=[*before, single]), item)
    for key, text in sorted(template.data.items()):
        yield _Part(replace(bare, data={key: text}))
    metadata = template.metadata or TemplateMetadata()
    for key, text in sorted(metadata.labels.items()):
        yield _Part(replace(bare, metadata=TemplateMetadata(labels={key: text})))
    for key, text in sorted(metadata.annotations.items()):
        yield _Part(replace(bare, metadata=TemplateMetadata(annotations={key: text})))


def _singles(entry: TemplateFrom) -> Iterator[tuple[TemplateFrom, int]]:
    """Yield the entry once for each of its templates, with the index of the item."""
    alone = replace(entry, config_map=None, secret=None, literal=None)
    for source, index in _items(entry.config_map):
        yield replace(alone, config_map=source), index
    for source, index in _items(entry.secret):
        yield replace(alone, secret=source), index
    if entry.literal is not None:
        yield replace(alone, literal=entry.literal), 0


def _items(source: TemplateSource | None) -> Iterator[tuple[TemplateSource, int]]:
    if source is not None:
        for index, item in enumerate(source.items):
            yield replace(source, items=[item]), index
