"""gotmpl with all functions, and error messages as users of the operator know them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING

from eso_render.errors import RenderError
from eso_render.metering import busy_seconds, wall_nanos
from gotmpl.errors import LimitError, ParseError, TemplateError
from gotmpl.run import MissingKey, TemplateLimits
from gotmpl.values import StrMap, Value, to_bytes

if TYPE_CHECKING:
    from gotmpl.template import Engine


class Renderer:
    """Renders templates with one clock and one set of limits, and caches compiled templates."""

    def __init__(
        self,
        clock: Callable[[], int] = wall_nanos,
        limits: TemplateLimits | None = None,
        *,
        missing: MissingKey = MissingKey.ERROR,
        engine: Engine | None = None,
    ) -> None:
        # Loads the parser and the functions with the first renderer, because many importers never render.
        from eso_render.functions import functions
        from gotmpl.template import Engine

        self._engine = engine or Engine(functions(clock), limits or TemplateLimits(clock=busy_seconds), missing=missing)

    def render(
        self, template: str, values: Mapping[str, bytes], *, name: str = "tpl", left: str = "{{", right: str = "}}"
    ) -> bytes:
        """Render one template with one set of values; `name` is the key that messages mention."""
        try:
            return to_bytes(self._engine.render(template, _text_map(values), name=name, left=left, right=right))
        except TemplateError as exc:
            raise _render_error(exc, name) from None

    def render_groups(self, template: str, groups: Mapping[str, Mapping[str, bytes]], *, name: str = "tpl") -> bytes:
        """Render a template with several named sets of values: `{{ .group.key }}`."""
        data: Value = {group: _text_map(values) for group, values in groups.items()}
        try:
            return to_bytes(self._engine.render(template, data, name=name))
        except TemplateError as exc:
            raise _render_error(exc, name) from None


def _render_error(problem: TemplateError, name: str) -> RenderError:
    phase = "parse" if isinstance(problem, ParseError) else "execute"
    message = f"unable to {phase} template at key {name}: {problem}"
    error = RenderError(message, phase=phase, line=problem.line, column=problem.column, hint=problem.hint)
    error.is_bound = isinstance(problem, LimitError)
    return error


def _text_map(values: Mapping[str, bytes]) -> StrMap:
    return StrMap({key: value.decode("utf-8", "surrogateescape") for key, value in values.items()})


@cache
def _default(missing: MissingKey) -> Renderer:
    return Renderer(missing=missing)


def render_text(
    template: str, values: Mapping[str, bytes], *, name: str = "tpl", left: str = "{{", right: str = "}}"
) -> bytes:
    """Render one template with all functions, on the system's clock."""
    return _default(MissingKey.ERROR).render(template, values, name=name, left=left, right=right)


def render_key(template: str, values: Mapping[str, bytes], *, name: str = "tpl") -> bytes:
    """Render a template that makes one key from another: as by default in Go, a missing field is not an error."""
    return _default(MissingKey.NOTHING).render(template, values, name=name)
