"""Collects what one reconcile goes by: the object, its target, the time, and what this process remembers of it.

A refresh that changed nothing is written into the status only now and then, so the last refresh is remembered here;
after a restart the status counts, which is at most a few minutes behind.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime
from typing import Final

import structlog

from eso_api.externalsecret import ExternalSecret
from eso_api.references import GeneratorRef, StoreRef
from eso_operator.externalsecret.outcome import Outcome, Synced
from eso_operator.externalsecret.refresh import LastSync, current_version, last_sync
from eso_operator.externalsecret.snapshot import Rules, Snapshot
from eso_operator.sync.wants import Generate, wants_of
from eso_operator.targets.target import Target
from kuberun.cache import Store
from kuberun.meta import Malformed, ObjectKey

_log = structlog.get_logger(__name__)

MAX_REMEMBERED: Final = 200_000

ControllerOf = Callable[[StoreRef | GeneratorRef, str], str | None]
"""The controller class that a store or generator names, seen from a namespace; None when there is no such object."""


class Gatherer:
    """One for the process."""

    def __init__(self, objects: Store[ExternalSecret], controller_of: ControllerOf, rules: Rules) -> None:
        self._objects = objects
        self._controller_of = controller_of
        self._rules = rules
        self._synced: OrderedDict[ObjectKey, tuple[str, LastSync]] = OrderedDict()

    def find(self, key: ObjectKey) -> ExternalSecret | None:
        """The object, if it is there and can be read."""
        found = self._objects.get(key)
        if isinstance(found, Malformed):
            _log.warning("external secret does not fit its type", external_secret=str(key), problem=found.error)
            return None
        return found

    async def gather(self, es: ExternalSecret, target: Target, now: datetime) -> Snapshot:
        return Snapshot(
            es=es,
            last=self._last(es),
            now=now,
            look=await target.look(es),
            foreign_class=self._foreign(es),
            rules=self._rules,
        )

    def remember(self, es: ExternalSecret, outcome: Outcome, now: datetime) -> None:
        """A refresh that succeeded counts from now on, written or not."""
        if isinstance(outcome, Synced):
            self._synced[es.key] = (es.metadata.uid, LastSync(now, current_version(es)))
            self._synced.move_to_end(es.key)
            while len(self._synced) > MAX_REMEMBERED:
                self._synced.popitem(last=False)

    def forget(self, key: ObjectKey) -> None:
        self._synced.pop(key, None)

    def _last(self, es: ExternalSecret) -> LastSync:
        """The later of what is remembered and what is written."""
        written = last_sync(es)
        uid, known = self._synced.get(es.key, ("", written))
        if uid != es.metadata.uid or known.at is None or (written.at is not None and written.at > known.at):
            return written
        return known

    def _foreign(self, es: ExternalSecret) -> str:
        """The first store or generator that another operator handles. One that does not exist is no objection."""
        for want in wants_of(es.spec):
            ref = want.generator if isinstance(want, Generate) else want.store
            controller = self._controller_of(ref, es.metadata.namespace)
            if controller not in (None, "", self._rules.controller_class):
                return f"{ref.kind or 'SecretStore'} {ref.name}"
        return ""
