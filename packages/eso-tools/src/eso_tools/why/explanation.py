"""The explanation of an object: the objects that its values pass through, which of them are bad, and the cause. Pure.

    ExternalSecret            stores with their providers -> entries -> template -> target
    PushSecret                source -> template -> stores with their providers -> entries
    ClusterExternalSecret, …  the objects of the namespaces, each with its own cause
    store, generator, state   its provider
    provider class            its Service

The condition of the object describes its last reconcile; the other objects show the present state. The condition's
message is shown at the step that the status names, or at the object itself if it names none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Final

from eso_api.common import READY, KeyOutcome
from eso_api.externalsecret import ExternalSecret
from eso_api.generators.generatorstate import GeneratorState
from eso_api.pushsecret import PushSecret
from eso_operator.controllers.outcomes import DELETED, Step
from eso_operator.controllers.refresh import (
    FLUSH_SECONDS,
    current_version,
    interval_of,
    last_sync,
    refreshes_by_itself,
)
from eso_operator.controllers.secretstore.kinds import STORE_KINDS
from eso_operator.sources.entries import entries_of
from eso_operator.stores.resolve import Stage
from eso_operator.stores.resolved import Reason
from eso_operator.targets.metadata import HASH_ANNOTATION, OWNER
from eso_tools.objects import ObjectSummary, ReadState, RecordedEvent, Role, conflict_of, role_of
from eso_tools.times import moment
from eso_tools.why.inputs import Inputs, Source
from eso_tools.why.path import DEPENDS_ON_FLAGS, ENDPOINT, GATE, HANDSHAKE
from kubebase.meta import Condition, Malformed
from kuberun.status import find_condition, is_true

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


# --- from inputs to findings ------------------------------------------------------------------------------------------

EXISTS: Final = "it exists"

_VALIDATED: Final = frozenset(kind.custom.name for kind in STORE_KINDS)
MAX_ENTRIES: Final = 10
_GRACE: Final = timedelta(minutes=15)
"""A refresh is written into the status at most every five minutes, and clocks differ."""
_NO_OPERATOR: Final = "it has no status yet: does an operator run, and is it the one that its stores are for?"
_NOT_CLEANED: Final = "CleanupFailed"
"""The event about a GeneratorState, which has no condition."""

_ENTRIES: Final = frozenset({Step.FETCH.code, Step.PUSH.code, Step.DELETE_PUSHED.code})
_TEMPLATE: Final = frozenset({Step.RENDER.code, Step.RENDER_PUSH.code})
_TARGET: Final = frozenset({Step.READ_TARGET.code, Step.WRITE.code, Step.DELETE.code, Step.REMOVE_FORMER.code})
_SOURCE: Final = frozenset({Step.READ_SOURCE.code})
_PLACED: Final = _ENTRIES | _TEMPLATE | _TARGET | _SOURCE
"""Steps with their own finding; the others are shown at the object."""

Subject = ExternalSecret | PushSecret


def explanation_of(inputs: Inputs | ObjectSummary, now: datetime) -> Explanation:
    if isinstance(inputs, ObjectSummary):
        return Explanation(Finding("object", Mark.BAD, _titled(inputs), inputs.why))
    conditions = inputs.summary.conditions
    explanation = without_repeats(replace(_explanation(inputs, now), events=inputs.events))
    return with_next_attempt(explanation, conditions, getattr(_status(inputs), "next_attempt_time", None), now)


def _explanation(inputs: Inputs, now: datetime) -> Explanation:
    subject = inputs.subject
    if isinstance(subject, Malformed):
        return Explanation(
            Finding("object", Mark.BAD, _titled(inputs.summary), "it does not fit its type", subject.error)
        )
    match role_of(inputs.kind):
        case Role.READS:
            steps = [*source_findings(inputs), *_entries(subject), *_template(inputs)]
            return Explanation(_head(inputs, now), (*steps, *_target(subject, inputs.objects)))
        case Role.PUSHES:
            steps = [*_read(subject, inputs.objects), *_template(inputs), *source_findings(inputs)]
            return Explanation(_head(inputs, now), (*steps, *_entries(subject)))
        case Role.STORE | Role.GENERATOR:
            return _of_source(inputs, now)
        case Role.STATE:
            return _of_state(inputs, now)
        case Role.CLASS:
            steps = [Finding("service", read_mark(each), str(each), each.why or EXISTS) for each in inputs.objects]
            return Explanation(_condition_head(inputs, now), tuple(steps))
        case Role.FANS_OUT:
            return Explanation(_condition_head(inputs, now), (*_failed_namespaces(subject), *_children(inputs, now)))


# --- the object itself ------------------------------------------------------------------------------------------------


def _head(inputs: Inputs, now: datetime) -> Finding:
    """Return the finding about the object, with the message of its condition if no other finding shows it."""
    subject, head = inputs.subject, _condition_head(inputs, now)
    if _step(subject) in _PLACED or (subject.status.outcomes and not _step(subject)):
        head = replace(head, message="")
    return replace(head, notes=(*head.notes, *_refresh_notes(subject, now)))


def _condition_head(inputs: Inputs, now: datetime) -> Finding:
    ready, subject = ready_of(inputs.summary.conditions), _titled(inputs.summary)
    notes = (*_deletion(inputs.summary, now), *other_conditions(inputs.summary.conditions))
    if ready is None:
        return Finding("object", Mark.BAD, subject, _NO_OPERATOR, notes=notes)
    if (conflict := conflict_of(inputs.summary.conditions)) is not None and ready.status == "True":
        notes = tuple(note for note in notes if not note.startswith(f"{conflict.type}: "))
        return Finding("object", Mark.BAD, subject, conflict.type, conflict.message, notes)
    message = "" if ready.status == "True" and role_of(inputs.kind) is not Role.FANS_OUT else ready.message
    return Finding("object", verdict(ready), subject, ready.reason, message, notes)


def _deletion(summary: ObjectSummary, now: datetime) -> tuple[str, ...]:
    at = summary.metadata.deletion_timestamp
    return (f"being deleted since {moment(at, now)}",) if at else ()


def _refresh_notes(subject: Subject, now: datetime) -> Iterator[str]:
    status, work = subject.status, "push" if isinstance(subject, PushSecret) else "refresh"
    if status.refresh_time:
        recorded = f"a {work} that changes nothing is recorded there every {FLUSH_SECONDS / 60:.0f} min"
        yield f"last {work} in the status: {moment(status.refresh_time, now)}; {recorded}"
    else:
        yield "never refreshed"
    if isinstance(subject, ExternalSecret):
        if status.refresh_time and status.synced_resource_version != current_version(subject):
            yield "changed since then"
        if _overdue(subject, now):
            yield f"a refresh is overdue (refreshInterval {subject.spec.refresh_interval}): does the operator run?"


def _overdue(subject: ExternalSecret, now: datetime) -> bool:
    at = last_sync(subject).at
    if at is None or subject.spec.sync_windows is not None or not refreshes_by_itself(subject):
        return False
    return now - at > timedelta(seconds=interval_of(subject)) + _GRACE


def _step(subject: Subject) -> str:
    """Return the step that failed; empty if none did, or if an operator of an earlier release wrote the status."""
    ready, outcomes = ready_of(subject.status.conditions), subject.status.outcomes
    return outcomes[0].step if ready is not None and ready.status == "False" and outcomes else ""


def _message(subject: Subject, steps: frozenset[str]) -> str:
    """Return the condition's message if it is about one of these steps."""
    ready = ready_of(subject.status.conditions)
    return ready.message if ready is not None and _step(subject) in steps else ""


