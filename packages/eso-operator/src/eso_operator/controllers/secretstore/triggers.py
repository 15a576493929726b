"""The changes that trigger a reconcile of a store: its own, and those of its dependencies.

the store itself              spec, labels, annotations, deletion
PushSecrets                   stores they name, have pushed to, or select by label (the finalizer only: `holding.py`)
Secret, ConfigMap, config     stores that read it, or that need it
class, Service                stores that use the provider, and those that wait for one
provider (dis)appears         the same
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

from eso_api.pushsecret import PushSecret
from eso_operator.controllers.secretstore.finalizer import DELETE, selects_by_label, stores_named
from eso_operator.controllers.secretstore.kinds import STORE_KINDS, StoreKind
from eso_wire.values import KindRole
from kubebase.meta import Malformed, ObjectKey
from kuberun import triggers
from kuberun.cache import Cache, Change
from kuberun.workqueue import ReconcileRequest

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
