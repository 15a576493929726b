"""What a rule says when it is broken."""

from __future__ import annotations

from dataclasses import dataclass

from eso_api import durations


@dataclass(frozen=True, slots=True)
class FieldError:
    """One broken rule: which field, and what to do. Never a secret value."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


def interval_problems(value: int | str, path: str) -> list[FieldError]:
    """Problems of a length of time, whatever its sign."""
    try:
        durations.seconds(value, field=path)
    except durations.DurationError as error:
        return [FieldError(path, str(error).removeprefix(f"{path}: "))]
    return []


def positive_interval_problems(value: int | str, path: str) -> list[FieldError]:
    """Problems of a length of time that may not be negative."""
    problems = interval_problems(value, path)
    if not problems and durations.seconds(value, field=path) < 0:
        return [FieldError(path, "may not be negative")]
    return problems
