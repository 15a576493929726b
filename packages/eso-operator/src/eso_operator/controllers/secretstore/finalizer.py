"""Decides whether a store must stay until PushSecrets have removed their values from its backend. Pure.

A PushSecret with deletionPolicy Delete holds a store of its namespace that it has pushed to, or that it refers to by
name or by label. A cluster-scoped store belongs to an administrator. It is held only by values that were pushed to it
from a namespace that it permits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from eso_api.pushsecret import PushSecret, PushStoreRef
from eso_api.references import SelectorError
from eso_operator.controllers.secretstore.kinds import StoreKind
from kubebase.meta import JsonObject, ObjectKey, ObjectMeta
from kuberun.ownership import finalizer_added, finalizer_removed

DELETE: Final = "Delete"
FINALIZER: Final = "secretstore.externalsecrets.io/finalizer"


def finalizer_patch(store: ObjectMeta, *, holding: bool) -> JsonObject | None:
    """Return the merge patch that adds or removes the finalizer; None if it is correct."""
    return finalizer_added(store, FINALIZER) if holding else finalizer_removed(store, FINALIZER)


def held(
    kind: StoreKind, store: ObjectMeta, push_secrets: Iterable[PushSecret], permits: Callable[[str], bool]
) -> bool:
    """Return whether a PushSecret still needs the store for a deletion.

    `permits` is called for cluster-scoped stores only.
    """
    will_delete = [push for push in push_secrets if push.spec.deletion_policy == DELETE]
    if not kind.resource.namespaced:
        return any(_has_pushed(kind, store, push) and permits(push.metadata.namespace) for push in will_delete)
    return any(
        push.metadata.namespace == store.namespace and (_has_pushed(kind, store, push) or _refers(kind, store, push))
        for push in will_delete
    )


def stores_named(kind: StoreKind, push: PushSecret) -> set[ObjectKey]:
    """Return the stores of this kind that the PushSecret names or has pushed to.

    Those it selects by label are not included.
    """
    namespace = push.metadata.namespace if kind.resource.namespaced else ""
    names = {ref.name for ref in push.spec.secret_store_refs if ref.name and _same_kind(kind, ref)}
    prefix = f"{kind.status_key_prefix}/"
    names |= {key.removeprefix(prefix) for key in push.status.synced_push_secrets if key.startswith(prefix)}
    return {ObjectKey(namespace, name) for name in names if "/" not in name}


def selects_by_label(kind: StoreKind, push: PushSecret) -> bool:
    return any(ref.label_selector is not None and _same_kind(kind, ref) for ref in push.spec.secret_store_refs)


def _has_pushed(kind: StoreKind, store: ObjectMeta, push: PushSecret) -> bool:
    return f"{kind.status_key_prefix}/{store.name}" in push.status.synced_push_secrets


def _refers(kind: StoreKind, store: ObjectMeta, push: PushSecret) -> bool:
    return any(_same_kind(kind, ref) and _matches(ref, store) for ref in push.spec.secret_store_refs)


def _matches(ref: PushStoreRef, store: ObjectMeta) -> bool:
    if ref.name and ref.name == store.name:
        return True
    if ref.label_selector is None:
        return False
    try:
        return ref.label_selector.matches(store.labels)
    except SelectorError:
        return False  # the PushSecret's own condition reports it


def _same_kind(kind: StoreKind, ref: PushStoreRef) -> bool:
    group = ref.api_version.rpartition("/")[0] if ref.api_version else "external-secrets.io"
    return (ref.kind or "SecretStore") == kind.resource.kind and group == kind.resource.group
