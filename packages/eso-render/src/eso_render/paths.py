"""Dotted paths into objects, such as `spec.rules[0].host`: where templates of kinds other than Secret write.

Pure. `parse` reads a path; `get`, `put` and `merge` follow it in plain JSON values. `put` and `merge` create missing
maps and lists on the way.
"""

from __future__ import annotations

import re
from typing import Any

Path = tuple[str | int, ...]
"""Names of map entries and indexes of lists; the first step is always a name."""

MAX_INDEX = 10_000
"""A list is filled with nulls up to the index, so the index determines its size."""

_SEGMENT = re.compile(r"(?P<name>[^\[\]]*)(?P<indexes>(\[[^\[\]]*\])*)")
_INDEX = re.compile(r"\[([^\[\]]*)\]")
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")


class PathError(ValueError):
    """The path is invalid, or leads through a scalar. The message names the path, never a value."""


def parse(text: str) -> Path:
    """Parse the steps of a path; a segment is a name, indexes, or a name with indexes."""
    steps: list[str | int] = []
    for segment in text.split("."):
        steps += _segment_steps(segment, text)
    if not isinstance(steps[0], str):
        raise PathError(f'path "{text}" must begin with a name')
    return tuple(steps)


def get(root: dict[str, Any], path: Path) -> Any:
    """Return the value at the path; None if there is none."""
    found: Any = root
    for step in path:
        if found is None:
            return None
        found = _entry(found, step, path)
    return found


def put(root: dict[str, Any], path: Path, value: Any) -> None:
    """Set the value at the path, replacing any value there."""
    *parents, last = path
    _assign(_walk(root, parents, path), last, value, path)


def merge(root: dict[str, Any], path: Path, value: Any) -> None:
    """Add the entries of a map to the map at the path. Other values, and values at the top level, are replaced."""
    *parents, last = path
    holder = _walk(root, parents, path)
    existing = _entry(holder, last, path)
    if parents and isinstance(existing, dict) and isinstance(value, dict):
        existing.update(value)
    else:
        _assign(holder, last, value, path)


def _segment_steps(segment: str, text: str) -> list[str | int]:
    if not segment:
        raise PathError(f'path "{text}" has an empty segment')
    found = _SEGMENT.fullmatch(segment)
    if found is None:
        raise PathError(f'path "{text}": segment "{segment}" has brackets that do not enclose one index each')
    name = [found["name"]] if found["name"] else []
    return [*name, *(_index(digits, text) for digits in _INDEX.findall(found["indexes"]))]


def _index(digits: str, text: str) -> int:
    if not _WHOLE_NUMBER.fullmatch(digits):
        raise PathError(f'path "{text}": index "{digits}" is not a whole number')
    if not 0 <= int(digits) <= MAX_INDEX:
        raise PathError(f'path "{text}": index {digits} must be between 0 and {MAX_INDEX}')
    return int(digits)


def _walk(root: dict[str, Any], parents: list[str | int], path: Path) -> Any:
    """Return the map or list that holds the last step; missing ones on the way are created as the next step needs."""
    holder: Any = root
    for position, step in enumerate(parents):
        below = _entry(holder, step, path)
        if below is None:
            below = {} if isinstance(path[position + 1], str) else []
            _assign(holder, step, below, path)
        holder = below
    return holder


def _entry(holder: Any, step: str | int, path: Path) -> Any:
    """Return the value at the step, or None. Raises if the step does not fit: a name needs a map, an index a list."""
    if isinstance(step, str):
        if not isinstance(holder, dict):
            raise PathError(f'path "{text_of(path)}" looks for "{step}" in a value that is not a map')
        return holder.get(step)
    if not isinstance(holder, list):
        raise PathError(f'path "{text_of(path)}" looks for index {step} in a value that is not a list')
    return holder[step] if step < len(holder) else None


def _assign(holder: Any, step: str | int, value: Any, path: Path) -> None:
    _entry(holder, step, path)
    if isinstance(step, int):
        holder.extend([None] * (step + 1 - len(holder)))
    holder[step] = value


def text_of(path: Path) -> str:
    """Format the path as text."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")
