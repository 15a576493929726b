"""The triggers of an ExternalSecret: changes of itself, of its target, and of its dependencies (`waking.wakes`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from eso_api.externalsecret import ExternalSecret
from eso_operator.dependencies.wakes import said_changed
from eso_operator.targets.marks import TARGET_INDEX, target_name
from kubebase.meta import Object, ObjectKey, ObjectMeta, meta_of
from kuberun import triggers
from kuberun.cache import Cache, Change
from kuberun.triggers import EventHandler
from kuberun.workqueue import ReconcileRequest

IsOurWord = Callable[[ObjectKey, ObjectMeta], bool]
"""Returns whether an ExternalSecret wrote exactly this version of its target."""


def target_of(es: ExternalSecret) -> list[tuple[str, str]]:
    """Index function: the Secret that an ExternalSecret writes to. Other kinds have their own watches."""
    return [(es.metadata.namespace, target_name(es))] if es.spec.target.manifest is None else []


def makers_of(objects: Cache[ExternalSecret]) -> Callable[[str, str], ExternalSecret | None]:
    """Return a function that finds the ExternalSecret of a Secret, by the Secret's namespace and name."""

    def maker(namespace: str, name: str) -> ExternalSecret | None:
        return next(iter(objects.find(TARGET_INDEX, (namespace, name))), None)

    return maker


def own_changes(change: Change[ExternalSecret]) -> Iterable[ReconcileRequest]:
    """Select changes by users, not our own reports. A removed finalizer counts, too."""
    if said_changed(change) or triggers.resynced(change) or _finalizers_differ(change):
        return triggers.itself()(change)
    return ()


def target_changes(objects: Cache[ExternalSecret], is_our_word: IsOurWord) -> EventHandler[Object]:
    """Map a Secret to every ExternalSecret that writes to it, except to its only writer after its own write.

    The label is not required: an ExternalSecret that waits for a Secret to appear, or for its owner to release it, has
    not labelled it yet.
    """

    def requests(change: Change[Object]) -> Iterable[ReconcileRequest]:
        users = objects.find_keys(TARGET_INDEX, (change.key.namespace, change.key.name))
        if len(users) == 1 and isinstance(change.new, Object) and is_our_word(users[0], change.new.metadata):
            return ()
        what = f"target {change.key} {'deleted' if change.deleted else 'changed'}"
        return [ReconcileRequest(key, what) for key in users]

    return requests


def _finalizers_differ(change: Change[ExternalSecret]) -> bool:
    if change.old is None or change.new is None:
        return False
    return meta_of(change.old).finalizers != meta_of(change.new).finalizers
