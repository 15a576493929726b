"""Why an ExternalSecret or PushSecret is as it is: the way of its values as steps, each good, bad or not known. Pure.

    ExternalSecret    sources (with their providers) -> entries -> template -> target
    PushSecret        secrets -> template -> sources (with their providers) -> entries

The condition of the object says what happened last; the other objects say what is so now. Where the condition's message
belongs is told from the step that it names (`eso_operator/externalsecret/outcome.py`); a message that belongs to no
step stays with the object itself. The first bad step, provider before store, is the cause.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Final

from eso_api.conditions import KeyOutcome
from eso_api.externalsecret import ExternalSecret
from eso_api.pushsecret import PushSecret
from eso_cli.evidence import Evidence, Look, Recorded, Sight, Source, Subject
from eso_operator.externalsecret import refresh
from eso_operator.sync.wants import wants_of
from eso_operator.targets.marks import HASH_ANNOTATION, OWNER
from kuberun.clock import parse_rfc3339
from kuberun.conditions import find_condition
from kuberun.meta import Condition

READY: Final = "Ready"
MAX_ENTRIES: Final = 10
_GRACE: Final = timedelta(minutes=15)
"""A refresh is written into the status at most every five minutes, and clocks differ."""
_NO_OPERATOR: Final = "nothing is said of it yet: does an operator run, and is it the one that its stores are for?"
_AT_ENTRIES: Final = ("could not get secret data", "could not set secret", "could not delete secret")
_AT_TARGET: Final = (
    "could not update",
    "could not delete",
    "could not get target",
    "target is owned",
    "failed to take",
)
_AT_SOURCE: Final = "could not get source secret"


class Mark(Enum):
    GOOD = "good"
    BAD = "bad"
    OPEN = "not known"


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the way. `notes` are further facts; `below` is what the step itself stands on."""

    name: str
    mark: Mark
    what: str
    notes: tuple[str, ...] = ()
    below: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class Story:
    head: Step
    steps: tuple[Step, ...] = ()
    events: tuple[Recorded, ...] = ()
    next_attempt_time: str = ""

    @property
    def cause(self) -> Step | None:
        """The first step that is bad; what it stands on comes before it."""
        ordered = [*(each for step in self.steps for each in (*step.below, step)), self.head]
        return next((step for step in ordered if step.mark is Mark.BAD), None)

    @property
    def healthy(self) -> bool:
        return self.cause is None


def story_of(evidence: Evidence | Sight, now: datetime) -> Story:
    """The whole story."""
    match evidence:
        case Sight():
            return Story(Step("object", Mark.BAD, f"{evidence.kind} {evidence.key}: {evidence.why}"))
        case Evidence(subject=ExternalSecret() as subject):
            steps = [*_sources(evidence), *_entries(subject), *_template(evidence)]
            steps += _target(subject, evidence.secrets)
        case Evidence(subject=PushSecret() as subject):
            steps = [*_read(subject, evidence.secrets), *_template(evidence), *_sources(evidence)]
            steps += _entries(subject)
        case _:
            raise TypeError(type(evidence))
    story = Story(_head(evidence, now), tuple(steps), evidence.events)
    return _with_next_attempt(story, subject, now)


def moment(text: str, now: datetime) -> str:
    """A time as it is, and how far away it is."""
    try:
        distance = (parse_rfc3339(text) - now).total_seconds()
    except (ValueError, TypeError):
        return text
    return f"{text} (in {_span(distance)})" if distance > 0 else f"{text} ({_span(-distance)} ago)"


# --- the object itself ------------------------------------------------------------------------------------------------


def _head(evidence: Evidence, now: datetime) -> Step:
    subject = evidence.subject
    what, ready = _named(subject), _ready(subject.status.conditions)
    if ready is None:
        return Step("object", Mark.BAD, f"{what}: {_NO_OPERATOR}")
    told = ready.message if ready.status != "True" and _place(subject) == "object" else ""
    said = f"{what}: {ready.reason}" + (f": {told}" if told else "")
    return Step("object", _verdict(ready), said, tuple(_notes(subject, now)))


def _notes(subject: Subject, now: datetime) -> Iterator[str]:
    status = subject.status
    if subject.metadata.deletion_timestamp:
        yield f"being deleted since {moment(subject.metadata.deletion_timestamp, now)}"
    yield f"last refresh: {moment(status.refresh_time, now)}" if status.refresh_time else "never refreshed"
    for condition in status.conditions:
        if condition.type != READY:
            yield f"{condition.type}: {condition.message or condition.reason}"
    if isinstance(subject, ExternalSecret):
        if status.refresh_time and status.synced_resource_version != refresh.current_version(subject):
            yield "changed since then"
        if _overdue(subject, now):
            yield f"a refresh is overdue (refreshInterval {subject.spec.refresh_interval}): does the operator run?"


