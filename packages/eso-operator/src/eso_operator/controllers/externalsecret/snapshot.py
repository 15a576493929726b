"""The frozen inputs of one reconcile, including the time; the checks of `checks.py` use nothing else.

Later steps read more: stores and credentials when values are fetched, the target when it is written, and the object
itself if the cache is older than our own last write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from eso_api.externalsecret import ExternalSecret
from eso_api.references import GeneratorRef, StoreRef
from eso_operator.controllers.externalsecret.record import ExternalSecretRecord, GeneratedWrite
from eso_operator.controllers.refresh import (
    SHORTEST_INTERVAL,
    LastSync,
    current_version,
    interval_note,
    interval_of,
    last_sync,
    moment,
    with_min_interval,
)
from eso_operator.dependencies import Dependency, OnObject
from eso_operator.memory import Memory
from eso_operator.sources.entries import references_of
from eso_operator.sources.templates import TemplateVersion, VersionOf, template_sources
from eso_operator.stores.loading import controller_named, normalise, parse_kind, pick
from eso_operator.stores.resolved import ClusterView, ResolutionError, Scope
from eso_operator.targets.metadata import GeneratedMark, generated_by, target_name
from eso_operator.targets.target import Absent, Present, Target, TargetState
from eso_wire.values import KindId, ObjectRef
from kubebase.meta import ObjectKey
from kuberun.cache import Cache
from kuberun.controller import ReconcileContext
from kuberun.workqueue import until_phase


@dataclass(frozen=True, slots=True)
class Rules:
    """The administrator's settings."""

    controller_class: str = "default"
    cluster_stores: bool = True
    generic_targets: bool = False
    v2_stores: bool = True
    shortest_interval: float = SHORTEST_INTERVAL


@dataclass(frozen=True, slots=True)
class Snapshot:
    es: ExternalSecret
    last: LastSync
    now: datetime
    target: TargetState
    rules: Rules
    foreign_class: str = ""
    """Kind and name of the first store or generator that another operator handles; empty if there is none."""
    restart_slot: datetime | None = None
    """An overdue routine refresh waits until then, so that a restart does not run all of them at once."""
    held_until: datetime | None = None
    """An object in a loop does not refresh before then, unless it is edited."""
    new_templates: bool = False
    """True if a ConfigMap or Secret with templates changed after the target was rendered."""
    first_reconcile: bool = False
    """True if this process has not reconciled the object before."""
    notified_at: float | None = None
    """When (monotonic) a provider announced a change of a key that has not been read since."""
    interval_factor: float = 1.0
    """How many intervals may pass between reads: more than one while streams announce every change."""
    retry_within: float = 0.0
    """The maximum number of seconds until a retry, if this reconcile fails."""
    interval_note: str = ""
    """A remark about its refresh interval for the condition."""

    generated: GeneratedMark | None = None
    """What an intact target says of the values that this object generated; None if it says nothing."""
    unreported: bool = False
    """True if the values were generated later than the status says: the status of that sync was lost."""
    version: str = ""
    """The version of the object that is synced, if `es` is a newer state of it."""

    @property
    def synced_version(self) -> str:
        return self.version or current_version(self.es)

    def about(self, es: ExternalSecret) -> Snapshot:
        """Return the snapshot with a newer state of the object, to report on it what was done for the older one."""
        return self if es is self.es else replace(self, es=es, version=self.synced_version)


def sources_of(es: ExternalSecret) -> frozenset[Dependency]:
    """Return the objects whose changes wake the ExternalSecret."""
    templates = template_sources(es.spec.target.template, es.metadata.namespace)
    return frozenset((*_of_references(es), *templates, *_of_target(es)))


def manifest_kind(es: ExternalSecret) -> KindId | None:
    """Return the kind of a target that is not a plain Secret."""
    manifest = es.spec.target.manifest
    return None if manifest is None else parse_kind(manifest.api_version, manifest.kind)


def _of_references(es: ExternalSecret) -> Iterator[Dependency]:
    """Yield each reference under both scopes: the scope of a kind is unknown here, and only one of the two exists."""
    namespace = es.metadata.namespace
    for ref in references_of(es.spec):
        try:
            kind = normalise(ref, ObjectRef(namespace=namespace)).kind
        except ResolutionError:
            continue
        yield OnObject(kind.group, kind.kind, ObjectKey(namespace, ref.name))
        yield OnObject(kind.group, kind.kind, ObjectKey("", ref.name))