# --- the steps of an ExternalSecret or PushSecret ---------------------------------------------------------------------


def _entries(subject: Subject) -> list[Finding]:
    failed = subject.status.outcomes
    if failed and (_step(subject) in _ENTRIES or not _step(subject)):
        ready = ready_of(subject.status.conditions)
        mark = Mark.OPEN if ready is not None and ready.status == "Unknown" else Mark.BAD  # they wait for a provider
        findings = [_failure(each, mark) for each in failed[:MAX_ENTRIES]]
        more = len(failed) - len(findings)
        return [*findings, Finding("entry", mark, f"and {more} more", "in status.outcomes")] if more else findings
    if isinstance(subject, PushSecret):
        pushed = [f"{len(keys)} in {store}" for store, keys in sorted(subject.status.synced_push_secrets.items())]
        state = f"{', '.join(pushed) or 'none'} pushed"
        return [Finding("entry", _so_far(subject, reached=bool(pushed)), "entries", state)]
    count = len(entries_of(subject.spec))
    reached = bool(subject.status.refresh_time) or _step(subject) in _TEMPLATE | _TARGET
    state = f"{count} {'read' if reached else 'to read'}"
    return [Finding("entry", _so_far(subject, reached=reached), "entries", state)]


def _failure(outcome: KeyOutcome, mark: Mark) -> Finding:
    key = f" (key {outcome.remote_key})" if outcome.remote_key else ""
    store = f" at {outcome.store}" if outcome.store else ""
    notes = (f"since {outcome.since}",) if outcome.since else ()
    return Finding("entry", mark, f"{outcome.path}{key}{store}", outcome.reason, outcome.message, notes)