def _overdue(subject: ExternalSecret, now: datetime) -> bool:
    at = refresh.last_sync(subject).at
    if at is None or subject.spec.sync_windows is not None or not refresh.refreshes_by_itself(subject):
        return False
    return now - at > timedelta(seconds=refresh.interval_of(subject)) + _GRACE


def _place(subject: Subject) -> str:
    """The step that the condition of a failure is about."""
    ready = _ready(subject.status.conditions)
    message = ready.message if ready is not None and ready.status == "False" else ""
    if not message:
        return ""
    if isinstance(subject, PushSecret):
        if message.startswith(_AT_SOURCE):
            return "source"
        return "entries" if message.startswith(_AT_ENTRIES) or subject.status.outcomes else "object"
    if subject.status.outcomes or message.startswith(_AT_ENTRIES[0]):
        return "entries"
    if message.startswith("could not") and "template" in message:
        return "template"
    return "target" if message.startswith(_AT_TARGET) else "object"


def _message(subject: Subject, place: str) -> str:
    """What the condition says, if it is about that step."""
    ready = _ready(subject.status.conditions)
    return ready.message if ready is not None and _place(subject) == place else ""


# --- the steps --------------------------------------------------------------------------------------------------------


def _sources(evidence: Evidence) -> Iterator[Step]:
    yield from map(_source, evidence.sources)
    if evidence.left_out:
        yield Step("store", Mark.OPEN, f"and {evidence.left_out} more, which were not looked at")


def _source(source: Source) -> Step:
    sight = source.sight
    if sight.look is not Look.FOUND:
        return Step("store", _unseen(sight), f"{sight}: {sight.why}")
    below = _providers(source)
    ready = _ready(sight.conditions)
    if not source.validated and ready is None:
        return Step("generator", Mark.GOOD, f"{sight}: it exists", below=below)
    if ready is None:
        return Step("store", Mark.OPEN, f"{sight}: not validated yet", below=below)
    said = f"{ready.reason}: {ready.message}" if ready.message and ready.status != "True" else ready.reason
    others = [each for each in sight.conditions if each.type != READY]
    notes = tuple(f"{each.type}: {each.message or each.reason}" for each in others)
    # "Unknown" is for stores whose credentials come from whoever uses them: they work.
    mark = Mark.BAD if ready.status == "False" else Mark.GOOD
    return Step("store" if source.validated else "generator", mark, f"{sight}: {said}", notes, below)


def _providers(source: Source) -> tuple[Step, ...]:
    if not source.providers:
        said = f"provider: no class that can be read declares {source.route.said}"
        return (Step("provider", Mark.OPEN, said),) if source.route.said else ()
    steps = tuple(_provider(sight, source) for sight in source.providers)
    if len(steps) == 1:
        return steps
    # Which of several it is, only the operator knows; none of them is to blame for certain.
    return tuple(replace(step, mark=Mark.OPEN) if step.mark is Mark.BAD else step for step in steps)


def _provider(sight: Sight, source: Source) -> Step:
    ready, what = _ready(sight.conditions), f"provider {sight}"
    if sight.look is not Look.FOUND:
        return Step("provider", _unseen(sight), f"{what}: {sight.why} ({source.route.said})")
    if ready is None:
        return Step("provider", Mark.OPEN, f"{what}: it exists ({source.route.said})")
    said = ready.reason if ready.status == "True" else f"{ready.reason}: {ready.message}"
    return Step("provider", _verdict(ready), f"{what}: {said}", (sight.address,) if sight.address else ())


def _entries(subject: Subject) -> list[Step]:
    failed = subject.status.outcomes
    if failed:
        steps = [Step("entry", Mark.BAD, _failure(each), _since(each)) for each in failed[:MAX_ENTRIES]]
        more = len(failed) - len(steps)
        return [*steps, Step("entry", Mark.BAD, f"and {more} more in status.outcomes")] if more else steps
    if message := _message(subject, "entries"):
        return [Step("entry", Mark.BAD, f"entries: {message}")]
    if isinstance(subject, PushSecret):
        pushed = [f"{len(keys)} in {store}" for store, keys in sorted(subject.status.synced_push_secrets.items())]
        return [Step("entry", _so_far(subject, reached=bool(pushed)), f"entries: {', '.join(pushed) or 'none'} pushed")]
    count = len(wants_of(subject.spec))
    reached = bool(subject.status.refresh_time) or _place(subject) in ("template", "target")
    return [Step("entry", _so_far(subject, reached=reached), f"entries: {count} {'read' if reached else 'to read'}")]


def _failure(outcome: KeyOutcome) -> str:
    key = f" (key {outcome.remote_key})" if outcome.remote_key else ""
    store = f" at {outcome.store}" if outcome.store else ""
    said = f"{outcome.reason}: {outcome.message}" if outcome.message else outcome.reason
    return f"{outcome.path}{key}{store}: {said}"


