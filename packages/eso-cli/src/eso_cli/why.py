"""`eso why`: the way of the values of one object, printed as a short story; what is wrong, and when it is tried again.

`evidence.py` looks, `story.py` judges, this module prints. No value is ever asked for, and so none can be shown.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import typer

from eso_api.crd import CustomKind
from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.pushsecret import PUSH_SECRET
from eso_cli.evidence import Look, Recorded, Sight, gather
from eso_cli.story import Mark, Step, Story, moment, story_of
from kuberun import config
from kuberun.client import Client
from kuberun.clock import Clock, SystemClock
from kuberun.errors import ApiError, KubeError
from kuberun.meta import ObjectKey
from kuberun.transport import AiohttpTransport

HEALTHY, UNWELL, UNUSABLE = 0, 1, 2
"""Exit codes: every step is good; one is not; it cannot be told, because of an option or the API server."""

KINDS: Final[tuple[CustomKind[Any], ...]] = (EXTERNAL_SECRET, PUSH_SECRET)

_SIGNS: Final = {Mark.GOOD: "✓", Mark.BAD: "✗", Mark.OPEN: "?"}
_PLAIN_SIGNS: Final = {Mark.GOOD: "+", Mark.BAD: "!", Mark.OPEN: "?"}
_COLOURS: Final = {Mark.GOOD: typer.colors.GREEN, Mark.BAD: typer.colors.RED, Mark.OPEN: typer.colors.YELLOW}
_OK: Final = {Mark.GOOD: True, Mark.BAD: False, Mark.OPEN: None}


@dataclass(frozen=True, slots=True)
class Options:
    kind: str
    name: str
    namespace: str = ""
    kubeconfig: Path | None = None
    context: str = ""
    as_json: bool = False


async def run(options: Options, clock: Clock | None = None) -> int:
    """Print the story; the exit code says how it ends."""
    clock = clock or SystemClock()
    kind = kind_named(options.kind)
    if kind is None:
        known = " or ".join(each.name.lower() for each in KINDS)
        return _refuse(f'there is no story about "{options.kind}"; ask for an {known}')
    try:
        connection = config.load(options.kubeconfig, context=options.context)
        client = Client(AiohttpTransport(connection))
    except KubeError as problem:
        return _refuse(str(problem))
    key = ObjectKey(options.namespace or connection.namespace or "default", options.name)
    try:
        evidence = await gather(client, kind, key)
    except ApiError as problem:
        return _refuse(str(problem))
    finally:
        await client.close()
    if isinstance(evidence, Sight) and evidence.look is Look.HIDDEN:
        return _refuse(f"{evidence.kind} {evidence.key}: {evidence.why}")
    story = story_of(evidence, clock.now())
    typer.echo(json.dumps(as_json(story), indent=2) if options.as_json else "\n".join(lines(story, clock.now())))
    return HEALTHY if story.healthy else UNWELL


def kind_named(word: str) -> CustomKind[Any] | None:
    """By any of the names that kubectl takes."""
    asked = word.lower()
    for kind in KINDS:
        names = (kind.name.lower(), kind.plural, *kind.short_names)
        if asked in (*names, *(f"{name}.{kind.group}" for name in names)):
            return kind
    return None


def lines(story: Story, now: datetime) -> Iterator[str]:
    """The story for people; colours are left out by `typer.echo` where nobody would see them."""
    yield from _told(story.head, 0)
    for step in story.steps:
        yield from _told(step, 1)
    if not story.healthy:
        yield from (f"  event {_event(event, now)}" for event in story.events)


def as_json(story: Story) -> dict[str, Any]:
    """The story for tools."""
    return {
        "healthy": story.healthy,
        "cause": _plain(story.cause.what) if story.cause else None,
        "nextAttemptTime": story.next_attempt_time or None,
        "object": _fields(story.head),
        "steps": [_fields(step) for step in story.steps],
        "events": [
            {"type": each.type, "reason": each.reason, "at": each.at, "message": _plain(each.message)}
            for each in story.events
        ],
    }


def _fields(step: Step) -> dict[str, Any]:
    fields = {"step": step.name, "ok": _OK[step.mark], "says": _plain(step.what)}
    return fields | {"notes": [_plain(note) for note in step.notes], "below": [_fields(each) for each in step.below]}


def _told(step: Step, depth: int) -> Iterator[str]:
    indent = "  " * depth
    sign = typer.style(_sign(step.mark), fg=_COLOURS[step.mark])
    yield f"{indent}{sign} {_plain(step.what)}"
    yield from (f"{indent}    {_plain(note)}" for note in step.notes)
    for below in step.below:
        yield from _told(below, depth + 2)


def _event(event: Recorded, now: datetime) -> str:
    times = f" ({event.count} times)" if event.count and event.count > 1 else ""
    return f"{event.reason}, {moment(event.at, now)}{times}: {_plain(event.message)}"


def _sign(mark: Mark) -> str:
    sign = _SIGNS[mark]
    try:
        sign.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return _PLAIN_SIGNS[mark]
    return sign


def _plain(text: str) -> str:
    """One line, and nothing that a terminal would obey: some of it was written by others."""
    return "".join(letter for letter in " ".join(text.split()) if letter.isprintable())


def _refuse(problem: str) -> int:
    typer.echo(f"eso why: {_plain(problem)}", err=True)
    return UNUSABLE