def _of_target(es: ExternalSecret) -> Iterator[Dependency]:
    """Yield the target if it is not a Secret. The writers of a Secret are found through an index."""
    if (kind := manifest_kind(es)) is not None:
        yield OnObject(kind.group, kind.kind, ObjectKey(es.metadata.namespace, target_name(es)))


ControllerOf = Callable[[StoreRef | GeneratorRef, str], str | None]
"""Returns the controller class of a store or generator as seen from a namespace; None if it does not exist."""

NotifiedAt = Callable[[ObjectKey], float | None]
"""Returns when (monotonic) a provider announced a change that the ExternalSecret has not read yet."""

IntervalFactor = Callable[[ObjectKey], float]
"""Returns how many refresh intervals may pass between two reads of an ExternalSecret."""


_NEVER: Final = LastSync(None, "")
_NO_RULES: Final = Rules()


def no_interval_factor(_: ObjectKey) -> float:
    return 1.0


class SnapshotGatherer:
    """Collects snapshots. The process has one."""

    def __init__(
        self,
        objects: Cache[ExternalSecret],
        controller_of: ControllerOf,
        memory: Memory[ExternalSecretRecord],
        *,
        version_of: VersionOf,
        notified_at: NotifiedAt,
        rules: Rules,
        interval_factor: IntervalFactor = no_interval_factor,
    ) -> None:
        self.objects = objects
        self._controller_of = controller_of
        self._version_of = version_of
        self._notified_at = notified_at
        self._interval_factor = interval_factor
        self.rules = rules
        self._memory = memory

    async def gather(self, es: ExternalSecret, target: Target, ctx: ReconcileContext) -> Snapshot:
        """Return the snapshot. Raises ApiError or UnknownKindError if the target cannot be read."""
        now, shortest = ctx.now, self.rules.shortest_interval
        note, es = interval_note(es.spec.refresh_interval, shortest), with_min_interval(es, shortest)
        found = await self._read_target(es, target)  # first: the object counts as reconciled only if that succeeds
        known = self._memory.of(es.key, es.metadata.uid)
        first_reconcile = not known.reconciled  # until one succeeds
        written = last_sync(es)
        if first_reconcile:
            known.reconciled, known.restart_slot = True, restart_slot_of(es, written, now)
        snapshot = Snapshot(
            es=es,
            last=_later(known.last, written),
            now=now,
            target=found,
            rules=self.rules,
            foreign_class=self._foreign(es),
            restart_slot=known.restart_slot,
            held_until=known.held_until,
            new_templates=any(self._is_new(version) for version in known.templates),
            first_reconcile=first_reconcile,
            notified_at=self._notified_at(es.key),
            interval_factor=self._interval_factor(es.key),
            retry_within=ctx.longest_wait(interval_of(es)),
            interval_note=note,
        )
        return self._with_generated(snapshot)

    async def confirmed(self, snapshot: Snapshot, target: Target) -> Snapshot:
        """Return the snapshot with the target as the API server has it. Raises ApiError or UnknownKindError.

        The cache may lack a write that this process made just now, or one that another process made before it ended.
        """
        live = await self._read_target(snapshot.es, target, live=True)
        return self._with_generated(replace(snapshot, target=live))

    def writing(self, snapshot: Snapshot, mark: GeneratedMark, templates: frozenset[TemplateVersion]) -> None:
        """Remember what generated values were made from, until their status is written."""
        known = self._memory.of(snapshot.es.key, snapshot.es.metadata.uid)
        known.generated = GeneratedWrite(mark, templates, snapshot.notified_at)

    def remember(
        self,
        es: ExternalSecret,
        now: datetime,
        templates: frozenset[TemplateVersion],
        *,
        version: str = "",
        renew_within: float | None = None,
    ) -> None:
        """Remember a successful refresh, written to the status or not, and when its values must be renewed.

        `version` is that of the object that was synced, if `es` is a newer state of it.
        """
        renew_at = None if renew_within is None else now + timedelta(seconds=renew_within)
        known = self._memory.of(es.key, es.metadata.uid)
        known.reconciled, known.restart_slot, known.templates = True, None, templates
        known.generated = None
        known.last = LastSync(now, version or current_version(es), renew_at)

    def forget_last(self, es: ExternalSecret) -> None:
        """Let the status alone say what was synced last: it may have been written although its write failed."""
        self._memory.of(es.key, es.metadata.uid).last = None

    def _with_generated(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with what its target says of generated values."""
        es, found = snapshot.es, snapshot.target
        mark = generated_by(es, found.metadata.annotations) if isinstance(found, Present) and found.valid else None
        if mark is None:
            return snapshot
        made = LastSync(moment(mark.time), mark.version, moment(mark.renew_time))
        snapshot = replace(snapshot, generated=mark, unreported=_is_lost(es, made))
        known = self._memory.of(es.key, es.metadata.uid)
        if (generation := known.generated) is not None and generation.mark == mark:
            # The write has succeeded, so these are the templates and the announced change that it was made from.
            known.templates, seen = generation.templates, snapshot.notified_at == generation.notified_at
            new = any(self._is_new(version) for version in known.templates)
            snapshot = replace(snapshot, new_templates=new, notified_at=None if seen else snapshot.notified_at)
        return replace(snapshot, last=made) if snapshot.unreported and _is_as_late(made, snapshot.last) else snapshot

    async def _read_target(self, es: ExternalSecret, target: Target, *, live: bool = False) -> TargetState:
        """Return the live target. Targets other than Secrets are read only if the administrator allows them."""
        if es.spec.target.manifest is not None and not self.rules.generic_targets:
            return Absent()
        return await target.read(es, live=live)

    def _is_new(self, used: TemplateVersion) -> bool:
        """Return whether a template changed. A missing one does not count: the next refresh reports it."""
        return self._version_of(used.kind, used.key) not in ("", used.version)

    def _foreign(self, es: ExternalSecret) -> str:
        """Return the first store or generator that another operator handles. One that does not exist does not count."""
        for ref in references_of(es.spec):
            controller = self._controller_of(ref, es.metadata.namespace)
            if controller not in (None, "", self.rules.controller_class):
                return f"{ref.kind or 'SecretStore'} {ref.name}"
        return ""


def unread(es: ExternalSecret, ctx: ReconcileContext) -> Snapshot:
    """Return the snapshot of an object whose target could not be read."""
    return Snapshot(es, _NEVER, ctx.now, Absent(), _NO_RULES, retry_within=ctx.longest_wait(interval_of(es)))


def _later(known: LastSync | None, written: LastSync) -> LastSync:
    if known is None or known.at is None or (written.at is not None and written.at > known.at):
        return written
    return known


def _is_as_late(made: LastSync, last: LastSync) -> bool:
    """Compare whole seconds: a target does not have the fraction that a sync of this process has."""
    return last.at is None or made.at is None or made.at >= last.at.replace(microsecond=0)


def _is_lost(es: ExternalSecret, made: LastSync) -> bool:
    """Return whether the status does not have this sync. Both have whole seconds, so the version decides, too."""
    written = last_sync(es)
    if made.at is None or written.at is None or not written.version:
        return made.at is not None
    return made.at > written.at or (made.at == written.at and written.version != made.version == current_version(es))


def controller_classes(snapshot: ClusterView) -> ControllerOf:
    """Return a function that looks the class up in a live view of the cluster."""

    def controller_of(ref: StoreRef | GeneratorRef, namespace: str) -> str | None:
        try:
            reference = normalise(ref, ObjectRef(namespace=namespace))
            picked = pick(reference, snapshot)
        except ResolutionError:
            return None
        where = "" if picked.scope is Scope.CLUSTER else namespace
        found = snapshot.objects.get(picked.kind, ObjectKey(where, reference.name))
        return None if found is None else controller_named(picked, found)

    return controller_of


LONGEST_SPREAD: Final = 300.0
"""The maximum number of seconds over which overdue refreshes are spread; otherwise a quarter of their interval."""


def restart_slot_of(es: ExternalSecret, last: LastSync, now: datetime) -> datetime | None:
    """Return when a refresh that is overdue at the first reconcile may run; None if it is not overdue.

    After a restart, overdue refreshes are spread over some time, each object always at the same point in it. All others
    keep their exact time.
    """
    interval = interval_of(es)
    if last.at is None or interval <= 0 or now - last.at < timedelta(seconds=interval):
        return None
    spread = min(interval / 4, LONGEST_SPREAD)
    return now + timedelta(seconds=until_phase(es.metadata.uid, spread, now.timestamp()))
