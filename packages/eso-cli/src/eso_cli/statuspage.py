"""The overview as text and as JSON: problems first, grouped by cause, then one line for each kind. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import typer

from eso_cli.terminal import printable, sign
from eso_operator.insight.causes import Cause, causes_of
from eso_operator.insight.operators import NOT_READ, Operators, OperatorState
from eso_operator.insight.overview import OVERVIEW_KINDS, Health, Overview, Row, generation_of
from eso_operator.insight.times import distance, time_of_day

MAX_CAUSES: Final = 20
MAX_NAMES: Final = 5
MAX_MESSAGES: Final = 3
MAX_JSON_NAMES: Final = 200
MAX_JSON_MESSAGES: Final = 20
_MAX_MESSAGE: Final = 240


@dataclass(frozen=True, slots=True)
class Scene:
    """An overview with its causes, for one moment."""

    overview: Overview
    causes: tuple[Cause, ...]
    now: datetime
    namespace: str = ""
    operators: Operators = NOT_READ

    @classmethod
    def of(cls, overview: Overview, now: datetime, namespace: str = "", operators: Operators = NOT_READ) -> Scene:
        return cls(overview, causes_of(overview), now, namespace, operators)

    @property
    def healthy(self) -> bool:
        return not self.causes and self.operators.all_work

    @property
    def unusable(self) -> bool:
        """Whether nothing at all could be listed."""
        return len(self.overview.gaps) == len(OVERVIEW_KINDS)


def lines(scene: Scene) -> Iterator[str]:
    """Yield the page. `echo` strips the colours if the output is not a terminal."""
    yield from _operators(scene)
    yield _summary(scene)
    for cause in scene.causes[:MAX_CAUSES]:
        yield ""
        yield from _cause(cause, scene.now)
    if (more := len(scene.causes) - MAX_CAUSES) > 0:
        yield ""
        yield f"and {more} more problems; `eso status -o json` lists them"
    if table := list(_table(scene.overview)):
        yield ""
        yield from table
    yield from _gaps(scene)


def headline(cause: Cause, now: datetime) -> str:
    """Return the cause in one line, with the time since when."""
    since = f" since {time_of_day(cause.since, now)}" if cause.since else ""
    return printable(f"{cause.headline}{since}")


def operator_problems(scene: Scene) -> list[str]:
    """Return a sentence for each part of the objects that no operator works on."""
    found = scene.operators
    since = f" since {time_of_day(found.since, scene.now)}" if found.since else ""
    absent = [f"no operator works{since}: {found.why}"] if found.state is OperatorState.ABSENT else []
    return [printable(text) for text in (*absent, *found.unheld)]


def as_json(scene: Scene) -> dict[str, Any]:
    """The page for tools."""
    return {
        "healthy": scene.healthy,
        "namespace": scene.namespace or None,
        "operator": {
            "state": scene.operators.state.value,
            "since": scene.operators.since or None,
            "message": printable(scene.operators.why) or None,
            "notes": [printable(note) for note in (*scene.operators.unheld, *scene.operators.notes)],
        },
        "problems": [_cause_fields(cause, scene.now) for cause in scene.causes],
        "kinds": list(_kind_fields(scene.overview)),
        "notListed": [{"resource": gap.custom.crd_name, "reason": gap.why.name} for gap in scene.overview.gaps],
        "leftOut": scene.overview.left_out,
    }


# --- text -------------------------------------------------------------------------------------------------------------


def _operators(scene: Scene) -> Iterator[str]:
    """Yield the parts of the work that no operator does. They come first: no status below is newer."""
    for problem in operator_problems(scene):
        yield f"{typer.style(sign('✗'), fg=typer.colors.RED)} {typer.style(problem, bold=True)}"
    if scene.operators.state is OperatorState.ABSENT:
        past = distance(scene.operators.since, scene.now)
        yield f"    nothing is refreshed; the states below are from before{f' ({past})' if past else ''}"
    if not scene.operators.all_work:
        yield ""


def _summary(scene: Scene) -> str:
    rows = scene.overview.rows
    ready = sum(row.ready for row in rows)
    where = f"namespace {scene.namespace}" if scene.namespace else "all namespaces"
    absent = scene.operators.state is OperatorState.ABSENT
    counts = f"{ready} of {len(rows)} objects {'were' if absent else 'are'} ready" if rows else "no objects yet"
    if absent and not scene.causes:
        return f"? {counts} ({where})"
    if not scene.causes:
        return f"{typer.style(sign('✓'), fg=typer.colors.GREEN)} {counts} ({where})"
    problems = "1 problem" if len(scene.causes) == 1 else f"{len(scene.causes)} problems"
    return f"{typer.style(sign('✗'), fg=typer.colors.RED)} {problems}; {counts} ({where})"


def _cause(cause: Cause, now: datetime) -> Iterator[str]:
    yield f"{typer.style(sign('✗'), fg=typer.colors.RED)} {typer.style(headline(cause, now), bold=True)}"
    messages = cause.messages
    yield from (f"    {_cut(printable(message))}" for message in messages[:MAX_MESSAGES])
    if (more := len(messages) - MAX_MESSAGES) > 0:
        yield f"    and {more} other messages; `eso status -o json` lists more of them"
    if facts := list(_facts(cause, now)):
        yield f"    {'; '.join(facts)}"
    if len(cause.roots) > 1:
        yield f"    {_names(cause.roots)}"
    if cause.waiting:
        yield f"    waiting: {_names(cause.waiting)}"


def _facts(cause: Cause, now: datetime) -> Iterator[str]:
    if cause.since and (past := distance(cause.since, now)):
        yield f"began {past}"
    if cause.next_attempt and (ahead := distance(cause.next_attempt, now)):
        yield f"next attempt {ahead}"
    if cause.at_risk:
        yield f"{cause.at_risk} more that need it still work"


def _names(rows: Sequence[Row]) -> str:
    names = ", ".join(printable(str(row.id.key)) for row in rows[:MAX_NAMES])
    more = len(rows) - MAX_NAMES
    return f"{names} and {more} more" if more > 0 else names


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_MESSAGE else f"{text[:_MAX_MESSAGE]}{sign('…')}"


def _table(overview: Overview) -> Iterator[str]:
    cells = [("KIND", "API", "READY", "NOT READY", "LIST THEM WITH")]
    for fields in _kind_fields(overview):
        unready = str(fields["notReady"] + fields["noStatus"])
        kind, resource = str(fields["kind"]), f"kubectl get {fields['resource']}"
        cells.append((kind, str(fields["generation"]), str(fields["ready"]), unready, resource))
    if len(cells) == 1:
        return
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    for row in cells:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _gaps(scene: Scene) -> Iterator[str]:
    overview, found = scene.overview, scene.operators
    unknown = [f"whether an operator works: {found.why}"] if found.state is OperatorState.UNKNOWN and found.why else []
    gaps = [*map(str, overview.gaps), *map(printable, (*unknown, *found.notes))]
    if gaps:
        yield ""
        yield from (f"? {gap}" for gap in gaps)
    if overview.left_out:
        yield f"and {overview.left_out} more objects, which were counted only"


# --- JSON -------------------------------------------------------------------------------------------------------------


def _kind_fields(overview: Overview) -> Iterator[dict[str, Any]]:
    counts = {health: overview.counts(health) for health in Health}
    for custom in OVERVIEW_KINDS:
        states = (Health.GOOD, Health.CONTENDED, Health.BAD, Health.WAITING)
        good, contended, bad, waiting = (counts[each].get(custom, 0) for each in states)
        ready = good + contended
        if ready + bad + waiting:
            yield {
                "kind": custom.name,
                "resource": custom.crd_name,
                "generation": generation_of(custom),
                "ready": ready,
                "notReady": bad,
                "noStatus": waiting,
            }


def _cause_fields(cause: Cause, now: datetime) -> dict[str, Any]:
    return {
        "says": headline(cause, now),
        "reason": cause.reason,
        "message": printable(cause.message) or None,
        "messages": [printable(message) for message in cause.messages[:MAX_JSON_MESSAGES]],
        "messageCount": len(cause.messages),
        "since": cause.since or None,
        "nextAttemptTime": cause.next_attempt or None,
        "causedBy": _ids(cause.roots),
        "causedByCount": len(cause.roots),
        "waiting": _ids(cause.waiting),
        "waitingCount": len(cause.waiting),
        "stillWorking": cause.at_risk,
    }


def _ids(rows: Sequence[Row]) -> list[dict[str, str]]:
    return [
        {"resource": row.custom.crd_name, "kind": row.custom.name, "namespace": row.namespace, "name": row.name}
        for row in rows[:MAX_JSON_NAMES]
    ]
