"""`eso why`: the state of one object and its cause, printed. `eso_tools.why` reads and judges.

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
from eso_tools.objects import AnyKind, ObjectReader, ObjectSummary, ReadState, RecordedEvent, kinds_named, known_names
from eso_tools.times import moment
from eso_tools.why.explanation import Explanation, Finding, Mark, explanation_of
from eso_tools.why.inputs import Inputs, gather
from eso_tools.why.secretowners import SECRET_KIND_NAMES, owners_of
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
class WhyOptions:
    """`kind` may be KIND/NAME; then `name` is empty."""

    kind: str
    name: str = ""
    namespace: str = ""
    kubeconfig: Path | None = None
    context: str = ""
    as_json: bool = False


async def run(options: WhyOptions, clock: Clock | None = None) -> int:
    """Print the explanation; return the exit code."""
    now = (clock or SystemClock()).now()
    kind_name, slash, after = options.kind.partition("/")
    name = options.name or after
    if not name or (options.name and slash):
        return _refuse("name one object, as KIND NAME or KIND/NAME")
    is_secret = kind_name.lower() in SECRET_KIND_NAMES
    kinds = [] if is_secret else kinds_named(kind_name)
    if not kinds and not is_secret:
        return _refuse(_unknown(kind_name))
    try:
        async with connected(options.kubeconfig, options.context, command="why") as (client, connection):
            key = ObjectKey(options.namespace or connection.namespace or "default", name)
            await check_namespace(client, key.namespace)
            if is_secret:
                return await _explain_secret(client, key, options, now)
            inputs = await _found(client, kinds, key)
            hints = await _hints(client, kinds, key, inputs)
    except KubeError as problem:
        return _refuse(str(problem))
    if isinstance(inputs, ObjectSummary) and inputs.read_state is ReadState.UNREADABLE:
        return _refuse(f"{inputs.kind} {inputs.key}: {inputs.why}")
    explanation = explanation_of(inputs, now)
    explanation = replace(explanation, head=replace(explanation.head, notes=(*explanation.head.notes, *hints)))
    echo(
        json.dumps(as_json(explanation), indent=2) if options.as_json else "\n".join(lines(explanation, now)),
        coloured=True,
    )
    return HEALTHY if explanation.healthy and explanation.head.mark is not Mark.OPEN else UNWELL


async def _explain_secret(client: Client, key: ObjectKey, options: WhyOptions, now: datetime) -> int:
    """Print the objects that write or read a Secret, each with its explanation; return the exit code."""
    owners = await owners_of(client, key)
    shown = owners.subjects[:_MAX_SUBJECTS]
    explanations = [explanation_of(await gather(client, kind, subject), now) for kind, subject in shown]
    left_out = len(owners.subjects) - len(shown)
    healthy = owners.finding.mark is not Mark.BAD and all(explanation.healthy for explanation in explanations)
    if options.as_json:
        found = {
            "healthy": healthy,
            "object": _fields(owners.finding),
            "explains": [as_json(explanation) for explanation in explanations],
        }
        echo(json.dumps(found | {"leftOut": left_out}, indent=2))
        return HEALTHY if healthy else UNWELL
    # With objects to explain, the Secret is a title without a sign: the first ✗ is the cause.
    parts = [printable(owners.finding.what)] if explanations else list(lines(Explanation(owners.finding), now))
    parts += ["\n".join(lines(explanation, now)) for explanation in explanations]
    parts += [f"and {left_out} more objects"] if left_out else []
    echo("\n\n".join(parts), coloured=True)
    return HEALTHY if healthy else UNWELL


async def _found(client: Client, kinds: list[AnyKind], key: ObjectKey) -> Inputs | ObjectSummary:
    """Return the first object of that name: several groups may have the kind."""
    first: Inputs | ObjectSummary | None = None
    for kind in kinds:
        inputs = await gather(client, kind, key)
        if not _is_absent(inputs):
            return inputs
        first = first or inputs
    if first is None:
        raise AssertionError("an unknown kind is refused before")
    return first


async def _hints(client: Client, kinds: list[AnyKind], key: ObjectKey, found: Inputs | ObjectSummary) -> list[str]:
    """Return the names that may have been meant, or the objects of other groups that have the name too."""
    reader = ObjectReader(client)
    if isinstance(found, Inputs):
        others = [kind for kind in kinds[kinds.index(found.kind) + 1 :] if await _exists(reader, kind, key)]
        return [f"there is another: eso why {other.plural}.{other.group}/{key.name}" for other in others]
    names = {name for kind in kinds for name in await reader.names(kind.resource(), key.namespace)}
    meant = hint(key.name, names, count=_SUGGESTED) if _is_absent(found) else ""
    return [meant] if meant else []


async def _exists(reader: ObjectReader, kind: AnyKind, key: ObjectKey) -> bool:
    found = await reader.read_metadata(kind.resource(), key if kind.namespaced else ObjectKey("", key.name))
    return found.read_state is ReadState.FOUND


def _is_absent(inputs: Inputs | ObjectSummary) -> bool:
    return isinstance(inputs, ObjectSummary) and inputs.read_state is ReadState.ABSENT


def _unknown(kind_name: str) -> str:
    names = known_names()
    meant = hint(kind_name, names, count=_SUGGESTED) or f"the kinds are {', '.join(names)}"
    return f'"{kind_name}" is neither a Secret nor a kind of External Secrets; {meant}'


# --- printing ---------------------------------------------------------------------------------------------------------


def lines(explanation: Explanation, now: datetime) -> Iterator[str]:
    """Yield the explanation as text; `echo` strips the colours if the output is not a terminal.

    The object is the title. It has a sign only if it is the cause or nothing is bad, so that the first ✗ is the cause.
    """
    titled = explanation.cause is not None and explanation.cause is not explanation.head
    yield (
        printable(explanation.head.what)
        if titled
        else f"{_styled(explanation.head.mark)} {printable(explanation.head.what)}"
    )
    yield from (f"    {printable(note)}" for note in explanation.head.notes)
    for step in explanation.steps:
        for finding in step:
            yield f"  {_styled(finding.mark)} {printable(finding.what)}"
            yield from (f"      {printable(note)}" for note in finding.notes)
    if not explanation.healthy:
        yield from (f"  event {_event(event, now)}" for event in explanation.events)


def as_json(explanation: Explanation) -> dict[str, Any]:
    """Return the explanation for tools."""
    return {
        "healthy": explanation.healthy,
        "cause": printable(explanation.cause.what) if explanation.cause else None,
        "nextAttemptTime": explanation.next_attempt_time or None,
        "object": _fields(explanation.head),
        "steps": [_fields(step) for step in explanation.steps],
        "events": [
            {"type": each.type, "reason": each.reason, "at": each.at, "message": printable(each.message)}
            for each in explanation.events
        ],
    }


def _fields(finding: Finding) -> dict[str, Any]:
    fields = {"step": finding.name, "ok": _OK[finding.mark], "says": printable(finding.what)}
    return fields | {
        "notes": [printable(note) for note in finding.notes],
        "below": [_fields(each) for each in finding.below],
    }


def _event(event: RecordedEvent, now: datetime) -> str:
    times = f" ({event.count} times)" if event.count and event.count > 1 else ""
    return f"{event.reason}, {moment(event.at, now)}{times}: {printable(event.message)}"


def _styled(mark: Mark) -> str:
    return typer.style(sign(_SIGNS[mark]), fg=_COLOURS[mark])


def _refuse(problem: str) -> int:
    echo(f"eso why: {printable(problem)}", err=True)
    return UNUSABLE