def _template(inputs: Inputs) -> list[Finding]:
    subject = inputs.subject
    template = subject.spec.target.template if isinstance(subject, ExternalSecret) else subject.spec.template
    if template is None:
        return []
    below = tuple(
        Finding("template source", read_mark(each), str(each), each.why or EXISTS) for each in inputs.templates
    )
    message = _message(subject, _TEMPLATE)
    if message or any(finding.mark is Mark.BAD for finding in below):
        return [Finding("template", Mark.BAD, "template", "cannot be rendered", message, below=below)]
    mark = _so_far(subject, reached=_step(subject) in _TARGET)
    state = "rendered" if mark is Mark.GOOD else "not rendered yet"
    return [Finding("template", mark, "template", state, below=below)]


def _target(subject: ExternalSecret, found: Sequence[ObjectSummary]) -> list[Finding]:
    if subject.spec.target.creation_policy == "None":
        return [Finding("target", Mark.GOOD, "target", "none, creationPolicy None writes nothing")]
    return [_target_finding(subject, summary) for summary in found]


def _target_finding(subject: ExternalSecret, summary: ObjectSummary) -> Finding:
    policy, outcomes = subject.spec.target.creation_policy, subject.status.outcomes
    if message := _message(subject, _TARGET) or (_no_template(subject) and _message(subject, _TEMPLATE)) or "":
        return Finding("target", Mark.BAD, str(summary), outcomes[0].reason, message)
    if summary.read_state is ReadState.ABSENT:
        ready = ready_of(subject.status.conditions)
        if ready is not None and ready.status == "True" and ready.reason.endswith(DELETED):
            gone = "deleted, as deletionPolicy Delete says: the backend has nothing"
            return Finding("target", Mark.GOOD, str(summary), gone)
        waits = "; creationPolicy Merge does not create it" if policy == "Merge" else ""
        return Finding("target", Mark.BAD, str(summary), f"{summary.why}{waits}")
    if summary.read_state is ReadState.UNREADABLE:
        return Finding("target", Mark.OPEN, str(summary), summary.why)
    controller = next((owner for owner in summary.metadata.owner_references if owner.controller), None)
    if policy == OWNER and controller is not None and controller.uid != subject.metadata.uid:
        return Finding("target", Mark.BAD, str(summary), f"it belongs to {controller.kind} {controller.name}")
    owner = f"owned by {controller.kind} {controller.name}" if controller else "owned by no controller"
    written = HASH_ANNOTATION in summary.metadata.annotations
    state = f"{EXISTS}, {owner}, {'written by the operator' if written else 'never written'}"
    return Finding("target", Mark.GOOD if written else Mark.OPEN, str(summary), state)


def _no_template(subject: ExternalSecret) -> bool:
    """Return whether there is no template at which a failure to render could be shown."""
    return subject.spec.target.template is None


def _read(subject: PushSecret, found: Sequence[ObjectSummary]) -> list[Finding]:
    message = _message(subject, _SOURCE)
    if message and not any(summary.read_state is ReadState.ABSENT for summary in found):
        return [Finding("source", Mark.BAD, "source", subject.status.outcomes[0].reason, message)]
    return [Finding("source", read_mark(summary), str(summary), summary.why or EXISTS) for summary in found]


