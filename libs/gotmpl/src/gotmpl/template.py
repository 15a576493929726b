"""The public interface: a text is parsed once and rendered many times."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NoReturn

from gotmpl.errors import LimitError
from gotmpl.expressions import Unparsable
from gotmpl.parser import parse
from gotmpl.quoting import quote
from gotmpl.run import MissingKey, Run, TemplateLimits
from gotmpl.signatures import Func
from gotmpl.statements import Parsed
from gotmpl.values import Value, joined

MAX_CACHED = 2048
MAX_TEXT = 2**20
"""Longer texts are not cached: they would use too much memory."""


class Engine:
    """Templates with one set of functions, parsed once for each text and its delimiters."""

    def __init__(
        self,
        functions: Mapping[str, Func],
        limits: TemplateLimits | None = None,
        *,
        missing: MissingKey = MissingKey.ERROR,
    ) -> None:
        self._functions = functions
        self._missing = missing
        self._limits = limits or TemplateLimits()
        self._cached = lru_cache(maxsize=MAX_CACHED)(self._parse)

    def render(self, text: str, data: Value, *, name: str = "tpl", left: str = "{{", right: str = "}}") -> str:
        """Render one text with one value; `name` is its name in messages."""
        try:
            parsed = (self._parse if len(text) > MAX_TEXT else self._cached)(text, left, right)
            root = (parsed.named(name) or _defined_twice(name, text)) if parsed.defined else parsed.body
        except Unparsable as exc:
            raise exc.in_template(name) from None
        run = Run(name, text, self._limits, data, root)
        run.missing = self._missing
        try:
            root.execute(run, data)
        except RecursionError:
            raise LimitError(f"template: {name}: exceeded maximum template depth") from None
        return joined(run.out)

    def _parse(self, text: str, left: str, right: str) -> Parsed:
        return parse(text, self._functions, left=left, right=right)


def _defined_twice(name: str, text: str) -> NoReturn:
    """Raise Go's error for a duplicate definition, which it detects at the end of the text."""
    raise Unparsable(f"template: multiple definition of template {quote(name)}", 1 + text.count("\n"))
