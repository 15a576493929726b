"""From a simulation to a plan: the change of each key, pushes, problems, and what could not be checked.

Values become digests here. A replay compares texts made from stand-ins: where the text is the recorded one, the change
is the recorded one, too.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from eso_api.externalsecret import EXTERNAL_SECRET, ExternalSecret
from eso_operator.controllers.externalsecret.status import TEMPLATE_ERROR
from eso_operator.sources.entries import Generate, entries_of
from eso_operator.stores.resolved import Reason
from eso_operator.targets.metadata import target_name
from eso_tools.plan.differences import Change, KeyChange, Parts, differences, parts
from eso_tools.plan.needs import Need
from eso_tools.plan.recording import UNRECORDED, RecordedKey, Recording
from eso_tools.plan.seeding import Place
from eso_tools.plan.simulation import Simulation
from eso_tools.plan.standins import Digests
from eso_tools.plan.withholding import NOT_CALLED, Unread, WouldDelete, WouldPush, bytes_of
from eso_tools.status.causes import Cause, causes_of
from eso_tools.status.overview import Health, Overview, Row
from eso_wire.values import PushOutcome
from kubebase.meta import JsonObject

GENERATED: Final = "generated: a new value at each refresh"
UNKNOWN_TARGET: Final = "the recording does not say whether it exists; it counts as absent"
_OF_TEMPLATES: Final = ("unable to parse template", "map has no entry for key")
"""Errors of templates that do not depend on values. A recording has the true names of keys."""
FROM_RECORDING: Final = "cannot be checked from a recording"


@dataclass(frozen=True, slots=True)
class TargetPlan:
    """The changes of one target. `of` names the ExternalSecrets that write it."""

    place: Place
    of: tuple[str, ...]
    keys: tuple[KeyChange, ...]
    notes: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        return self.place[0][1]

    @property
    def namespace(self) -> str:
        return self.place[1]

    @property
    def name(self) -> str:
        return self.place[2]

    @property
    def need(self) -> Need:
        return Need(*self.place[0], self.namespace, self.name)


@dataclass(frozen=True, slots=True)
class PushPlan:
    """The change of one remote value. `current_known` is False if the store could not read it."""

    namespace: str
    of: str
    store: str
    remote: str
    change: Change
    digest: str = ""
    current_known: bool = True


@dataclass(frozen=True, slots=True)
class Unchecked:
    """An object whose result is not known, and why."""

    kind: str
    namespace: str
    name: str
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    targets: tuple[TargetPlan, ...] = ()
    pushes: tuple[PushPlan, ...] = ()
    causes: tuple[Cause, ...] = ()
    failing: int = 0
    unchecked: tuple[Unchecked, ...] = ()
    notes: tuple[str, ...] = ()
    unsettled: str = ""

    def count(self, change: Change) -> int:
        keys = sum(key.change is change for target in self.targets for key in target.keys)
        return keys + sum(push.change is change for push in self.pushes)

    @property
    def changes(self) -> bool:
        return any(self.count(change) for change in Change if change is not Change.UNCHANGED)


@dataclass(frozen=True, slots=True)
class Recorded:
    """A recording that was replayed, and the objects that the replay needed and the recording does not know."""

    recording: Recording
    unknown: tuple[Need, ...] = ()


def plan_of(simulation: Simulation, recorded: Recorded | None = None) -> Plan:
    """Return the plan. With a recording, the simulation is a replay of it."""
    recording = None if recorded is None else recorded.recording
    unchecked = list(_unchecked(simulation.overview, recorded))
    left_out = {(each.kind, each.namespace, each.name) for each in unchecked}
    overview = simulation.overview.only(lambda row: (row.id.kind, row.namespace, row.name) not in left_out)
    bad = {(row.id.kind, row.namespace, row.name) for row in overview.rows if not row.ready}
    digests = Digests()
    return Plan(
        targets=tuple(_targets(simulation, digests, recording, left_out | bad)),
        pushes=tuple(_pushes(simulation, digests, recording)),
        causes=causes_of(overview),
        failing=len(bad),
        unchecked=tuple(unchecked),
        notes=tuple(_notes(simulation)),
        unsettled=simulation.unsettled,
    )


def recorded_outcome(recording: Recording, plan: Plan, replayed: Simulation) -> None:
    """Add the result of a plan to its recording, with the texts that a replay of it makes."""
    for target in plan.targets:
        made = parts(replayed.after.get(target.place))
        known = {
            key.key: RecordedKey(_text_digest(made[key.key]), key.change) for key in target.keys if key.key in made
        }
        recording.targets[str(target.need)] = known
    changes = {(push.store, push.remote): push.change for push in plan.pushes}
    for push in _noted(replayed):
        change = changes.get((push.place.store, _remote(push)))
        if isinstance(push, WouldPush) and change is not None:
            recording.pushes[_push_name(push)] = RecordedKey(_text_digest(bytes_of(push.value)), change)
    recording.failed = sorted(
        str(row.id) for cause in plan.causes for row in (*cause.roots, *cause.waiting) if row.reason == TEMPLATE_ERROR
    )


# --- targets ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Target:
    writers: dict[str, None] = field(default_factory=dict)
    healthy: bool = False
    generated: bool = False


def _targets(
    simulation: Simulation, digests: Digests, recording: Recording | None, unwell: set[tuple[str, str, str]]
) -> Iterator[TargetPlan]:
    for place, target in sorted(_written(simulation.synced, unwell).items()):
        before, after = simulation.before.get(place), simulation.after.get(place)
        keys = differences(before, after, digests.of)
        if not target.healthy:
            keys = tuple(key for key in keys if key.change is not Change.UNCHANGED)
        renewed = target.generated and any(key.change is not Change.UNCHANGED for key in keys)
        found = TargetPlan(place, tuple(target.writers), keys, (GENERATED,) if renewed else ())
        if recording is not None:
            found = _as_recorded(found, parts(after), recording)
        if found.keys:
            yield found


def _written(synced: Iterable[JsonObject], unwell: set[tuple[str, str, str]]) -> dict[Place, _Target]:
    found: dict[Place, _Target] = {}
    for obj in synced:
        if obj.get("kind", EXTERNAL_SECRET.name) != EXTERNAL_SECRET.name:
            continue
        es = msgspec.convert(obj, ExternalSecret)
        namespace = es.metadata.namespace
        healthy = (EXTERNAL_SECRET.name, namespace, es.metadata.name) not in unwell
        manifest = es.spec.target.manifest
        identity = ("", "Secret") if manifest is None else (manifest.api_version.rpartition("/")[0], manifest.kind)
        names = {target_name(es)} | ({es.status.binding.name} if es.status.binding else set()) - {""}
        for name in names:
            target = found.setdefault((identity, namespace, name), _Target())
            target.writers[es.metadata.name] = None
            target.healthy |= healthy
            target.generated |= any(isinstance(want, Generate) for want in entries_of(es.spec))
    return found


def _as_recorded(target: TargetPlan, made: Parts, recording: Recording) -> TargetPlan:
    """Return the recorded change for each key whose text is the recorded one."""
    known = recording.targets.get(str(target.need), {})
    keys = []
    for key in target.keys:
        recorded = known.get(key.key)
        if recorded is None or key.key not in made or _text_digest(made[key.key]) != recorded.digest:
            keys.append(key)
            continue
        change = Change(recorded.change)
        keys.append(replace(key, change=change, before=key.after if change is Change.UNCHANGED else key.before))
    unknown = str(target.need) not in recording.reads
    notes = (*target.notes, UNKNOWN_TARGET) if unknown else target.notes
    return replace(target, keys=tuple(keys), notes=notes)


# --- pushes -----------------------------------------------------------------------------------------------------------


def _pushes(simulation: Simulation, digests: Digests, recording: Recording | None) -> Iterator[PushPlan]:
    for noted in sorted(_noted(simulation), key=lambda each: each.place):
        common = (noted.caller.namespace, noted.caller.name, noted.place.store, _remote(noted))
        if isinstance(noted, WouldDelete):
            yield PushPlan(*common, Change.REMOVE)
            continue
        value = bytes_of(noted.value)
        change = _CHANGES[noted.outcome]
        known = recording.pushes.get(_push_name(noted)) if recording is not None else None
        if known is not None and known.digest == _text_digest(value):
            change = Change(known.change)
        yield PushPlan(*common, change, digests.of(value), not isinstance(noted.before, Unread))


_CHANGES: Final = {
    PushOutcome.CREATED: Change.CREATE,
    PushOutcome.UPDATED: Change.CHANGE,
    PushOutcome.UNCHANGED: Change.UNCHANGED,
    PushOutcome.SKIPPED_EXISTS: Change.UNCHANGED,
}


def _noted(simulation: Simulation) -> Iterator[WouldPush | WouldDelete]:
    return iter(simulation.withheld.pushes.values())


def _remote(noted: WouldPush | WouldDelete) -> str:
    return f"{noted.place.key}#{noted.place.property}" if noted.place.property else noted.place.key


def _push_name(noted: WouldPush | WouldDelete) -> str:
    return f"{noted.place.store} {_remote(noted)}"


# --- objects that fail or cannot be checked ---------------------------------------------------------------------------


def _unchecked(overview: Overview, recorded: Recorded | None) -> Iterator[Unchecked]:
    for row in overview.rows:
        if row.health is Health.BAD and (why := _why_unchecked(row, recorded)):
            yield Unchecked(row.id.kind, row.namespace, row.name, why)


def _why_unchecked(row: Row, recorded: Recorded | None) -> str:
    if NOT_CALLED in row.message:
        return row.message
    if recorded is None:
        return ""
    if UNRECORDED in row.message:
        return row.message
    if row.reason == Reason.NOT_INSTALLED:
        return f"{UNRECORDED} its provider; record again, or plan against the provider"
    if (need := next((each for each in recorded.unknown if _names(row.message, each)), None)) is not None:
        return f"{UNRECORDED} {need.kind} {need.name}; record again, or plan against the cluster"
    failed = str(row.id) in recorded.recording.failed
    if row.reason == TEMPLATE_ERROR and not failed and not _is_of_template(row.message):
        return f"{FROM_RECORDING}: {row.message}"
    return ""


def _names(message: str, need: Need) -> bool:
    """Return whether a message is about this object: `Secret app/login`, or `SecretStore backend`."""
    named = rf"\b{re.escape(need.kind)} (?:{re.escape(need.namespace)}/)?{re.escape(need.name)}(?![\w.-]*\w)"
    return bool(need.name) and re.search(named, message) is not None


def _is_of_template(message: str) -> bool:
    """Return whether a template fails whatever the values are."""
    return any(text in message for text in _OF_TEMPLATES)


def _notes(simulation: Simulation) -> Iterator[str]:
    for kind, count in sorted(simulation.skipped.items()):
        yield f"{count} {kind} left out: not a kind that External Secrets use"


def _text_digest(text: bytes) -> str:
    """Digest a text made from stand-ins. It needs no key: the texts contain no value."""
    return hashlib.sha256(text).hexdigest()[:16]
