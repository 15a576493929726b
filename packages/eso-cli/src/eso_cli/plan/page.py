"""A plan as text and as JSON: problems first, then one table for each namespace, then a summary. Never a value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import typer

from eso_cli.plan.planning import Plan, PushPlan, TargetPlan
from eso_cli.terminal import printable, sign
from eso_operator.planning.differences import Change

_SIGNS: Final = {Change.CREATE: "+", Change.CHANGE: "~", Change.REMOVE: "-", Change.UNCHANGED: "="}
_COLOURS: Final = {
    Change.CREATE: typer.colors.GREEN,
    Change.CHANGE: typer.colors.YELLOW,
    Change.REMOVE: typer.colors.RED,
    Change.UNCHANGED: None,
}
_MAX_WAITING: Final = 10


def lines(plan: Plan) -> Iterator[str]:
    """Yield the page. `echo` strips the colours if the output is not a terminal."""
    yield from _problems(plan)
    for namespace in sorted({target.namespace for target in plan.targets} | {push.namespace for push in plan.pushes}):
        yield typer.style(f"namespace {printable(namespace)}", bold=True)
        for target in plan.targets:
            if target.namespace == namespace:
                yield from _target(target)
        for of in sorted({push.of for push in plan.pushes if push.namespace == namespace}):
            yield f"  PushSecret {printable(of)} (nothing was pushed)"
            yield from _rows([_push_row(push) for push in plan.pushes if (push.namespace, push.of) == (namespace, of)])
        yield ""
    yield from (f"note: {printable(note)}" for note in plan.notes)
    yield summary(plan)


def summary(plan: Plan) -> str:
    """Return the counts of keys and remote values, then of objects."""
    counts = [f"{plan.count(change)} {change}" for change in Change]
    if plan.failing:
        counts.append(f"{plan.failing} {'fails' if plan.failing == 1 else 'fail'}")
    if plan.unchecked:
        counts.append(f"{len(plan.unchecked)} not checked")
    return ", ".join(counts)


def as_json(plan: Plan, code: int) -> dict[str, Any]:
    return {
        "summary": {
            **{change.value: plan.count(change) for change in Change},
            "fails": plan.failing,
            "notChecked": len(plan.unchecked),
            "exitCode": code,
        },
        "problems": [
            {
                "says": printable(cause.headline),
                "reason": cause.reason,
                "message": printable(cause.message) or None,
                "causedBy": [str(row.id) for row in cause.roots],
                "waiting": [str(row.id) for row in cause.waiting],
            }
            for cause in plan.causes
        ],
        "unsettled": printable(plan.unsettled) or None,
        "notChecked": [
            {"kind": each.kind, "namespace": each.namespace, "name": each.name, "why": printable(each.why)}
            for each in plan.unchecked
        ],
        "targets": [_target_fields(target) for target in plan.targets],
        "pushes": [_push_fields(push) for push in plan.pushes],
        "notes": [printable(note) for note in plan.notes],
    }


# --- text -------------------------------------------------------------------------------------------------------------


def _problems(plan: Plan) -> Iterator[str]:
    if plan.unsettled:
        yield f"{_cross()} {printable(plan.unsettled)}"
        yield ""
    for cause in plan.causes:
        yield f"{_cross()} {typer.style(printable(cause.headline), bold=True)}"
        if message := printable(cause.message):
            yield f"    {message}"
        if len(cause.roots) > 1:
            yield f"    {', '.join(printable(str(row.id.key)) for row in cause.roots[:_MAX_WAITING])}"
        if cause.waiting:
            more = len(cause.waiting) - _MAX_WAITING
            names = ", ".join(printable(str(row.id.key)) for row in cause.waiting[:_MAX_WAITING])
            yield f"    waiting: {names}{f' and {more} more' if more > 0 else ''}"
        yield ""
    for each in plan.unchecked:
        yield f"? {printable(f'{each.kind} {each.namespace}/{each.name}')}: not checked"
        yield f"    {printable(each.why)}"
        yield ""


def _target(target: TargetPlan) -> Iterator[str]:
    yield f"  {printable(f'{target.kind} {target.name}')}, of ExternalSecret {', '.join(map(printable, target.of))}"
    yield from (f"    ({printable(note)})" for note in target.notes)
    yield from _rows([(key.change, key.key, _digests(key.before, key.after)) for key in target.keys])


def _push_row(push: PushPlan) -> tuple[Change, str, str]:
    known = "" if push.current_known else "; its current value cannot be read"
    return push.change, f"{push.store}: {push.remote}", f"{push.digest}{known}"


def _rows(rows: list[tuple[Change, str, str]]) -> Iterator[str]:
    width = max((len(printable(name)) for _, name, _ in rows), default=0)
    for change, name, digests in rows:
        text = f"    {_SIGNS[change]} {change:<9}  {printable(name).ljust(width)}  {digests}".rstrip()
        yield typer.style(text, fg=_COLOURS[change])


def _digests(before: str, after: str) -> str:
    if before and after and before != after:
        return f"{before} -> {after}"
    return after or before


def _cross() -> str:
    return typer.style(sign("✗"), fg=typer.colors.RED)


# --- JSON -------------------------------------------------------------------------------------------------------------


def _target_fields(target: TargetPlan) -> dict[str, Any]:
    return {
        "kind": target.kind,
        "namespace": target.namespace,
        "name": target.name,
        "externalSecrets": list(target.of),
        "notes": list(target.notes),
        "keys": [
            {"key": key.key, "change": key.change.value, "before": key.before or None, "after": key.after or None}
            for key in target.keys
        ],
    }


def _push_fields(push: PushPlan) -> dict[str, Any]:
    return {
        "namespace": push.namespace,
        "pushSecret": push.of,
        "store": push.store,
        "remote": push.remote,
        "change": push.change.value,
        "digest": push.digest or None,
        "currentValueKnown": push.current_known,
    }