def _since(outcome: KeyOutcome) -> tuple[str, ...]:
    return (f"since {outcome.since}",) if outcome.since else ()


def _template(evidence: Evidence) -> list[Step]:
    subject = evidence.subject
    template = subject.spec.target.template if isinstance(subject, ExternalSecret) else subject.spec.template
    if template is None:
        return []
    below = tuple(
        Step("template source", _unseen(sight), f"{sight}: {sight.why or 'it exists'}") for sight in evidence.templates
    )
    if message := _message(subject, "template"):
        return [Step("template", Mark.BAD, f"template: {message}", below=below)]
    missing = any(step.mark is Mark.BAD for step in below)
    mark = Mark.BAD if missing else _so_far(subject, reached=_place(subject) == "target")
    says = {Mark.GOOD: "rendered", Mark.BAD: "cannot be rendered", Mark.OPEN: "not rendered yet"}
    return [Step("template", mark, f"template: {says[mark]}", below=below)]


def _target(subject: ExternalSecret, seen: Sequence[Sight]) -> list[Step]:
    policy, message = subject.spec.target.creation_policy, _message(subject, "target")
    if policy == "None":
        return [Step("target", Mark.GOOD, "target: none, creationPolicy None writes nothing")]
    return [_target_step(subject, sight, policy, message) for sight in seen]


def _target_step(subject: ExternalSecret, sight: Sight, policy: str, message: str) -> Step:
    if message:
        return Step("target", Mark.BAD, f"{sight}: {message}")
    if sight.look is Look.ABSENT:
        ready = _ready(subject.status.conditions)
        if ready is not None and ready.status == "True" and ready.reason.endswith("Deleted"):
            return Step(
                "target", Mark.GOOD, f"{sight}: deleted, as deletionPolicy Delete says: the backend has nothing"
            )
        waits = "; creationPolicy Merge waits for somebody to create it" if policy == "Merge" else ""
        return Step("target", Mark.BAD, f"{sight}: {sight.why}{waits}")
    if sight.look is Look.HIDDEN:
        return Step("target", Mark.OPEN, f"{sight}: {sight.why}")
    controller = next((owner for owner in sight.metadata.owner_references if owner.controller), None)
    if policy == OWNER and controller is not None and controller.uid != subject.metadata.uid:
        return Step("target", Mark.BAD, f"{sight}: it belongs to {controller.kind} {controller.name}")
    owner = f"owned by {controller.kind} {controller.name}" if controller else "owned by nobody"
    written = "written by the operator" if HASH_ANNOTATION in sight.metadata.annotations else "never written"
    mark = Mark.GOOD if written != "never written" else Mark.OPEN
    return Step("target", mark, f"{sight}: it exists, {owner}, {written}")


def _read(subject: PushSecret, seen: Sequence[Sight]) -> list[Step]:
    if (message := _message(subject, "source")) and not any(sight.look is Look.ABSENT for sight in seen):
        return [Step("source", Mark.BAD, f"source: {message}")]
    return [Step("source", _unseen(sight), f"{sight}: {sight.why or 'it exists'}") for sight in seen]


# --- verdicts ---------------------------------------------------------------------------------------------------------


def _ready(conditions: Sequence[Condition]) -> Condition | None:
    return find_condition(conditions, READY)


def _verdict(ready: Condition) -> Mark:
    return {"True": Mark.GOOD, "False": Mark.BAD}.get(ready.status, Mark.OPEN)


def _unseen(sight: Sight) -> Mark:
    return {Look.FOUND: Mark.GOOD, Look.ABSENT: Mark.BAD, Look.HIDDEN: Mark.OPEN}[sight.look]


def _so_far(subject: Subject, *, reached: bool) -> Mark:
    """Of a step that nothing is said about: good if all is well, or if the trouble came later."""
    ready = _ready(subject.status.conditions)
    return Mark.GOOD if reached or (ready is not None and ready.status == "True") else Mark.OPEN


def _with_next_attempt(story: Story, subject: Subject, now: datetime) -> Story:
    """The first bad step says when it is tried again."""
    cause, ready = story.cause, _ready(subject.status.conditions)
    if cause is None or ready is None or ready.status != "False":
        return story
    at = subject.status.next_attempt_time
    attempt = moment(at, now) if at else "soon, or when something it depends on changes"
    noted = replace(cause, notes=(*cause.notes, f"next attempt: {attempt}"))

    def told(step: Step) -> Step:
        return noted if step is cause else replace(step, below=tuple(map(told, step.below)))

    return replace(story, head=told(story.head), steps=tuple(map(told, story.steps)), next_attempt_time=at or "")


def _named(subject: Subject) -> str:
    return f"{type(subject).__name__} {subject.metadata.key}"


def _span(seconds: float) -> str:
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
