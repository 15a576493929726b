"""The overview as text and as JSON: problems first, grouped by cause, then one line for each kind. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import typer

from eso_cli.terminal import printable, sign
from eso_operator.insight.causes import Cause, causes_of
from eso_operator.insight.overview import Overview
from eso_operator.insight.overviewrows import OVERVIEW_KINDS, Health, Row, generation_of
from eso_operator.insight.overviewtimes import distance, time_of_day

MAX_CAUSES: Final = 20
MAX_NAMES: Final = 5
MAX_JSON_NAMES: Final = 200
_MAX_MESSAGE: Final = 240


@dataclass(frozen=True, slots=True)
class Scene:
    """An overview with its causes, for one moment."""

    overview: Overview
    causes: tuple[Cause, ...]
    now: datetime
    namespace: str = ""

    @classmethod
    def of(cls, overview: Overview, now: datetime, namespace: str = "") -> Scene:
        return cls(overview, causes_of(overview), now, namespace)

    @property
    def healthy(self) -> bool:
        return not self.causes

    @property
    def unusable(self) -> bool:
        """Whether nothing at all could be listed."""
        return len(self.overview.gaps) == len(OVERVIEW_KINDS)


def lines(scene: Scene) -> Iterator[str]:
    """Yield the page. `echo` strips the colours if the output is not a terminal."""
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
    yield from _gaps(scene.overview)


def headline(cause: Cause, now: datetime) -> str:
    """Return the cause in one line, with the time since when."""
    since = f" since {time_of_day(cause.since, now)}" if cause.since else ""
    return printable(f"{cause.headline}{since}")


def as_json(scene: Scene) -> dict[str, Any]:
    """The page for tools."""
    return {
        "healthy": scene.healthy,
        "namespace": scene.namespace or None,
        "problems": [_cause_fields(cause, scene.now) for cause in scene.causes],
        "kinds": list(_kind_fields(scene.overview)),
        "notListed": [{"resource": gap.custom.crd_name, "reason": gap.why.name} for gap in scene.overview.gaps],
        "leftOut": scene.overview.left_out,
    }


# --- text -------------------------------------------------------------------------------------------------------------


def _summary(scene: Scene) -> str:
    rows = scene.overview.rows
    ready = sum(row.health is Health.GOOD for row in rows)
    where = f"namespace {scene.namespace}" if scene.namespace else "all namespaces"
    counts = f"{ready} of {len(rows)} objects are ready" if rows else "no objects yet"
    if scene.healthy:
        return f"{typer.style(sign('✓'), fg=typer.colors.GREEN)} {counts} ({where})"
    problems = "1 problem" if len(scene.causes) == 1 else f"{len(scene.causes)} problems"
    return f"{typer.style(sign('✗'), fg=typer.colors.RED)} {problems}; {counts} ({where})"


def _cause(cause: Cause, now: datetime) -> Iterator[str]:
    yield f"{typer.style(sign('✗'), fg=typer.colors.RED)} {typer.style(headline(cause, now), bold=True)}"
    if message := printable(cause.message):
        yield f"    {_cut(message)}"
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


def _gaps(overview: Overview) -> Iterator[str]:
    if overview.gaps:
        yield ""
        yield from (f"? {gap}" for gap in overview.gaps)
    if overview.left_out:
        yield f"and {overview.left_out} more objects, which were counted only"


# --- JSON -------------------------------------------------------------------------------------------------------------


def _kind_fields(overview: Overview) -> Iterator[dict[str, Any]]:
    counts = {health: overview.counts(health) for health in Health}
    for custom in OVERVIEW_KINDS:
        ready, bad, waiting = (counts[each].get(custom, 0) for each in (Health.GOOD, Health.BAD, Health.WAITING))
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