def _so_far(subject: Subject, *, reached: bool) -> Mark:
    """Return the mark of a step without a message: good if the object is ready or a later step was reached."""
    ready = ready_of(subject.status.conditions)
    return Mark.GOOD if reached or (ready is not None and ready.status == "True") else Mark.OPEN


# --- stores, generators and their providers ---------------------------------------------------------------------------


def source_findings(inputs: Inputs) -> Iterator[Finding]:
    """Return one finding for each store or generator, with its provider below."""
    works = is_true(inputs.summary.conditions, READY)
    yield from (source_finding(source, works=works) for source in inputs.sources)
    if inputs.left_out:
        yield Finding("store", Mark.OPEN, f"and {inputs.left_out} more", "not read")


def source_finding(source: Source, *, works: bool = False) -> Finding:
    """Return the finding about a store or generator. `works`: an object uses it successfully."""
    summary, ready, stage = source.summary, ready_of(source.summary.conditions), source.path.failed
    name, subject = "store" if summary.kind in _VALIDATED else "generator", str(summary)
    if summary.read_state is not ReadState.FOUND:
        state = stage.reason.value if stage is not None and stage.reason is not None else ""
        return Finding(name, read_mark(summary), subject, state, summary.why)
    below, notes = tuple(_providers(source, works=works)), other_conditions(summary.conditions)
    refused = stage if stage is not None and stage.name not in (ENDPOINT, GATE, HANDSHAKE) else None
    if ready is not None and ready.status == "False":
        return Finding(name, Mark.BAD, subject, ready.reason, ready.message, notes, below)
    if refused is not None and refused.reason is not None:
        mark = Mark.OPEN if refused.reason in DEPENDS_ON_FLAGS else Mark.BAD
        return Finding(name, mark, subject, refused.reason.value, refused.detail, notes, below)
    if ready is not None and (ready.status == "True" or ready.reason == Reason.REFERENT_AUTH):
        return Finding(name, Mark.GOOD, subject, ready.reason, notes=notes, below=below)
    if ready is not None:
        return Finding(name, Mark.OPEN, subject, ready.reason, ready.message, notes, below)
    if summary.kind in _VALIDATED:
        return Finding(name, Mark.OPEN, subject, "not validated yet", below=below)
    return Finding(name, Mark.GOOD, subject, EXISTS, notes=notes, below=below)


def class_finding(summary: ObjectSummary) -> Finding:
    """Return the finding about a provider: its class, or a Service or address without one."""
    ready, subject = ready_of(summary.conditions), f"provider {summary}"
    if summary.read_state is not ReadState.FOUND:
        return Finding("provider", read_mark(summary), subject, summary.why)
    if ready is None:
        return Finding("provider", Mark.OPEN, subject, EXISTS)
    message = "" if ready.status == "True" else ready.message
    notes = (summary.address,) if summary.address else ()
    return Finding("provider", verdict(ready), subject, ready.reason, message, notes)


def read_mark(summary: ObjectSummary) -> Mark:
    return {ReadState.FOUND: Mark.GOOD, ReadState.ABSENT: Mark.BAD, ReadState.UNREADABLE: Mark.OPEN}[summary.read_state]


def _providers(source: Source, *, works: bool) -> Iterator[Finding]:
    path, stage = source.path, source.path.failed
    unconnected = stage is not None and stage.reason is Reason.NOT_CONNECTED
    if path.provider is not None:
        if not (unconnected and is_true(path.provider.conditions, READY)):
            yield class_finding(path.provider)
        # Else the class still has the address of a former process, with which the operator was connected.
    elif path.unreadable:
        yield Finding("provider", Mark.OPEN, "provider", "not known", path.unreadable)
    if stage is not None and stage.reason is not None and stage.name in (ENDPOINT, HANDSHAKE):
        yield Finding("provider", _blame(source, stage, works=works), "provider", stage.reason.value, stage.detail)


