"""Decides whether a store must stay until PushSecrets have removed their values from its backend. Pure.

A PushSecret with deletionPolicy Delete holds a store of its namespace that it has pushed to, or that it refers to by
name or by label. A cluster-scoped store belongs to an administrator. It is held only by values that were pushed to it
from a namespace that it permits.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, Final

import structlog

from eso_api.pushsecret import PushSecret, PushStoreRef
from eso_api.references import SelectorError
from eso_operator.controllers.base import result_of
from eso_operator.controllers.secretstore.kinds import StoreKind
from eso_operator.stores.access import check_namespace
from eso_operator.stores.loading import identity
from eso_operator.stores.resolved import ClusterObjects, ClusterView, ResolutionError
from eso_wire.values import KindId
from kubebase.meta import JsonObject, Malformed, ObjectKey, ObjectMeta
from kuberun.cache import Cache
from kuberun.client import Client
from kuberun.controller import Done, ReconcileContext, Requeue, Result
from kuberun.errors import ApiError, Forbidden, NotFound
from kuberun.ownership import finalizer_added, finalizer_removed
from kuberun.requests import Selection
from kuberun.workqueue import ReconcileRequest

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


PushSecrets = Callable[[StoreKind, ObjectKey], Sequence[PushSecret]]
"""The PushSecrets that may hold a store."""

_RECHECK_SECONDS: Final = 30.0
"""Seconds, while a deletion waits: labels of namespaces, which may decide, are not waited for."""


class StoreHolder:
    """Reconciles the finalizers of the stores of one kind."""

    def __init__(
        self,
        kind: StoreKind,
        stores: Cache[Any],
        *,
        client: Client,
        push_secrets: PushSecrets,
        objects: ClusterObjects,
        controller_class: str,
    ) -> None:
        self._kind = kind
        self._stores = stores
        self._client = client
        self._push_secrets = push_secrets
        self._objects = objects
        self._controller_class = controller_class

    async def reconcile(self, key: ObjectKey, _: ReconcileContext) -> Result:
        store = self._stores.get(key)
        if store is None or isinstance(store, Malformed) or store.spec.controller not in ("", self._controller_class):
            return Done()
        holding = held(self._kind, store.metadata, self._push_secrets(self._kind, key), self._permits(store))
        patch = finalizer_patch(store.metadata, holding=holding)
        try:
            if patch is not None:
                await self._client.merge_patch(self._kind.kind, key, patch)
        except ApiError as problem:
            return result_of(problem, "finalizer not written")
        waits = holding and store.metadata.deletion_timestamp is not None
        return Requeue(_RECHECK_SECONDS, "a deletion waits") if waits else Done()

    def _permits(self, store: Any) -> Callable[[str], bool]:
        """Return whether the conditions of a cluster-scoped store permit a namespace to use it."""
        resource = self._kind.resource
        ref = identity(KindId(resource.group, resource.version, resource.kind), store)

        def permits(namespace: str) -> bool:
            try:
                check_namespace(getattr(store.spec, "conditions", ()), namespace, ref, ClusterView(self._objects))
            except ResolutionError:
                return False
            return True

        return permits


_PAGE = 500

_log = structlog.get_logger(__name__)


class Release:
    """Reconciles kinds: a key names one. `namespace` is empty for an operator of the whole cluster."""

    def __init__(self, kinds: Iterable[StoreKind], *, client: Client, namespace: str, controller_class: str) -> None:
        self._kinds = {ObjectKey("", str(kind.resource)): kind for kind in kinds}
        self._client = client
        self._namespace = namespace
        self._controller_class = controller_class

    @property
    def requests(self) -> tuple[ReconcileRequest, ...]:
        return tuple(ReconcileRequest(key, "the kind is turned off") for key in self._kinds)

    async def reconcile(self, key: ObjectKey, _: ReconcileContext) -> Result:
        kind, released = self._kinds[key], 0
        try:
            async for store in self._stores(kind):
                patch = finalizer_patch(store.metadata, holding=False)
                if patch is not None and store.spec.controller in ("", self._controller_class):
                    await self._client.merge_patch(kind.kind, store.metadata.key, patch)
                    released += 1
        except (NotFound, Forbidden):
            return Done()  # the kind is not installed, or not for this operator
        except ApiError as problem:
            return result_of(problem, "finalizer not removed")
        _log.info("finalizers of a kind that is off are removed", kind=str(kind.resource), stores=released)
        return Done()

    async def _stores(self, kind: StoreKind) -> AsyncIterator[Any]:
        home = self._namespace if kind.resource.namespaced else ""
        source, token = self._client.source(kind.kind, Selection(home)), ""
        while True:
            page = await source.list_page(limit=_PAGE, continue_token=token, resource_version="")
            for store in page.items:
                if not isinstance(store, Malformed):
                    yield store
            token = page.continue_token
            if not token:
                return
