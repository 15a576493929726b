"""The facts of a story, each good, bad or unknown, and the story that consists of them. Pure.

Facts are in the order in which values pass through the objects; `below` of a fact comes before the fact itself. So the
first bad fact is the cause, and later ones are consequences.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from typing import Final

import msgspec

from eso_api.conditions import CONTENDED, READY, SHARED_PLACE
from kubebase.clock import parse_rfc3339
from kubebase.meta import Condition
from kuberun.conditions import find_condition

_SENTENCE: Final = 12
"""The minimum length of a text that counts as a sentence; shorter texts may be equal by chance."""


class Mark(Enum):
    GOOD = "good"
    BAD = "bad"
    OPEN = "not known"


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact about `subject`. `below` are the facts about the objects that it needs."""

    name: str
    mark: Mark
    subject: str
    state: str = ""
    """A few words, or a reason."""
    message: str = ""
    """A sentence; a story shows it only once."""
    notes: tuple[str, ...] = ()
    below: tuple[Fact, ...] = ()

    @property
    def what(self) -> str:
        return ": ".join(part for part in (self.subject, self.state, self.message) if part)

    def __iter__(self) -> Iterator[Fact]:
        """Yield the facts below, then the fact itself."""
        for each in self.below:
            yield from each
        yield self


class Recorded(msgspec.Struct, rename="camel", frozen=True):
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
class Story:
    """The facts about one object. `head` is about the object itself, the result of all others."""

    head: Fact
    steps: tuple[Fact, ...] = ()
    events: tuple[Recorded, ...] = ()
    next_attempt_time: str = ""

    @property
    def cause(self) -> Fact | None:
        """Return the first bad fact; the object itself comes last."""
        ordered = (*(each for step in self.steps for each in step), self.head)
        return next((fact for fact in ordered if fact.mark is Mark.BAD), None)

    @property
    def healthy(self) -> bool:
        return self.cause is None


def told_once(story: Story) -> Story:
    """Drop sentences that an earlier fact shows: conditions and events repeat the message of their cause."""
    said: list[str] = []
    steps = tuple(_once(step, said) for step in story.steps)
    head = _once(story.head, said)
    events = tuple(each for each in story.events if not _is_told(each.message, said))
    return replace(story, head=head, steps=steps, events=events)


def with_next_attempt(story: Story, conditions: Sequence[Condition], at: str | None, now: datetime) -> Story:
    """Add the time of the next attempt to the cause."""
    cause, ready = story.cause, ready_of(conditions)
    if cause is None or ready is None or ready.status != "False":
        return story
    attempt = moment(at, now) if at else "soon, or when something it depends on changes"
    noted = replace(cause, notes=(*cause.notes, f"next attempt: {attempt}"))

    def told(fact: Fact) -> Fact:
        return noted if fact is cause else replace(fact, below=tuple(map(told, fact.below)))

    return replace(story, head=told(story.head), steps=tuple(map(told, story.steps)), next_attempt_time=at or "")


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


def moment(text: str, now: datetime) -> str:
    """Return a time, and its distance from now."""
    try:
        distance = (parse_rfc3339(text) - now).total_seconds()
    except (ValueError, TypeError):
        return text
    return f"{text} (in {_span(distance)})" if distance > 0 else f"{text} ({_span(-distance)} ago)"


def _once(fact: Fact, said: list[str]) -> Fact:
    below = tuple(_once(each, said) for each in fact.below)
    if fact.message and fact.state and _is_told(fact.message, said):
        return replace(fact, message="", below=below)
    said.append(fact.message)
    return replace(fact, below=below)


def _is_told(sentence: str, said: Sequence[str]) -> bool:
    return any(
        sentence == earlier
        or (len(sentence) >= _SENTENCE and sentence in earlier)
        or (len(earlier) >= _SENTENCE and earlier in sentence)
        for earlier in said
        if earlier
    )


def _span(seconds: float) -> str:
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
