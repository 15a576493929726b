"""The story of an object: the objects that its values pass through, which of them are bad, and the cause. Pure.

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
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from eso_api.conditions import KeyOutcome
from eso_api.externalsecret import ExternalSecret
from eso_api.generators.generatorstate import GeneratorState
from eso_api.pushsecret import PushSecret
from eso_operator.controllers.due import FLUSH_SECONDS
from eso_operator.controllers.externalsecret.reasons import DELETED
from eso_operator.controllers.externalsecret.schedule import (
    current_version,
    interval_of,
    last_sync,
    refreshes_by_itself,
)
from eso_operator.insight.evidence import Evidence
from eso_operator.insight.facts import (
    Fact,
    Mark,
    Story,
    conflict_of,
    moment,
    other_conditions,
    ready_of,
    told_once,
    verdict,
    with_next_attempt,
)
from eso_operator.insight.kinds import Role, role_of
from eso_operator.insight.overviewtimes import distance
from eso_operator.insight.providers import EXISTS, source_fact, source_facts, unseen
from eso_operator.insight.sights import Look, Sight
from eso_operator.report.steps import Step
from eso_operator.sources.entries import entries_of
from eso_operator.targets.marks import HASH_ANNOTATION, OWNER
from kubebase.clock import rfc3339
from kubebase.meta import Malformed
from kuberun.conditions import is_true

MAX_ENTRIES: Final = 10
_GRACE: Final = timedelta(minutes=15)
"""A refresh is written into the status at most every five minutes, and clocks differ."""
_NO_OPERATOR: Final = "nothing is said of it yet: does an operator run, and is it the one that its stores are for?"
_NOT_CLEANED: Final = "CleanupFailed"
"""The event about a GeneratorState, which has no condition."""

_ENTRIES: Final = frozenset({Step.FETCH.code, Step.PUSH.code, Step.DELETE_PUSHED.code})
_TEMPLATE: Final = frozenset({Step.RENDER.code, Step.RENDER_PUSH.code})
_TARGET: Final = frozenset({Step.READ_TARGET.code, Step.WRITE.code, Step.DELETE.code, Step.REMOVE_FORMER.code})
_SOURCE: Final = frozenset({Step.READ_SOURCE.code})
_PLACED: Final = _ENTRIES | _TEMPLATE | _TARGET | _SOURCE
"""Steps with their own fact; the others are shown at the object."""

Subject = ExternalSecret | PushSecret


def story_of(evidence: Evidence | Sight, now: datetime, checked: datetime | None = None) -> Story:
    """Return the whole story. `checked` is when the operator last refreshed the object, if that is known here."""
    if isinstance(evidence, Sight):
        return Story(Fact("object", Mark.BAD, _titled(evidence), evidence.why))
    conditions = evidence.sight.conditions
    story = told_once(replace(_story(evidence, now, checked), events=evidence.events))
    return with_next_attempt(story, conditions, getattr(_status(evidence), "next_attempt_time", None), now)


def _story(evidence: Evidence, now: datetime, checked: datetime | None) -> Story:
    subject = evidence.subject
    if isinstance(subject, Malformed):
        return Story(Fact("object", Mark.BAD, _titled(evidence.sight), "it does not fit its type", subject.error))
    match role_of(evidence.kind):
        case Role.READS:
            steps = [*source_facts(evidence), *_entries(subject), *_template(evidence)]
            return Story(_head(evidence, now, checked), (*steps, *_target(subject, evidence.objects)))
        case Role.PUSHES:
            steps = [*_read(subject, evidence.objects), *_template(evidence), *source_facts(evidence)]
            return Story(_head(evidence, now, checked), (*steps, *_entries(subject)))
        case Role.STORE | Role.GENERATOR:
            return _of_source(evidence, now)
        case Role.STATE:
            return _of_state(evidence, now)
        case Role.CLASS:
            steps = [Fact("service", unseen(each), str(each), each.why or EXISTS) for each in evidence.objects]
            return Story(_condition_head(evidence, now), tuple(steps))
        case Role.FANS_OUT:
            return Story(_condition_head(evidence, now), (*_failed_namespaces(subject), *_children(evidence, now)))


# --- the object itself ------------------------------------------------------------------------------------------------


def _head(evidence: Evidence, now: datetime, checked: datetime | None) -> Fact:
    """Return the fact about the object, with the message of its condition if no other fact shows it."""
    subject, head = evidence.subject, _condition_head(evidence, now)
    if _step(subject) in _PLACED or (subject.status.outcomes and not _step(subject)):
        head = replace(head, message="")
    return replace(head, notes=(*head.notes, *_refresh_notes(subject, now, checked)))


def _condition_head(evidence: Evidence, now: datetime) -> Fact:
    ready, subject = ready_of(evidence.sight.conditions), _titled(evidence.sight)
    notes = (*_deletion(evidence.sight, now), *other_conditions(evidence.sight.conditions))
    if ready is None:
        return Fact("object", Mark.BAD, subject, _NO_OPERATOR, notes=notes)
    if (conflict := conflict_of(evidence.sight.conditions)) is not None and ready.status == "True":
        notes = tuple(note for note in notes if not note.startswith(f"{conflict.type}: "))
        return Fact("object", Mark.BAD, subject, conflict.type, conflict.message, notes)
    told = "" if ready.status == "True" and role_of(evidence.kind) is not Role.FANS_OUT else ready.message
    return Fact("object", verdict(ready), subject, ready.reason, told, notes)


def _deletion(sight: Sight, now: datetime) -> tuple[str, ...]:
    at = sight.metadata.deletion_timestamp
    return (f"being deleted since {moment(at, now)}",) if at else ()


def _refresh_notes(subject: Subject, now: datetime, checked: datetime | None) -> Iterator[str]:
    status, work = subject.status, "push" if isinstance(subject, PushSecret) else "refresh"
    if checked is not None:
        yield f"checked {distance(rfc3339(checked), now)}"
    if status.refresh_time:
        recorded = f"a {work} that changes nothing is recorded there every {FLUSH_SECONDS / 60:.0f} min"
        yield f"last {work} in the status: {moment(status.refresh_time, now)}; {recorded}"
    elif checked is None:
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


def _entries(subject: Subject) -> list[Fact]:
    failed = subject.status.outcomes
    if failed and (_step(subject) in _ENTRIES or not _step(subject)):
        ready = ready_of(subject.status.conditions)
        mark = Mark.OPEN if ready is not None and ready.status == "Unknown" else Mark.BAD  # they wait for a provider
        facts = [_failure(each, mark) for each in failed[:MAX_ENTRIES]]
        more = len(failed) - len(facts)
        return [*facts, Fact("entry", mark, f"and {more} more", "in status.outcomes")] if more else facts
    if isinstance(subject, PushSecret):
        pushed = [f"{len(keys)} in {store}" for store, keys in sorted(subject.status.synced_push_secrets.items())]
        said = f"{', '.join(pushed) or 'none'} pushed"
        return [Fact("entry", _so_far(subject, reached=bool(pushed)), "entries", said)]
    count = len(entries_of(subject.spec))
    reached = bool(subject.status.refresh_time) or _step(subject) in _TEMPLATE | _TARGET
    said = f"{count} {'read' if reached else 'to read'}"
    return [Fact("entry", _so_far(subject, reached=reached), "entries", said)]


def _failure(outcome: KeyOutcome, mark: Mark) -> Fact:
    key = f" (key {outcome.remote_key})" if outcome.remote_key else ""
    store = f" at {outcome.store}" if outcome.store else ""
    notes = (f"since {outcome.since}",) if outcome.since else ()
    return Fact("entry", mark, f"{outcome.path}{key}{store}", outcome.reason, outcome.message, notes)


def _template(evidence: Evidence) -> list[Fact]:
    subject = evidence.subject
    template = subject.spec.target.template if isinstance(subject, ExternalSecret) else subject.spec.template
    if template is None:
        return []
    below = tuple(Fact("template source", unseen(each), str(each), each.why or EXISTS) for each in evidence.templates)
    message = _message(subject, _TEMPLATE)
    if message or any(fact.mark is Mark.BAD for fact in below):
        return [Fact("template", Mark.BAD, "template", "cannot be rendered", message, below=below)]
    mark = _so_far(subject, reached=_step(subject) in _TARGET)
    state = "rendered" if mark is Mark.GOOD else "not rendered yet"
    return [Fact("template", mark, "template", state, below=below)]


def _target(subject: ExternalSecret, seen: Sequence[Sight]) -> list[Fact]:
    if subject.spec.target.creation_policy == "None":
        return [Fact("target", Mark.GOOD, "target", "none, creationPolicy None writes nothing")]
    return [_target_fact(subject, sight) for sight in seen]


def _target_fact(subject: ExternalSecret, sight: Sight) -> Fact:
    policy, outcomes = subject.spec.target.creation_policy, subject.status.outcomes
    if message := _message(subject, _TARGET) or (_no_template(subject) and _message(subject, _TEMPLATE)) or "":
        return Fact("target", Mark.BAD, str(sight), outcomes[0].reason, message)
    if sight.look is Look.ABSENT:
        ready = ready_of(subject.status.conditions)
        if ready is not None and ready.status == "True" and ready.reason.endswith(DELETED):
            gone = "deleted, as deletionPolicy Delete says: the backend has nothing"
            return Fact("target", Mark.GOOD, str(sight), gone)
        waits = "; creationPolicy Merge does not create it" if policy == "Merge" else ""
        return Fact("target", Mark.BAD, str(sight), f"{sight.why}{waits}")
    if sight.look is Look.HIDDEN:
        return Fact("target", Mark.OPEN, str(sight), sight.why)
    controller = next((owner for owner in sight.metadata.owner_references if owner.controller), None)
    if policy == OWNER and controller is not None and controller.uid != subject.metadata.uid:
        return Fact("target", Mark.BAD, str(sight), f"it belongs to {controller.kind} {controller.name}")
    owner = f"owned by {controller.kind} {controller.name}" if controller else "owned by no controller"
    written = HASH_ANNOTATION in sight.metadata.annotations
    state = f"{EXISTS}, {owner}, {'written by the operator' if written else 'never written'}"
    return Fact("target", Mark.GOOD if written else Mark.OPEN, str(sight), state)


def _no_template(subject: ExternalSecret) -> bool:
    """Return whether there is no template at which a failure to render could be shown."""
    return subject.spec.target.template is None


def _read(subject: PushSecret, seen: Sequence[Sight]) -> list[Fact]:
    message = _message(subject, _SOURCE)
    if message and not any(sight.look is Look.ABSENT for sight in seen):
        return [Fact("source", Mark.BAD, "source", subject.status.outcomes[0].reason, message)]
    return [Fact("source", unseen(sight), str(sight), sight.why or EXISTS) for sight in seen]


def _so_far(subject: Subject, *, reached: bool) -> Mark:
    """Return the mark of a step without a message: good if the object is ready or a later step was reached."""
    ready = ready_of(subject.status.conditions)
    return Mark.GOOD if reached or (ready is not None and ready.status == "True") else Mark.OPEN


# --- other kinds ------------------------------------------------------------------------------------------------------


def _of_source(evidence: Evidence, now: datetime) -> Story:
    """Return the story of a store or generator: its fact as a source is the head."""
    (source,) = evidence.sources
    fact = source_fact(source)
    unsaid = fact.mark is Mark.OPEN and not evidence.sight.conditions and source.sight.look is Look.FOUND
    state = _NO_OPERATOR if unsaid else fact.state
    head = replace(
        fact,
        name="object",
        mark=Mark.BAD if unsaid else fact.mark,
        subject=_titled(evidence.sight),
        state=state,
        notes=(*_deletion(evidence.sight, now), *fact.notes),
        below=(),
    )
    return Story(head, fact.below)


def _of_state(evidence: Evidence, now: datetime) -> Story:
    """Return the story of a GeneratorState. It has no condition: only events report that its clean-up fails."""
    state: GeneratorState = evidence.subject
    deadline = state.spec.garbage_collection_deadline
    notes = (*_deletion(evidence.sight, now), *((f"cleaned up at {moment(deadline, now)}",) if deadline else ()))
    failed = [each for each in evidence.events if each.reason == _NOT_CLEANED]
    steps = tuple(source_facts(evidence))
    if failed and state.metadata.deletion_timestamp:
        head = Fact("object", Mark.BAD, _titled(evidence.sight), _NOT_CLEANED, failed[-1].message, notes)
        return Story(head, steps)
    if not state.metadata.deletion_timestamp:
        # Its generator is needed only for the clean-up, which is not due.
        steps = tuple(_unneeded(step) for step in steps)
    return Story(Fact("object", Mark.GOOD, _titled(evidence.sight), EXISTS, notes=notes), steps)


def _unneeded(fact: Fact) -> Fact:
    mark = Mark.OPEN if fact.mark is Mark.BAD else fact.mark
    return replace(fact, mark=mark, below=tuple(map(_unneeded, fact.below)))


def _failed_namespaces(parent: Any) -> list[Fact]:
    failed = parent.status.failed_namespaces
    facts = [Fact("namespace", Mark.BAD, f"namespace {each.namespace}", "failed", each.reason) for each in failed]
    more = len(facts) - MAX_ENTRIES
    last = [Fact("namespace", Mark.BAD, f"and {more} more", "in status.failedNamespaces")] if more > 0 else []
    return [*facts[:MAX_ENTRIES], *last]


def _children(evidence: Evidence, now: datetime) -> Iterator[Fact]:
    """Return the objects that are not ready, each with its cause; the others are counted."""
    well = [each for each in evidence.children if isinstance(each, Sight) and is_true(each.conditions, "Ready")]
    for child in evidence.children:
        if child not in well:
            yield _child(child, now)
    if well:
        yield Fact("child", Mark.GOOD, f"{well[0].kind}s", f"{len(well)} ready")
    if evidence.left_out:
        yield Fact("child", Mark.OPEN, f"and {evidence.left_out} more", "not looked at")


def _child(child: Evidence | Sight, now: datetime) -> Fact:
    sight = child.sight if isinstance(child, Evidence) else child
    if sight.look is not Look.FOUND:
        return Fact("child", unseen(sight), _titled(sight), sight.why)
    ready = ready_of(sight.conditions)
    cause = story_of(child, now).cause if isinstance(child, Evidence) else None
    below = (replace(cause, below=()),) if cause is not None and cause.name != "object" else ()
    if ready is None:
        return Fact("child", Mark.BAD, _titled(sight), _NO_OPERATOR, below=below)
    return Fact("child", Mark.BAD, _titled(sight), ready.reason, ready.message, below=below)


def _status(evidence: Evidence) -> Any:
    return getattr(evidence.subject, "status", None)


def _titled(sight: Sight) -> str:
    return f"{sight.kind} {sight.key}"
