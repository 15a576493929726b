"""The changes that trigger a reconcile of a PushSecret.

the object itself      spec, labels, annotations, finalizers, deletion; not its status
source Secrets         the one it names, and those that its selector matches or matched
stores                 those it names, has pushed to, or selects by label
dependencies           providers, configurations, credentials, templates (`waking.wakes`)
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Any, Final

from eso_api.pushsecret import PushSecret
from eso_api.references import CORE_GROUP, SelectorError
from eso_operator.controllers.pushsecret.claims import PLACES_INDEX, places_of
from eso_operator.controllers.secretstore.controller import holders
from eso_operator.controllers.secretstore.kinds import StoreKind
from eso_operator.dependencies.dependencies import Dependency, OnObject
from eso_operator.dependencies.wakes import said_changed
from kubebase.meta import Object, ObjectKey, meta_of
from kuberun import triggers
from kuberun.cache import Cache, Change
from kuberun.triggers import EventHandler
from kuberun.workqueue import ReconcileRequest

SOURCES_INDEX: Final = "sources"
_BY_LABEL: Final = ""
"""Index key of PushSecrets that select by label; no Secret has this name."""


def sources_of(push: PushSecret) -> Iterable[Hashable]:
    """Index function of PushSecrets: the Secret it names, or its namespace if it selects by label."""
    source = push.spec.selector.secret
    if source is None:
        return ()
    return ((push.metadata.namespace, source.name or _BY_LABEL),)


INDEXES: Final = {SOURCES_INDEX: sources_of, PLACES_INDEX: places_of}
"""Indexes of PushSecrets for the controller."""


def own_changes(change: Change[PushSecret]) -> Iterable[ReconcileRequest]:
    """Return requests for changes by users, not for our own reports. A removed finalizer counts too."""
    if said_changed(change) or triggers.resynced(change) or _finalizers_differ(change):
        return triggers.itself()(change)
    return ()


def source_changes(objects: Cache[PushSecret]) -> EventHandler[Object]:
    """Return the PushSecrets that push a changed Secret, or pushed it until its labels changed."""

    def requests(change: Change[Object]) -> Iterable[ReconcileRequest]:
        reason = f"source {change.key} {'deleted' if change.deleted else 'changed'}"
        labels = [meta_of(state).labels for state in (change.old, change.new) if state is not None]
        return [ReconcileRequest(key, reason) for key in pushing(objects, change.key, *labels)]

    return requests


def pushing(objects: Cache[PushSecret], secret: ObjectKey, *labels: dict[str, str]) -> list[ObjectKey]:
    """Return the PushSecrets that name a Secret, or select one with these labels."""
    named = objects.find_keys(SOURCES_INDEX, (secret.namespace, secret.name))
    selecting = objects.find(SOURCES_INDEX, (secret.namespace, _BY_LABEL))
    return [*named, *(push.key for push in selecting if any(_selects(push, each) for each in labels))]


def store_changes(kind: StoreKind, objects: Cache[PushSecret]) -> EventHandler[Any]:
    """Return the PushSecrets that name a changed store, have pushed to it, or may select it by label."""
    holding = holders(objects)

    def requests(change: Change[Any]) -> Iterable[ReconcileRequest]:
        if not said_changed(change):
            return []
        near = [
            push.key
            for push in holding(kind, change.key)
            if not change.key.namespace or push.metadata.namespace == change.key.namespace
        ]
        return [ReconcileRequest(key, f"{kind.resource.kind} {change.key} changed") for key in dict.fromkeys(near)]

    return requests


def named_stores(push: PushSecret) -> Iterator[Dependency]:
    """Yield the named stores, existing or not; whether a provider's own kind is namespaced is unknown here."""
    for ref in push.spec.secret_store_refs:
        if ref.name and ref.label_selector is None:
            group = ref.api_version.rpartition("/")[0] if ref.api_version else CORE_GROUP
            for namespace in (push.metadata.namespace, ""):
                yield OnObject(group, ref.kind or "SecretStore", ObjectKey(namespace, ref.name))


def _selects(push: PushSecret, labels: dict[str, str]) -> bool:
    source = push.spec.selector.secret
    try:
        return source is not None and source.selector is not None and source.selector.matches(labels)
    except SelectorError:
        return False  # its own condition reports it


def _finalizers_differ(change: Change[PushSecret]) -> bool:
    if change.old is None or change.new is None:
        return False
    return meta_of(change.old).finalizers != meta_of(change.new).finalizers
