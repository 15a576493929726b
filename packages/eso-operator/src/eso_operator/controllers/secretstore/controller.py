"""Reconciles one store: gather, validate, report. The same for all kinds of `kinds.py`.

A store is reconciled when it changes, when one of its dependencies changes (`dependencies.py`), and at its interval.
Its status is written only if it differs, and its events are recorded only if they are new. An idle store costs one call
to its provider per interval and no writes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from eso_api.pushsecret import PushSecret
from eso_operator.controllers.base import Reconciler, Report, Reporter
from eso_operator.controllers.refresh import SHORTEST_INTERVAL
from eso_operator.controllers.secretstore.finalizer import DELETE, selects_by_label, stores_named
from eso_operator.controllers.secretstore.kinds import STORE_KINDS, StoreKind
from eso_operator.controllers.secretstore.status import Before, report_of, unanchored_regexes
from eso_operator.controllers.secretstore.sync import Validator
from eso_operator.dependencies import Dependant, Dependencies, OnObject
from eso_operator.memory import Memory, Record
from eso_wire.values import KindRole
from kubebase import durations
from kubebase.clock import Clock
from kubebase.meta import Malformed, ObjectKey
from kuberun import triggers
from kuberun.cache import Cache, Change
from kuberun.controller import ReconcileContext, Result
from kuberun.workqueue import ReconcileRequest

StreamTrouble = Callable[[OnObject], str | None]
"""Returns why change events of a store do not arrive; None if they do, or if no object follows it."""


def no_trouble(_: OnObject) -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class StoreSettings:
    controller_class: str
    interval: float
    """Seconds between validations of a store without its own interval."""


@dataclass(frozen=True, slots=True)
class StoreDeps:
    """The dependencies that all store reconcilers share."""

    clock: Clock
    validator: Validator
    dependencies: Dependencies
    stream_trouble: StreamTrouble = no_trouble


def interval_of(spec: Any, usual: float) -> float:
    """Return the seconds between two validations of a valid store."""
    try:
        wanted = durations.seconds(spec.refresh_interval, field="spec.refreshInterval")
    except durations.DurationError:
        return usual  # the validation reports it
    return max(wanted, SHORTEST_INTERVAL) if wanted else usual


class StoreReconciler(Reconciler[Any]):
    """Reconciles the stores of one kind."""

    def __init__(
        self,
        kind: StoreKind,
        stores: Cache[Any],
        deps: StoreDeps,
        *,
        reporter: Reporter[Any],
        memory: Memory[Record],
        settings: StoreSettings,
    ) -> None:
        super().__init__(stores, memory, timed=reporter.timed)
        self._kind = kind
        self._deps = deps
        self._reporter = reporter
        self._settings = settings

    def find(self, key: ObjectKey) -> Any | None:
        """Return the store if it is ours."""
        store = super().find(key)
        return store if store is not None and store.spec.controller in ("", self._settings.controller_class) else None

    async def fresh(self, obj: Any) -> Any:
        """Return the store with our last write: its result is compared with it."""
        return await self._reporter.refresh_if_stale(obj)

    async def reconcile(self, obj: Any, ctx: ReconcileContext) -> Result:
        """Validate the store and report the result on it."""
        del ctx
        store = obj
        validated = await self._deps.validator.validate(self._kind, store.metadata)
        self._deps.dependencies.record(self._dependant(store.metadata.key), validated.depends_on)
        trouble = self._deps.stream_trouble(self._as_dependency(store.metadata.key))
        now = self._deps.clock.now()

        def report(store: Any) -> Report:
            interval = interval_of(store.spec, self._settings.interval)
            before = Before(
                self._kind,
                store.metadata,
                store.status,
                interval,
                now,
                stream_trouble=trouble,
                unanchored=unanchored_regexes(store.spec),
            )
            return report_of(before, validated.verdict)

        return (await self._reporter.publish(store, report)).result

    def _as_dependency(self, key: ObjectKey) -> OnObject:
        return OnObject(self._kind.resource.group, self._kind.resource.kind, key)

    def _dependant(self, key: ObjectKey) -> Dependant:
        return Dependant(self._kind.subsystem, key)


STORES_INDEX = "stores"
_BY_LABEL = "selected by label"

own_changes = triggers.when(
    triggers.any_of(
        triggers.generation_changed,
        triggers.labels_changed,
        triggers.annotations_changed,
        triggers.deletion_started,
        triggers.resynced,
    ),
    triggers.itself(),
)

# --- PushSecrets ------------------------------------------------------------------------------------------------------


def stores_of(push: PushSecret) -> Iterable[Hashable]:
    """Index function of PushSecrets: every store one may hold, and the kinds it selects from by label."""
    for kind in STORE_KINDS:
        if kind.role is KindRole.STORE:
            yield from ((kind.subsystem, key) for key in stores_named(kind, push))
            if selects_by_label(kind, push):
                yield (kind.subsystem, _BY_LABEL)


def holders(push_secrets: Cache[PushSecret]) -> Callable[[StoreKind, ObjectKey], Sequence[PushSecret]]:
    """Return the PushSecrets that may hold a store, through the index."""

    def found(kind: StoreKind, key: ObjectKey) -> Sequence[PushSecret]:
        named = push_secrets.find(STORES_INDEX, (kind.subsystem, key))
        return [*named, *push_secrets.find(STORES_INDEX, (kind.subsystem, _BY_LABEL))]

    return found


def held_stores(kind: StoreKind, stores: Cache[Any]) -> triggers.EventHandler[PushSecret]:
    """Return the stores whose finalizer a change of a PushSecret concerns."""

    def requests(change: Change[PushSecret]) -> Iterable[ReconcileRequest]:
        if _holds(change.old) == _holds(change.new):
            return []
        states = [state for state in (change.old, change.new) if state is not None and not isinstance(state, Malformed)]
        keys = {key for state in states for key in stores_named(kind, state)}
        # A selector holds no store of another namespace, see `finalizer.py`.
        if kind.resource.namespaced and any(selects_by_label(kind, state) for state in states):
            keys |= {key for key in stores.keys() if key.namespace == change.key.namespace}  # noqa: SIM118 - a Cache cannot be iterated
        return [ReconcileRequest(key, f"PushSecret {change.key} changed") for key in sorted(keys) if key in stores]

    return requests


def _holds(push: PushSecret | Malformed | None) -> object:
    """Return everything that determines which stores it holds; None if it holds none."""
    if push is None or isinstance(push, Malformed) or push.spec.deletion_policy != DELETE:
        return None
    return push.spec.secret_store_refs, push.status.synced_push_secrets.keys(), push.metadata.uid
