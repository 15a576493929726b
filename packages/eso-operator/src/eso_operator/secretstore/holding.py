"""Keeps the finalizer of stores right: one that PushSecrets still need for a deletion must not go before them.

A controller of its own, because a change of any PushSecret leads here, and to look at a finalizer must cost nothing but
the look: validating a store costs a call to its backend with the credentials of its owner.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from eso_api.pushsecret import PushSecret
from eso_operator.secretstore.finalizer import finalizer_patch, held
from eso_operator.secretstore.kinds import StoreKind
from eso_operator.stores.access import check_namespace
from eso_operator.stores.loading import identity
from eso_operator.stores.snapshot import Objects, Snapshot
from eso_operator.stores.target import ResolutionError
from eso_wire.values import KindId
from kuberun.cache import Store
from kuberun.client import Client
from kuberun.controller import After, Done, Outcome, Retry
from kuberun.errors import ApiError, Conflict, NotFound
from kuberun.meta import Malformed, ObjectKey

PushSecrets = Callable[[StoreKind, ObjectKey], Sequence[PushSecret]]
"""The PushSecrets that may hold a store."""

_LOOK_AGAIN: Final = 30.0
"""Seconds, while a deletion waits: labels of namespaces, which may decide, are not waited for."""


class StoreHolder:
    """Reconciles the finalizers of the stores of one kind."""

    def __init__(
        self,
        kind: StoreKind,
        stores: Store[Any],
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

    async def reconcile(self, key: ObjectKey) -> Outcome:
        store = self._stores.get(key)
        if store is None or isinstance(store, Malformed) or store.spec.controller not in ("", self._controller_class):
            return Done()
        holding = held(self._kind, store.metadata, self._push_secrets(self._kind, key), self._permits(store))
        patch = finalizer_patch(store.metadata, holding=holding)
        try:
            if patch is not None:
                await self._client.merge_patch(self._kind.kind, key, patch)
        except NotFound:
            return Done()
        except Conflict:
            return Retry("the store changed meanwhile")
        except ApiError as error:
            return Retry(f"finalizer not written: the API server answered {error.reason or error.code}")
        waits = holding and store.metadata.deletion_timestamp is not None
        return After(_LOOK_AGAIN, "a deletion waits") if waits else Done()

    def _permits(self, store: Any) -> Callable[[str], bool]:
        """Whether the conditions of a cluster-scoped store let a namespace use it."""
        resource = self._kind.resource
        ref = identity(KindId(resource.group, resource.version, resource.kind), store)

        def permits(namespace: str) -> bool:
            try:
                check_namespace(getattr(store.spec, "conditions", ()), namespace, ref, Snapshot(self._objects))
            except ResolutionError:
                return False
            return True

        return permits
