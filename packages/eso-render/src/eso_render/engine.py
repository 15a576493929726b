"""gotmpl wired with every function, and errors in the words users of the operator know."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from eso_render.clock import steady_seconds, wall_nanos
from eso_render.errors import RenderError
from gotmpl.errors import ParseError, TemplateError
from gotmpl.run import Limits, MissingKey
from gotmpl.values import StrMap, Value, to_bytes


class Renderer:
    """Renders templates under one clock and one set of bounds, and keeps what it compiled."""

    def __init__(
        self,
        clock: Callable[[], int] = wall_nanos,
        limits: Limits | None = None,
        *,
        missing: MissingKey = MissingKey.ERROR,
    ) -> None:
        # The parser and the functions load with the first renderer: many who import this package never render.
        from eso_render.functions import functions
        from gotmpl.template import Engine

        self._engine = Engine(functions(clock), limits or Limits(clock=steady_seconds), missing=missing)

    def render(
        self, template: str, values: Mapping[str, bytes], *, name: str = "tpl", left: str = "{{", right: str = "}}"
    ) -> bytes:
        """One template over one set of values; `name` is the key messages speak of."""
        return self._rendered(template, _text_map(values), name=name, left=left, right=right)

    def render_groups(self, template: str, groups: Mapping[str, Mapping[str, bytes]], *, name: str = "tpl") -> bytes:
        """The same over several sets of values, each with a name of its own: `{{ .group.key }}`."""
        data = {group: _text_map(values) for group, values in groups.items()}
        return self._rendered(template, data, name=name, left="{{", right="}}")

    def _rendered(self, template: str, data: Value, *, name: str, left: str, right: str) -> bytes:
        try:
            return to_bytes(self._engine.render(template, data, name=name, left=left, right=right))
        except TemplateError as exc:
            phase = "parse" if isinstance(exc, ParseError) else "execute"
            message = f"unable to {phase} template at key {name}: {exc}"
            raise RenderError(message, phase=phase, line=exc.line, column=exc.column) from None


def _text_map(values: Mapping[str, bytes]) -> StrMap:
    return StrMap({key: value.decode("utf-8", "surrogateescape") for key, value in values.items()})


@cache
def _default(missing: MissingKey) -> Renderer:
    return Renderer(missing=missing)


def render_text(
    template: str, values: Mapping[str, bytes], *, name: str = "tpl", left: str = "{{", right: str = "}}"
) -> bytes:
    """One template with the full set of functions, on the system's clock."""
    return _default(MissingKey.ERROR).render(template, values, name=name, left=left, right=right)


def render_key(template: str, values: Mapping[str, bytes], *, name: str = "tpl") -> bytes:
    """A template that makes a key out of another: a field that is not there is no error to it, as in Go by default."""
    return _default(MissingKey.NOTHING).render(template, values, name=name)
