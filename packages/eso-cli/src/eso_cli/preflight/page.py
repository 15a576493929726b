"""The report as text and as JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import typer

from eso_cli.preflight.findings import Finding, Level, Report, counted
from eso_cli.terminal import printable, sign

MAX_DETAILS: Final = 10
MAX_JSON_DETAILS: Final = 1000
_SIGNS: Final = {Level.BLOCKER: ("✗", "x"), Level.WARNING: ("!", "!"), Level.FACT: ("✓", "+")}
"""Signs, and their plain forms for a terminal that cannot show them."""
_COLOURS: Final = {
    Level.BLOCKER: typer.colors.RED,
    Level.WARNING: typer.colors.YELLOW,
    Level.FACT: typer.colors.GREEN,
}


def lines(report: Report) -> Iterator[str]:
    """Yield the page; the verdict is the last line. `echo` strips the colours if the output is not a terminal."""
    for _, finding in report.findings:
        yield f"{_styled(finding.level)} {printable(finding.says)}"
        yield from _details(finding)
        if finding.next:
            yield f"    next: {printable(finding.next)}"
    yield ""
    yield f"{_styled(Level.FACT if report.ready else Level.BLOCKER)} {verdict(report)}"


def verdict(report: Report) -> str:
    blockers, warnings = (report.count(level) for level in (Level.BLOCKER, Level.WARNING))
    counts = f"{counted(blockers, 'blocker')}, {counted(warnings, 'warning')}"
    return f"ready: {counts}" if report.ready else f"not ready: {counts}"


def as_json(report: Report) -> dict[str, Any]:
    """The report for tools."""
    return {
        "ready": report.ready,
        "verdict": verdict(report),
        "findings": [{"check": check, **_fields(finding)} for check, finding in report.findings],
    }


def _details(finding: Finding) -> Iterator[str]:
    for detail in finding.details[:MAX_DETAILS]:
        yield f"    {printable(str(detail))}"
    if (more := len(finding.details) - MAX_DETAILS) > 0:
        yield f"    and {more} more; `eso preflight -o json` lists them"


def _fields(finding: Finding) -> dict[str, Any]:
    return {
        "level": finding.level.value,
        "says": printable(finding.says),
        "details": [
            {"subject": printable(each.subject), "field": printable(each.field), "says": printable(each.says)}
            for each in finding.details[:MAX_JSON_DETAILS]
        ],
        "detailsCount": len(finding.details),
        "next": printable(finding.next),
    }


def _styled(level: Level) -> str:
    return typer.style(sign(*_SIGNS[level]), fg=_COLOURS[level])
