"""Sets and removes the finalizer of stores: a store that a PushSecret needs for a deletion must exist until then.

This is a separate controller, because every change of a PushSecret causes a reconcile here. A check of the finalizer
must be cheap, but a validation of the store calls its backend with the credentials of its owner.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from eso_api.pushsecret import PushSecret
from eso_operator.controllers.secretstore.finalizer import finalizer_patch, held
from eso_operator.controllers.secretstore.kinds import StoreKind
from eso_operator.report.messages import outcome_of
from eso_operator.stores.access import check_namespace
from eso_operator.stores.inputs import ClusterView, Objects
from eso_operator.stores.loading import identity
from eso_operator.stores.resolved import ResolutionError
from eso_wire.values import KindId
from kubebase.meta import Malformed, ObjectKey
from kuberun.cache import Cache
from kuberun.client import Client
from kuberun.controller import Done, Requeue, Result
from kuberun.errors import ApiError

PushSecrets = Callable[[StoreKind, ObjectKey], Sequence[PushSecret]]
"""The PushSecrets that may hold a store."""

_LOOK_AGAIN: Final = 30.0
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
        objects: Objects,
        controller_class: str,
    ) -> None:
        self._kind = kind
        self._stores = stores
        self._client = client
        self._push_secrets = push_secrets
        self._objects = objects
        self._controller_class = controller_class

    async def reconcile(self, key: ObjectKey) -> Result:
        store = self._stores.get(key)
        if store is None or isinstance(store, Malformed) or store.spec.controller not in ("", self._controller_class):
            return Done()
        holding = held(self._kind, store.metadata, self._push_secrets(self._kind, key), self._permits(store))
        patch = finalizer_patch(store.metadata, holding=holding)
        try:
            if patch is not None:
                await self._client.merge_patch(self._kind.kind, key, patch)
        except ApiError as problem:
            return outcome_of(problem, "store", "finalizer not written")
        waits = holding and store.metadata.deletion_timestamp is not None
        return Requeue(_LOOK_AGAIN, "a deletion waits") if waits else Done()

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
