"""The findings of an explanation, each good, bad or unknown, and the explanation that consists of them. Pure.

Findings are in the order in which values pass through the objects; `below` of a finding comes before it. So the
first bad finding is the cause, and later ones are consequences.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from typing import Final

import msgspec

from eso_api.common import CONTENDED, READY, SHARED_PLACE
from eso_operator.insight.times import moment
from kubebase.meta import Condition
from kuberun.status import find_condition

_SENTENCE: Final = 12
"""The minimum length of a text that counts as a sentence; shorter texts may be equal by chance."""


class Mark(Enum):
    GOOD = "good"
    BAD = "bad"
    OPEN = "not known"


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding about `subject`. `below` are the findings about the objects that it needs."""

    name: str
    mark: Mark
    subject: str
    state: str = ""
    """A short text, or a reason."""
    message: str = ""
    """A sentence; an explanation shows it only once."""
    notes: tuple[str, ...] = ()
    below: tuple[Finding, ...] = ()

    @property
    def what(self) -> str:
        return ": ".join(part for part in (self.subject, self.state, self.message) if part)

    def __iter__(self) -> Iterator[Finding]:
        """Yield the findings below, then the finding itself."""
        for each in self.below:
            yield from each
        yield self


class RecordedEvent(msgspec.Struct, rename="camel", frozen=True):
    """A recorded event."""

    type: str = ""
    reason: str = ""
    message: str = ""
    count: int | None = None
    last_timestamp: str | None = None
    event_time: str | None = None

    @property
    def at(self) -> str:
        return self.last_timestamp or self.event_time or ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The findings about one object. `head` is about the object itself, the result of all others."""

    head: Finding
    steps: tuple[Finding, ...] = ()
    events: tuple[RecordedEvent, ...] = ()
    next_attempt_time: str = ""

    @property
    def cause(self) -> Finding | None:
        """Return the first bad finding; the object itself comes last."""
        ordered = (*(each for step in self.steps for each in step), self.head)
        return next((finding for finding in ordered if finding.mark is Mark.BAD), None)

    @property
    def healthy(self) -> bool:
        return self.cause is None


def without_repeats(explanation: Explanation) -> Explanation:
    """Drop sentences that an earlier finding shows: conditions and events repeat the message of their cause."""
    shown: list[str] = []
    steps = tuple(_once(step, shown) for step in explanation.steps)
    head = _once(explanation.head, shown)
    events = tuple(each for each in explanation.events if not _is_repeated(each.message, shown))
    return replace(explanation, head=head, steps=steps, events=events)


def with_next_attempt(
    explanation: Explanation, conditions: Sequence[Condition], at: str | None, now: datetime
) -> Explanation:
    """Add the time of the next attempt to the cause."""
    cause, ready = explanation.cause, ready_of(conditions)
    if cause is None or ready is None or ready.status != "False":
        return explanation
    attempt = moment(at, now) if at else "soon, or when something it depends on changes"
    noted = replace(cause, notes=(*cause.notes, f"next attempt: {attempt}"))

    def with_note(finding: Finding) -> Finding:
        return noted if finding is cause else replace(finding, below=tuple(map(with_note, finding.below)))

    return replace(
        explanation,
        head=with_note(explanation.head),
        steps=tuple(map(with_note, explanation.steps)),
        next_attempt_time=at or "",
    )


def ready_of(conditions: Sequence[Condition]) -> Condition | None:
    return find_condition(conditions, READY)


def verdict(ready: Condition) -> Mark:
    return {"True": Mark.GOOD, "False": Mark.BAD}.get(ready.status, Mark.OPEN)


def conflict_of(conditions: Sequence[Condition]) -> Condition | None:
    """Return the condition of an object that is in conflict with others. A shared place may be intended."""
    found = find_condition(conditions, CONTENDED)
    return found if found is not None and found.status == "True" and found.reason != SHARED_PLACE else None


def other_conditions(conditions: Sequence[Condition]) -> tuple[str, ...]:
    """Return the conditions besides `Ready`, for notes."""
    return tuple(f"{each.type}: {each.message or each.reason}" for each in conditions if each.type != READY)


def _once(finding: Finding, shown: list[str]) -> Finding:
    below = tuple(_once(each, shown) for each in finding.below)
    if finding.message and finding.state and _is_repeated(finding.message, shown):
        return replace(finding, message="", below=below)
    shown.append(finding.message)
    return replace(finding, below=below)


def _is_repeated(sentence: str, shown: Sequence[str]) -> bool:
    return any(
        sentence == earlier
        or (len(sentence) >= _SENTENCE and sentence in earlier)
        or (len(earlier) >= _SENTENCE and earlier in sentence)
        for earlier in shown
        if earlier
    )
