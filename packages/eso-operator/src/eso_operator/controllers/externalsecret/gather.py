"""Collects the inputs of one reconcile: the object, its target, the time, and the object's record.

A refresh that changed nothing is written into the status only every few minutes, so the record holds the last refresh.
After a restart the status is used, which may be a few minutes behind.

A target with generated values says when they were generated. If the status of that sync was lost, the target is
right: values that somebody may use already are not generated again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Protocol

from eso_api.externalsecret import ExternalSecret
from eso_api.references import GeneratorRef, StoreRef
from eso_operator.controllers.due import moment
from eso_operator.controllers.externalsecret.refresh import turn_of
from eso_operator.controllers.externalsecret.schedule import LastSync, current_version, interval_of, last_sync
from eso_operator.controllers.externalsecret.snapshot import Rules, Snapshot
from eso_operator.controllers.floor import floor_note, paced
from eso_operator.memory import Memory
from eso_operator.sources.entries import references_of
from eso_operator.sources.templates import TemplateVersion, VersionOf
from eso_operator.targets.marks import GeneratedMark, generated_by
from eso_operator.targets.target import Absent, Look, Present, Target
from kubebase.meta import Malformed, ObjectKey
from kuberun.cache import Cache
from kuberun.controller import longest_wait

ControllerOf = Callable[[StoreRef | GeneratorRef, str], str | None]
"""Returns the controller class of a store or generator as seen from a namespace; None if it does not exist."""

ToldAt = Callable[[ObjectKey], float | None]
"""Returns when (monotonic) a provider announced a change that the ExternalSecret has not read yet."""

Stretch = Callable[[ObjectKey], float]
"""Returns how many refresh intervals may pass between two reads of an ExternalSecret."""


_NEVER: Final = LastSync(None, "")
_NO_RULES: Final = Rules()


def no_stretch(_: ObjectKey) -> float:
    return 1.0


@dataclass(frozen=True, slots=True)
class Generation:
    """A write of generated values that this process made, or may have made, before their status was written."""

    mark: GeneratedMark
    templates: frozenset[TemplateVersion]
    notified_at: float | None
    """The announced change that was read for it, as in the snapshot."""


class Looked(Protocol):
    """The fields of a record that are used here."""

    uid: str
    looked: bool
    """True if this process has reconciled the object before."""
    turn: datetime | None
    held_until: datetime | None
    """No refresh before then, unless the object is edited."""
    last: LastSync | None
    """The last refresh, if this process made it."""
    templates: frozenset[TemplateVersion]
    """The templates from which the target was rendered, with their versions."""
    generated: Generation | None
    """The last write of generated values whose status is not known to be written."""


class Gatherer:
    """Collects snapshots. The process has one."""

    def __init__(
        self,
        objects: Cache[ExternalSecret],
        controller_of: ControllerOf,
        memory: Memory[Looked],
        *,
        version_of: VersionOf,
        notified_at: ToldAt,
        rules: Rules,
        stretch: Stretch = no_stretch,
    ) -> None:
        self._objects = objects
        self._controller_of = controller_of
        self._version_of = version_of
        self._notified_at = notified_at
        self._stretch = stretch
        self._rules = rules
        self._memory = memory

    def find(self, key: ObjectKey) -> ExternalSecret | None:
        """Return the object if it exists and can be decoded; `controllers.malformed` reports objects that cannot."""
        found = self._objects.get(key)
        return None if isinstance(found, Malformed) else found

    async def gather(self, es: ExternalSecret, target: Target, now: datetime) -> Snapshot:
        """Return the snapshot. Raises ApiError or UnknownKindError if the target cannot be read."""
        shortest = self._rules.shortest_interval
        note, es = floor_note(es.spec.refresh_interval, shortest), paced(es, shortest)
        look = await self._look(es, target)
        known = self._memory.of(es.key, es.metadata.uid)
        first_look = not known.looked  # until one succeeds
        written = last_sync(es)
        if first_look:
            known.looked, known.turn = True, turn_of(es, written, now)
        snapshot = Snapshot(
            es=es,
            last=_later(known.last, written),
            now=now,
            look=look,
            rules=self._rules,
            foreign_class=self._foreign(es),
            turn=known.turn,
            held_until=known.held_until,
            new_templates=any(self._is_new(version) for version in known.templates),
            first_look=first_look,
            notified_at=self._notified_at(es.key),
            stretch=self._stretch(es.key),
            retry_within=longest_wait(interval_of(es)),
            interval_note=note,
        )
        return self._with_generated(snapshot)

    async def confirmed(self, snapshot: Snapshot, target: Target) -> Snapshot:
        """Return the snapshot with the target as the API server has it. Raises ApiError or UnknownKindError.

        The cache may lack a write that this process made just now, or one that another process made before it ended.
        """
        look = await self._look(snapshot.es, target, live=True)
        return self._with_generated(replace(snapshot, look=look))

    def writing(self, snapshot: Snapshot, mark: GeneratedMark, templates: frozenset[TemplateVersion]) -> None:
        """Remember what generated values were made from, until their status is written."""
        known = self._memory.of(snapshot.es.key, snapshot.es.metadata.uid)
        known.generated = Generation(mark, templates, snapshot.notified_at)

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
        known.looked, known.turn, known.templates = True, None, templates
        known.generated = None
        known.last = LastSync(now, version or current_version(es), renew_at)

    def _with_generated(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with what its target says of generated values."""
        es, look = snapshot.es, snapshot.look
        mark = generated_by(es, look.metadata.annotations) if isinstance(look, Present) and look.valid else None
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

    async def _look(self, es: ExternalSecret, target: Target, *, live: bool = False) -> Look:
        """Return the live target. Targets other than Secrets are read only if the administrator allows them."""
        if es.spec.target.manifest is not None and not self._rules.generic_targets:
            return Absent()
        return await target.look(es, live=live)

    def _is_new(self, used: TemplateVersion) -> bool:
        """Return whether a template changed. A missing one does not count: the next refresh reports it."""
        return self._version_of(used.kind, used.key) not in ("", used.version)

    def _foreign(self, es: ExternalSecret) -> str:
        """Return the first store or generator that another operator handles. One that does not exist does not count."""
        for ref in references_of(es.spec):
            controller = self._controller_of(ref, es.metadata.namespace)
            if controller not in (None, "", self._rules.controller_class):
                return f"{ref.kind or 'SecretStore'} {ref.name}"
        return ""


def unseen(es: ExternalSecret, now: datetime) -> Snapshot:
    """Return the snapshot of an object whose target could not be read."""
    return Snapshot(es, _NEVER, now, Absent(), _NO_RULES, retry_within=longest_wait(interval_of(es)))


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
