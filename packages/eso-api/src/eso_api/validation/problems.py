"""The result of a violated rule."""

from __future__ import annotations

from dataclasses import dataclass

from eso_api import durations


@dataclass(frozen=True, slots=True)
class FieldError:
    """One violated rule: the field, and what to do. Never a secret value."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


def interval_problems(value: int | str, path: str) -> list[FieldError]:
    """Return the problems of a duration of any sign."""
    try:
        durations.seconds(value, field=path)
    except durations.DurationError as error:
        return [FieldError(path, str(error).removeprefix(f"{path}: "))]
    return []
