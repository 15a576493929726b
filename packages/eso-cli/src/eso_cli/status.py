"""`eso status`: the state of every store, provider and synced object on one screen, once or live.

`eso_tools.status` gathers, groups and follows; this module prints. Never reads a value: only objects of External
Secrets are listed. With `--watch`, the page is redrawn in place on a terminal. Otherwise each problem that begins or
ends is one line, or with `-o json` each new overview is one line. Changes within half a second are shown together.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from eso_cli.connecting import check_namespace, connected
from eso_cli.terminal import echo, printable, sign
from eso_tools.status.causes import Cause, causes_of
from eso_tools.status.operators import NOT_READ, Operators, OperatorState, read_operators
from eso_tools.status.overview import OVERVIEW_KINDS, Health, ListedObjects, Overview, Row, gather, generation_of
from eso_tools.times import distance, time_of_day
from kubebase.clock import Clock, SystemClock, rfc3339
from kubebase.deadline import happens_within
from kuberun.client import Client
from kuberun.errors import KubeError

if TYPE_CHECKING:
    from eso_tools.status.following import FollowedObjects

HEALTHY, UNWELL, UNUSABLE = 0, 1, 2
"""Exit codes: every object is ready; one is not, or no operator works; unknown, because of an option or the server."""
MAX_CAUSES: Final = 20
MAX_NAMES: Final = 5
MAX_MESSAGES: Final = 3
MAX_JSON_NAMES: Final = 200
MAX_JSON_MESSAGES: Final = 20
_MAX_MESSAGE: Final = 240
_TOGETHER_SECONDS: Final = 0.5
_AGAIN_SECONDS: Final = 10.0
"""Times in the page must be updated."""


@dataclass(frozen=True, slots=True)
class StatusOptions:
    namespace: str = ""
    all_namespaces: bool = False
    kubeconfig: Path | None = None
    context: str = ""
    as_json: bool = False
    watch: bool = False


async def run(options: StatusOptions, clock: Clock | None = None) -> int:
    """Print the overview; with `watch`, print it again at every change until interrupted."""
    clock = clock or SystemClock()
    if options.all_namespaces and options.namespace:
        return _refuse("-A shows all namespaces; leave out -n")
    try:
        async with connected(options.kubeconfig, options.context, command="status") as (client, connection):
            namespace = "" if options.all_namespaces else options.namespace or connection.namespace or "default"
            if namespace:
                await check_namespace(client, namespace)
            if options.watch:
                return code_of(await follow(client, namespace, clock, as_json=options.as_json))
            overview = await gather(ListedObjects(client, namespace))
            operators = await read_operators(client, clock.now(), namespace)
    except KubeError as problem:
        return _refuse(str(problem))
    page = StatusPage.of(overview, clock.now(), namespace, operators)
    echo(json.dumps(as_json(page), indent=2) if options.as_json else "\n".join(lines(page)), coloured=True)
    return code_of(page)


def code_of(page: StatusPage) -> int:
    if page.unusable:
        return UNUSABLE
    return HEALTHY if page.healthy else UNWELL


def _refuse(problem: str) -> int:
    echo(f"eso status: {printable(problem)}", err=True)
    return UNUSABLE


# --- the page ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StatusPage:
    """An overview with its causes, for one moment."""

    overview: Overview
    causes: tuple[Cause, ...]
    now: datetime
    namespace: str = ""
    operators: Operators = NOT_READ

    @classmethod
    def of(cls, overview: Overview, now: datetime, namespace: str = "", operators: Operators = NOT_READ) -> StatusPage:
        return cls(overview, causes_of(overview), now, namespace, operators)

    @property
    def healthy(self) -> bool:
        return not self.causes and self.operators.all_work

    @property
    def unusable(self) -> bool:
        """Whether nothing at all could be listed."""
        return len(self.overview.gaps) == len(OVERVIEW_KINDS)


def lines(page: StatusPage) -> Iterator[str]:
    """Yield the page. `echo` strips the colours if the output is not a terminal."""
    yield from _operators(page)
    yield _summary(page)
    for cause in page.causes[:MAX_CAUSES]:
        yield ""
        yield from _cause(cause, page.now)
    if (more := len(page.causes) - MAX_CAUSES) > 0:
        yield ""
        yield f"and {more} more problems; `eso status -o json` lists them"
    if table := list(_table(page.overview)):
        yield ""
        yield from table
    yield from _gaps(page)


def headline(cause: Cause, now: datetime) -> str:
    """Return the cause in one line, with the time since when."""
    since = f" since {time_of_day(cause.since, now)}" if cause.since else ""
    return printable(f"{cause.headline}{since}")


def operator_problems(page: StatusPage) -> list[str]:
    """Return a sentence for each part of the objects that no operator works on."""
    found = page.operators
    since = f" since {time_of_day(found.since, page.now)}" if found.since else ""
    absent = [f"no operator works{since}: {found.why}"] if found.state is OperatorState.ABSENT else []
    return [printable(text) for text in (*absent, *found.unheld)]


def as_json(page: StatusPage) -> dict[str, Any]:
    """The page for tools."""
    return {
        "healthy": page.healthy,
        "namespace": page.namespace or None,
        "operator": {
            "state": page.operators.state.value,
            "since": page.operators.since or None,
            "message": printable(page.operators.why) or None,
            "notes": [printable(note) for note in (*page.operators.unheld, *page.operators.notes)],
        },
        "problems": [_cause_fields(cause, page.now) for cause in page.causes],
        "kinds": list(_kind_fields(page.overview)),
        "notListed": [{"resource": gap.custom.crd_name, "reason": gap.why.name} for gap in page.overview.gaps],
        "leftOut": page.overview.left_out,
    }


# --- text -------------------------------------------------------------------------------------------------------------


def _operators(page: StatusPage) -> Iterator[str]:
    """Yield the parts of the work that no operator does. They come first: no status below is newer."""
    for problem in operator_problems(page):
        yield f"{typer.style(sign('✗'), fg=typer.colors.RED)} {typer.style(problem, bold=True)}"
    if page.operators.state is OperatorState.ABSENT:
        past = distance(page.operators.since, page.now)
        yield f"    nothing is refreshed; the states below are from before{f' ({past})' if past else ''}"
    if not page.operators.all_work:
        yield ""


def _summary(page: StatusPage) -> str:
    rows = page.overview.rows
    ready = sum(row.ready for row in rows)
    where = f"namespace {page.namespace}" if page.namespace else "all namespaces"
    absent = page.operators.state is OperatorState.ABSENT
    counts = f"{ready} of {len(rows)} objects {'were' if absent else 'are'} ready" if rows else "no objects yet"
    if absent and not page.causes:
        return f"? {counts} ({where})"
    if not page.causes:
        return f"{typer.style(sign('✓'), fg=typer.colors.GREEN)} {counts} ({where})"
    problems = "1 problem" if len(page.causes) == 1 else f"{len(page.causes)} problems"
    return f"{typer.style(sign('✗'), fg=typer.colors.RED)} {problems}; {counts} ({where})"


def _cause(cause: Cause, now: datetime) -> Iterator[str]:
    yield f"{typer.style(sign('✗'), fg=typer.colors.RED)} {typer.style(headline(cause, now), bold=True)}"
    messages = cause.messages
    yield from (f"    {_cut(printable(message))}" for message in messages[:MAX_MESSAGES])
    if (more := len(messages) - MAX_MESSAGES) > 0:
        yield f"    and {more} other messages; `eso status -o json` lists more of them"
    if details := list(_details(cause, now)):
        yield f"    {'; '.join(details)}"
    if len(cause.roots) > 1:
        yield f"    {_names(cause.roots)}"
    if cause.waiting:
        yield f"    waiting: {_names(cause.waiting)}"


def _details(cause: Cause, now: datetime) -> Iterator[str]:
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


def _gaps(page: StatusPage) -> Iterator[str]:
    overview, found = page.overview, page.operators
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


# --- --watch ----------------------------------------------------------------------------------------------------------

Show = Callable[[StatusPage], None]


async def follow(client: Client, namespace: str, clock: Clock, *, as_json: bool) -> StatusPage:
    """Show the overview until SIGINT or SIGTERM; return the last one. Raises ApiError if nothing can be listed."""
    from eso_operator.telemetry import logs  # here, because one look at the status needs neither logs nor informers
    from eso_operator.telemetry.settings import LogLevel, LogSettings
    from eso_tools.status.following import FollowedObjects

    logs.configure(LogSettings(level=LogLevel.FATAL), clock)  # watches recover; log lines would garble the page
    objects, stop = FollowedObjects(client, clock, namespace), asyncio.Event()

    def end() -> None:
        stop.set()
        objects.changed.set()
        objects.read.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, end)
    with ExitStack() as stack:
        show = _shower(stack, as_json=as_json)
        try:
            async with asyncio.TaskGroup() as group:
                following = group.create_task(objects.run(fail_fast=True))
                try:
                    await objects.read.wait()
                    return await _show_until(stop, objects, show, namespace, clock)
                finally:
                    following.cancel()
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None  # of the loop above; informers do not end


async def _show_until(
    stop: asyncio.Event, objects: FollowedObjects, show: Show, namespace: str, clock: Clock
) -> StatusPage:
    while True:
        objects.changed.clear()
        page = StatusPage.of(await objects.overview(), clock.now(), namespace, objects.operators)
        show(page)
        if stop.is_set():
            return page
        await happens_within(clock, _AGAIN_SECONDS, objects.changed)
        if not stop.is_set():
            await happens_within(clock, _TOGETHER_SECONDS, stop)


def _shower(stack: ExitStack, *, as_json: bool) -> Show:
    if as_json:
        return _Documents().show
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        live = stack.enter_context(Live(console=Console(), auto_refresh=False, screen=True, redirect_stdout=False))
        return lambda page: live.update(Text.from_ansi("\n".join(lines(page))), refresh=True)
    return _Changes().show


class _Documents:
    """One JSON document for each overview that differs from the one before."""

    def __init__(self) -> None:
        self._last = ""

    def show(self, page: StatusPage) -> None:
        document = json.dumps(as_json(page))
        if document != self._last:
            _line(document)
        self._last = document


class _Changes:
    """One line for each problem that begins, grows, shrinks or ends."""

    def __init__(self) -> None:
        self._known: dict[str, str] | None = None

    def show(self, page: StatusPage) -> None:
        found = {f"{each.reason} {each.roots[0].id}": headline(each, page.now) for each in page.causes}
        found |= {f"operator {each}": each for each in operator_problems(page)}
        known, self._known = self._known, found
        if known is None:
            _line("\n".join(lines(page)))
            return
        at = time_of_day(rfc3339(page.now), page.now)
        for ended in known.keys() - found.keys():
            _line(f"{at} {sign('✓')} over: {known[ended]}")
        for cause, text in found.items():
            if known.get(cause) != text:
                _line(f"{at} {sign('✗')} {text}")


def _line(text: str) -> None:
    echo(text, coloured=True)
    sys.stdout.flush()
