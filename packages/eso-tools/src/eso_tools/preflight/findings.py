"""The result of a check: what was found, how bad it is, which objects it is about, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum


class Level(Enum):
    """In the order of the report."""

    BLOCKER = "blocker"
    WARNING = "warning"
    FACT = "fact"


@dataclass(frozen=True, slots=True)
class Detail:
    """One object (or flag, or value) of a finding. `field` and `says` may be empty."""

    subject: str
    field: str = ""
    text: str = ""

    def __str__(self) -> str:
        return ": ".join(part for part in (self.subject, self.field, self.text) if part)


@dataclass(frozen=True, slots=True)
class CheckResult:
    level: Level
    text: str
    details: tuple[Detail, ...] = ()
    next: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """All findings by level, each with the name of its check."""

    findings: tuple[tuple[str, CheckResult], ...]

    def count(self, level: Level) -> int:
        return sum(finding.level is level for _, finding in self.findings)

    @property
    def ready(self) -> bool:
        return self.count(Level.BLOCKER) == 0


Findings = Iterator[CheckResult]


def named(names: Sequence[str]) -> tuple[Detail, ...]:
    """Return one detail for each name."""
    return tuple(Detail(name) for name in names)


def counted(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or f'{one}s'}"
