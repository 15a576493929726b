"""Values of options without pydantic: typer imports it to convert them, which takes 0.1 s of each command.

Texts, paths, choices and lists of them are converted here, if they are valid. All other values are left to typer, so
that its conversions and its error messages stay the same. The help shows a word for each value: typer would show the
type in Python.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, Final, get_args, get_origin

from typer.core import TyperArgument, TyperGroup, TyperOption

_PLACEHOLDERS: Final = {bool: "", str: "TEXT", int: "NUMBER", float: "NUMBER", Path: "PATH"}


class NotPlainError(ValueError):
    """The value is typer's to convert or to refuse."""


class PlainGroup(TyperGroup):
    """A group of commands whose options are converted here if possible."""

    def get_params(self, ctx: Any) -> Any:  # typer has its own copy of click's types
        return _with_plain_values(super().get_params(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            _with_plain_values(command.get_params(ctx))  # with --help
        return command


def plain_value(annotation: Any, value: Any) -> Any:
    """Return the value of a parameter of this type. Raises NotPlainError if typer has to convert or refuse it."""
    if get_origin(annotation) is list and isinstance(value, (list, tuple)):
        (each,) = get_args(annotation)
        return [plain_value(each, item) for item in value]
    if not isinstance(annotation, type) or (isinstance(value, str) and not value.isascii()):
        raise NotPlainError  # a text may contain bytes that are not Unicode
    if issubclass(annotation, Enum):
        return _choice(annotation, value)
    if annotation is Path and isinstance(value, (str, Path)):
        return _path(Path(value))
    if annotation in (str, int, float, bool) and type(value) is annotation:
        return value
    raise NotPlainError


def _choice(choices: type[Enum], value: Any) -> Enum:
    for choice in choices:
        if value in (choice, choice.value):
            return choice
    raise NotPlainError


def _path(path: Path) -> Path:
    if os.access(path, os.F_OK) and not os.access(path, os.R_OK):
        raise NotPlainError
    return path


class _PlainValues:
    """Stands in for typer's conversion of one parameter, which is made only if it is needed."""

    def __init__(self, annotation: Any, typers: Callable[[], Any]) -> None:
        self._annotation = annotation
        self._typers = typers

    def __call__(self) -> _PlainValues:
        """Return the conversion, as `get_runtime_param` does, in whose place it is."""
        return self

    def coerce(self, value: Any, *, param: Any, ctx: Any) -> Any:
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        try:
            return plain_value(self._annotation, value)
        except NotPlainError:
            return self._typers().coerce(value, param=param, ctx=ctx)


def placeholder_of(annotation: Any) -> str:
    """Return what stands for a value in the help: `PATH`, `a|b`, or nothing for a switch."""
    if get_origin(annotation) is list:
        (annotation,) = get_args(annotation)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return "|".join(str(choice.value) for choice in annotation)
    return _PLACEHOLDERS.get(annotation, "VALUE")


def _with_plain_values(params: Any) -> Any:
    for param in params:
        if isinstance(param, (TyperOption, TyperArgument)) and not isinstance(param.get_runtime_param, _PlainValues):
            annotation = param.type_descriptor.annotation
            shown = param.metavar if isinstance(param, TyperOption) and param.metavar else placeholder_of(annotation)
            vars(param)["get_runtime_param"] = _PlainValues(annotation, param.get_runtime_param)
            vars(param)["display_type_rich"] = partial(_shown, shown)
    return params


def _shown(placeholder: str, ctx: Any) -> str | None:
    del ctx
    return placeholder or None
