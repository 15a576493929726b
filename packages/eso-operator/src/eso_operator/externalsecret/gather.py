"""Collects what one reconcile goes by: the object, its target, the time, and what this process remembers of it.

A refresh that changed nothing is written into the status only now and then, so the last refresh is remembered here;
after a restart the status counts, which is at most a few minutes behind.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from eso_api.externalsecret import ExternalSecret
from eso_api.references import GeneratorRef, StoreRef
from eso_operator.externalsecret.refresh import current_version, interval_of, last_sync, turn_of
from eso_operator.externalsecret.snapshot import LastSync, Rules, Snapshot
from eso_operator.externalsecret.sources import references_of
from eso_operator.sync.floor import floor_note, paced
from eso_operator.sync.templates import TemplateVersion
from eso_operator.targets.target import Absent, Look, Target
from kuberun.cache import Store
from kuberun.controller import longest_wait
from kuberun.meta import Malformed, ObjectKey

MAX_REMEMBERED: Final = 200_000

ControllerOf = Callable[[StoreRef | GeneratorRef, str], str | None]
"""The controller class that a store or generator names, seen from a namespace; None when there is no such object."""

VersionOf = Callable[[str, ObjectKey], str]
"""The resourceVersion of an object, by kind and key; empty when there is none."""

ToldAt = Callable[[ObjectKey], float | None]
"""When (monotonic) an ExternalSecret was told of a change at its backend that it has not read yet."""

Stretch = Callable[[ObjectKey], float]
"""How many intervals an ExternalSecret may go without being read."""


def no_stretch(_: ObjectKey) -> float:
    return 1.0


@dataclass(frozen=True, slots=True)
class _Known:
    """What is remembered of one object."""

    uid: str
    turn: datetime | None = None
    last: LastSync | None = None
    templates: frozenset[TemplateVersion] = frozenset()


class Gatherer:
    """One for the process."""

    def __init__(
        self,
        objects: Store[ExternalSecret],
        controller_of: ControllerOf,
        *,
        version_of: VersionOf,
        told_at: ToldAt,
        rules: Rules,
        stretch: Stretch = no_stretch,
    ) -> None:
        self._objects = objects
        self._controller_of = controller_of
        self._version_of = version_of
        self._told_at = told_at
        self._stretch = stretch
        self._rules = rules
        self._known: OrderedDict[ObjectKey, _Known] = OrderedDict()

    def find(self, key: ObjectKey) -> ExternalSecret | None:
        """The object, if it is there and can be read. What cannot is told by `sync.misfits`."""
        found = self._objects.get(key)
        return None if isinstance(found, Malformed) else found

    async def gather(self, es: ExternalSecret, target: Target, now: datetime) -> Snapshot:
        """Raises what looking at the target does: ApiError, UnknownKindError."""
        shortest = self._rules.shortest_interval
        note, es = floor_note(es.spec.refresh_interval, shortest), paced(es, shortest)
        look = await self._look(es, target)
        first_look = self._of(es) is None  # until one succeeds
        known = self._of(es) or self._keep(es, _Known(es.metadata.uid, turn_of(es, last_sync(es), now)))
        return Snapshot(
            es=es,
            last=_later(known.last, last_sync(es)),
            now=now,
            look=look,
            rules=self._rules,
            foreign_class=self._foreign(es),
            turn=known.turn,
            new_templates=any(self._is_new(version) for version in known.templates),
            first_look=first_look,
            told_at=self._told_at(es.key),
            stretch=self._stretch(es.key),
            retry_within=longest_wait(interval_of(es)),
            interval_note=note,
        )

    def remember(
        self,
        es: ExternalSecret,
        now: datetime,
        templates: frozenset[TemplateVersion],
        *,
        renew_within: float | None = None,
    ) -> None:
        """A refresh that succeeded counts from now on, written or not; for no longer than its values live."""
        renew_at = None if renew_within is None else now + timedelta(seconds=renew_within)
        last = LastSync(now, current_version(es), renew_at)
        self._keep(es, _Known(es.metadata.uid, last=last, templates=templates))

    def forget(self, key: ObjectKey) -> None:
        self._known.pop(key, None)

    def _of(self, es: ExternalSecret) -> _Known | None:
        """What is known of this very object, not of one that had its name before."""
        found = self._known.get(es.key)
        return found if found is not None and found.uid == es.metadata.uid else None

    def _keep(self, es: ExternalSecret, known: _Known) -> _Known:
        self._known[es.key] = known
        self._known.move_to_end(es.key)
        while len(self._known) > MAX_REMEMBERED:
            self._known.popitem(last=False)
        return known

    async def _look(self, es: ExternalSecret, target: Target) -> Look:
        """Kinds that the administrator did not allow are not even looked at."""
        if es.spec.target.manifest is not None and not self._rules.generic_targets:
            return Absent()
        return await target.look(es)

    def _is_new(self, used: TemplateVersion) -> bool:
        """One that is gone, or not seen yet, is no news: the next refresh will say so."""
        return self._version_of(used.kind, used.key) not in ("", used.version)

    def _foreign(self, es: ExternalSecret) -> str:
        """The first store or generator that another operator handles. One that does not exist is no objection."""
        for ref in references_of(es.spec):
            controller = self._controller_of(ref, es.metadata.namespace)
            if controller not in (None, "", self._rules.controller_class):
                return f"{ref.kind or 'SecretStore'} {ref.name}"
        return ""


def _later(known: LastSync | None, written: LastSync) -> LastSync:
    if known is None or known.at is None or (written.at is not None and written.at > known.at):
        return written
    return known