def _blame(source: Source, stage: Stage, *, works: bool) -> Mark:
    """Return bad, or open if a flag of the operator may permit it: a working object shows that it does."""
    works = works or is_true(source.summary.conditions, READY)
    return Mark.OPEN if works and stage.reason in DEPENDS_ON_FLAGS else Mark.BAD


# --- other kinds ------------------------------------------------------------------------------------------------------


def _of_source(inputs: Inputs, now: datetime) -> Explanation:
    """Return the explanation of a store or generator: its finding as a source is the head."""
    (source,) = inputs.sources
    finding = source_finding(source)
    unreported = (
        finding.mark is Mark.OPEN and not inputs.summary.conditions and source.summary.read_state is ReadState.FOUND
    )
    state = _NO_OPERATOR if unreported else finding.state
    head = replace(
        finding,
        name="object",
        mark=Mark.BAD if unreported else finding.mark,
        subject=_titled(inputs.summary),
        state=state,
        notes=(*_deletion(inputs.summary, now), *finding.notes),
        below=(),
    )
    return Explanation(head, finding.below)


def _of_state(inputs: Inputs, now: datetime) -> Explanation:
    """Return the explanation of a GeneratorState. It has no condition: only events report that its clean-up fails."""
    state: GeneratorState = inputs.subject
    deadline = state.spec.garbage_collection_deadline
    notes = (*_deletion(inputs.summary, now), *((f"cleaned up at {moment(deadline, now)}",) if deadline else ()))
    failed = [each for each in inputs.events if each.reason == _NOT_CLEANED]
    steps = tuple(source_findings(inputs))
    if failed and state.metadata.deletion_timestamp:
        head = Finding("object", Mark.BAD, _titled(inputs.summary), _NOT_CLEANED, failed[-1].message, notes)
        return Explanation(head, steps)
    if not state.metadata.deletion_timestamp:
        # Its generator is needed only for the clean-up, which is not due.
        steps = tuple(_unneeded(step) for step in steps)
    return Explanation(Finding("object", Mark.GOOD, _titled(inputs.summary), EXISTS, notes=notes), steps)


def _unneeded(finding: Finding) -> Finding:
    mark = Mark.OPEN if finding.mark is Mark.BAD else finding.mark
    return replace(finding, mark=mark, below=tuple(map(_unneeded, finding.below)))


def _failed_namespaces(parent: Any) -> list[Finding]:
    failed = parent.status.failed_namespaces
    findings = [Finding("namespace", Mark.BAD, f"namespace {each.namespace}", "failed", each.reason) for each in failed]
    more = len(findings) - MAX_ENTRIES
    last = [Finding("namespace", Mark.BAD, f"and {more} more", "in status.failedNamespaces")] if more > 0 else []
    return [*findings[:MAX_ENTRIES], *last]


def _children(inputs: Inputs, now: datetime) -> Iterator[Finding]:
    """Return the objects that are not ready, each with its cause; the others are counted."""
    well = [each for each in inputs.children if isinstance(each, ObjectSummary) and is_true(each.conditions, "Ready")]
    for child in inputs.children:
        if child not in well:
            yield _child(child, now)
    if well:
        yield Finding("child", Mark.GOOD, f"{well[0].kind}s", f"{len(well)} ready")
    if inputs.left_out:
        yield Finding("child", Mark.OPEN, f"and {inputs.left_out} more", "not read")


def _child(child: Inputs | ObjectSummary, now: datetime) -> Finding:
    summary = child.summary if isinstance(child, Inputs) else child
    if summary.read_state is not ReadState.FOUND:
        return Finding("child", read_mark(summary), _titled(summary), summary.why)
    ready = ready_of(summary.conditions)
    cause = explanation_of(child, now).cause if isinstance(child, Inputs) else None
    below = (replace(cause, below=()),) if cause is not None and cause.name != "object" else ()
    if ready is None:
        return Finding("child", Mark.BAD, _titled(summary), _NO_OPERATOR, below=below)
    return Finding("child", Mark.BAD, _titled(summary), ready.reason, ready.message, below=below)


def _status(inputs: Inputs) -> Any:
    return getattr(inputs.subject, "status", None)


def _titled(summary: ObjectSummary) -> str:
    return f"{summary.kind} {summary.key}"
