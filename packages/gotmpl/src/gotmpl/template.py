"""The public door: a text becomes a template once, and renders many times."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from gotmpl.evaluator import Program
from gotmpl.parser import parse
from gotmpl.run import Limits
from gotmpl.signatures import Func
from gotmpl.values import Value

MAX_CACHED = 2048
MAX_TEXT = 2**20
"""Longer texts are parsed each time: they would fill the cache's memory, not its slots."""


class Engine:
    """Templates over one set of functions, compiled once for each (name, text, delimiters)."""

    def __init__(self, functions: Mapping[str, Func], limits: Limits | None = None) -> None:
        self._functions = functions
        self._limits = limits or Limits()
        self._cached = lru_cache(maxsize=MAX_CACHED)(self._compile)

    def render(self, text: str, data: Value, *, name: str = "tpl", left: str = "{{", right: str = "}}") -> str:
        compile_ = self._compile if len(text) > MAX_TEXT else self._cached
        return compile_(name, text, left, right).execute(data, self._limits)

    def _compile(self, name: str, text: str, left: str, right: str) -> Program:
        return Program(parse(name, text, self._functions, left=left, right=right), self._functions)
