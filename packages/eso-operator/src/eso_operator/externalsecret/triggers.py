"""What makes an ExternalSecret be looked at: its own changes, its target's, and what it went by (`sync.wakes`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from eso_api.externalsecret import ExternalSecret
from eso_operator.sync.wakes import said_changed
from eso_operator.targets.marks import target_name
from kuberun import triggers
from kuberun.cache import Change, Store
from kuberun.meta import Object, ObjectMeta, meta_of
from kuberun.triggers import Mapping
from kuberun.workqueue import Request

TARGET_INDEX: Final = "target"


def target_of(es: ExternalSecret) -> list[tuple[str, str]]:
    """The index by which the users of a Secret are found. Other kinds have watches of their own."""
    return [(es.metadata.namespace, target_name(es))] if es.spec.target.manifest is None else []


def own_changes(change: Change[ExternalSecret]) -> Iterable[Request]:
    """What people wrote, not what we report. A finalizer that somebody took off counts too."""
    if said_changed(change) or triggers.resynced(change) or _finalizers_differ(change):
        return triggers.itself()(change)
    return ()


def target_changes(objects: Store[ExternalSecret], is_our_word: Callable[[ObjectMeta], bool]) -> Mapping[Object]:
    """A Secret that somebody writes to, or would like to: everybody who does, except its only user about its own write.

    Whether it carries our label does not matter. Those who wait for a Secret to appear, or for its owner to give it up,
    have not marked it yet.
    """

    def requests(change: Change[Object]) -> Iterable[Request]:
        users = objects.find_keys(TARGET_INDEX, (change.key.namespace, change.key.name))
        if len(users) == 1 and isinstance(change.new, Object) and is_our_word(change.new.metadata):
            return ()
        what = f"target {change.key} {'deleted' if change.deleted else 'changed'}"
        return [Request(key, what) for key in users]

    return requests


def _finalizers_differ(change: Change[ExternalSecret]) -> bool:
    if change.old is None or change.new is None:
        return False
    return meta_of(change.old).finalizers != meta_of(change.new).finalizers
