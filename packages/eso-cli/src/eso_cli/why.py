"""`eso why`: the state of one object and its cause, printed. `eso_operator.insight` reads and judges.

For a Secret, the objects that write or read it are explained.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import typer

from eso_cli.connecting import check_namespace, connected
from eso_cli.terminal import echo, printable, sign
from eso_operator.insight.evidence import Evidence, gather
from eso_operator.insight.facts import Fact, Mark, Recorded, Story, moment
from eso_operator.insight.kinds import AnyKind, kinds_named, known_words
from eso_operator.insight.secretowners import SECRET_WORDS, owners_of
from eso_operator.insight.sights import Eyes, Look, Sight
from eso_operator.insight.story import story_of
from kubebase.clock import Clock, SystemClock
from kubebase.hints import hint
from kubebase.meta import ObjectKey
from kuberun.client import Client
from kuberun.errors import KubeError

HEALTHY, UNWELL, UNUSABLE = 0, 1, 2
"""Exit codes: the object is fine; it is not, or waits; unknown, because of an option or the API server."""

_SUGGESTED: Final = 3
_MAX_SUBJECTS: Final = 5
"""Objects that are explained for one Secret."""
_SIGNS: Final = {Mark.GOOD: "✓", Mark.BAD: "✗", Mark.OPEN: "?"}
_COLOURS: Final = {Mark.GOOD: typer.colors.GREEN, Mark.BAD: typer.colors.RED, Mark.OPEN: typer.colors.YELLOW}
_OK: Final = {Mark.GOOD: True, Mark.BAD: False, Mark.OPEN: None}


@dataclass(frozen=True, slots=True)
class Options:
    """`kind` may be KIND/NAME; then `name` is empty."""

    kind: str
    name: str = ""
    namespace: str = ""
    kubeconfig: Path | None = None
    context: str = ""
    as_json: bool = False


async def run(options: Options, clock: Clock | None = None) -> int:
    """Print the story; return the exit code."""
    now = (clock or SystemClock()).now()
    word, slash, after = options.kind.partition("/")
    name = options.name or after
    if not name or (options.name and slash):
        return _refuse("name one object, as KIND NAME or KIND/NAME")
    is_secret = word.lower() in SECRET_WORDS
    kinds = [] if is_secret else kinds_named(word)
    if not kinds and not is_secret:
        return _refuse(_unknown(word))
    try:
        async with connected(options.kubeconfig, options.context, command="why") as (client, connection):
            key = ObjectKey(options.namespace or connection.namespace or "default", name)
            await check_namespace(client, key.namespace)
            if is_secret:
                return await _explain_secret(client, key, options, now)
            evidence = await _found(client, kinds, key)
            hints = await _hints(client, kinds, key, evidence)
    except KubeError as problem:
        return _refuse(str(problem))
    if isinstance(evidence, Sight) and evidence.look is Look.HIDDEN:
        return _refuse(f"{evidence.kind} {evidence.key}: {evidence.why}")
    story = story_of(evidence, now)
    story = replace(story, head=replace(story.head, notes=(*story.head.notes, *hints)))
    echo(json.dumps(as_json(story), indent=2) if options.as_json else "\n".join(lines(story, now)), coloured=True)
    return HEALTHY if story.healthy and story.head.mark is not Mark.OPEN else UNWELL


async def _explain_secret(client: Client, key: ObjectKey, options: Options, now: datetime) -> int:
    """Print the objects that write or read a Secret, each with its story; return the exit code."""
    owners = await owners_of(client, key)
    shown = owners.subjects[:_MAX_SUBJECTS]
    stories = [story_of(await gather(client, kind, subject), now) for kind, subject in shown]
    left_out = len(owners.subjects) - len(shown)
    healthy = owners.fact.mark is not Mark.BAD and all(story.healthy for story in stories)
    if options.as_json:
        found = {"healthy": healthy, "object": _fields(owners.fact), "explains": [as_json(story) for story in stories]}
        echo(json.dumps(found | {"leftOut": left_out}, indent=2))
        return HEALTHY if healthy else UNWELL
    # With objects to explain, the Secret is a title without a sign: the first ✗ is the cause.
    parts = [printable(owners.fact.what)] if stories else list(lines(Story(owners.fact), now))
    parts += ["\n".join(lines(story, now)) for story in stories]
    parts += [f"and {left_out} more objects"] if left_out else []
    echo("\n\n".join(parts), coloured=True)
    return HEALTHY if healthy else UNWELL


async def _found(client: Client, kinds: list[AnyKind], key: ObjectKey) -> Evidence | Sight:
    """Return the first object of that name: several groups may have the kind."""
    first: Evidence | Sight | None = None
    for kind in kinds:
        evidence = await gather(client, kind, key)
        if not _is_absent(evidence):
            return evidence
        first = first or evidence
    if first is None:
        raise AssertionError("a word without kinds is refused before")
    return first


async def _hints(client: Client, kinds: list[AnyKind], key: ObjectKey, found: Evidence | Sight) -> list[str]:
    """Return the names that may have been meant, or the objects of other groups that have the name too."""
    eyes = Eyes(client)
    if isinstance(found, Evidence):
        others = [kind for kind in kinds[kinds.index(found.kind) + 1 :] if await _exists(eyes, kind, key)]
        return [f"there is another: eso why {other.plural}.{other.group}/{key.name}" for other in others]
    names = {name for kind in kinds for name in await eyes.names(kind.resource(), key.namespace)}
    meant = hint(key.name, names, count=_SUGGESTED) if _is_absent(found) else ""
    return [meant] if meant else []


async def _exists(eyes: Eyes, kind: AnyKind, key: ObjectKey) -> bool:
    seen = await eyes.glance(kind.resource(), key if kind.namespaced else ObjectKey("", key.name))
    return seen.look is Look.FOUND


def _is_absent(evidence: Evidence | Sight) -> bool:
    return isinstance(evidence, Sight) and evidence.look is Look.ABSENT


def _unknown(word: str) -> str:
    words = known_words()
    meant = hint(word, words, count=_SUGGESTED) or f"the kinds are {', '.join(words)}"
    return f'"{word}" is neither a Secret nor a kind of External Secrets; {meant}'


# --- printing ---------------------------------------------------------------------------------------------------------


def lines(story: Story, now: datetime) -> Iterator[str]:
    """Yield the story as text; `echo` strips the colours if the output is not a terminal.

    The object is the title. It has a sign only if it is the cause or nothing is bad, so that the first ✗ is the cause.
    """
    titled = story.cause is not None and story.cause is not story.head
    yield printable(story.head.what) if titled else f"{_styled(story.head.mark)} {printable(story.head.what)}"
    yield from (f"    {printable(note)}" for note in story.head.notes)
    for step in story.steps:
        for fact in step:
            yield f"  {_styled(fact.mark)} {printable(fact.what)}"
            yield from (f"      {printable(note)}" for note in fact.notes)
    if not story.healthy:
        yield from (f"  event {_event(event, now)}" for event in story.events)


def as_json(story: Story) -> dict[str, Any]:
    """Return the story for tools."""
    return {
        "healthy": story.healthy,
        "cause": printable(story.cause.what) if story.cause else None,
        "nextAttemptTime": story.next_attempt_time or None,
        "object": _fields(story.head),
        "steps": [_fields(step) for step in story.steps],
        "events": [
            {"type": each.type, "reason": each.reason, "at": each.at, "message": printable(each.message)}
            for each in story.events
        ],
    }


def _fields(fact: Fact) -> dict[str, Any]:
    fields = {"step": fact.name, "ok": _OK[fact.mark], "says": printable(fact.what)}
    return fields | {"notes": [printable(note) for note in fact.notes], "below": [_fields(each) for each in fact.below]}


def _event(event: Recorded, now: datetime) -> str:
    times = f" ({event.count} times)" if event.count and event.count > 1 else ""
    return f"{event.reason}, {moment(event.at, now)}{times}: {printable(event.message)}"


def _styled(mark: Mark) -> str:
    return typer.style(sign(_SIGNS[mark]), fg=_COLOURS[mark])


def _refuse(problem: str) -> int:
    echo(f"eso why: {printable(problem)}", err=True)
    return UNUSABLE
