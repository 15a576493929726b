"""The stores of a PushSecret, by name or by label, and their keys in the status.

    v1 stores and Providers     Kind/name            as in the Go operator
    other kinds                 group/Kind/name

Namespaced stores are always those of the PushSecret's own namespace. Stores that belong to another operator, and stores
that are being deleted, are skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from eso_api.pushsecret import PushSecret, PushSecretSpec, PushStoreRef
from eso_api.references import CORE_GROUP, SelectorError, StoreRef
from eso_api.validation.pushsecret import data_to_store_problems
from eso_operator.controllers.pushsecret.records import split_key
from eso_operator.controllers.pushsecret.snapshot import Chosen, NoChoice
from eso_operator.stores.inputs import ClusterView as Cluster
from eso_operator.stores.inputs import Scope
from eso_operator.stores.loading import controller_named, sharing
from eso_operator.stores.reference import Picked, check_gate, key_of, normalise, pick
from eso_operator.stores.resolved import Reason, ResolutionError
from eso_operator.stores.resolver import WatchedObjects
from eso_wire.values import KindId, ObjectRef
from kubebase.meta import ObjectKey, meta_of
from kuberun.client import Client
from kuberun.errors import ApiError
from kuberun.requests import discovery_path

_MAX_STORES: Final = 1000


class StoreChooser:
    """Chooses stores. The process has one."""

    def __init__(
        self, objects: WatchedObjects, client: Client, controller_class: str, *, v2_stores: bool = True
    ) -> None:
        self._objects = objects
        self._client = client
        self._controller_class = controller_class
        self._v2_stores = v2_stores

    async def choose(self, push: PushSecret) -> tuple[Chosen, ...] | NoChoice:
        """Return the stores to push to, each once, in the order of their keys."""
        found: dict[str, Chosen] = {}
        for index, ref in enumerate(push.spec.secret_store_refs):
            path = f"spec.secretStoreRefs[{index}]"
            try:
                picked = await self._picked(ref, push)
                found |= {store.key: store for store in self._meant(ref, picked, push.metadata.namespace)}
            except ResolutionError as error:
                return NoChoice(path, error.reason.value, error.message)
            except SelectorError as error:
                return _broken_selector(path, error)
        if len(found) > _MAX_STORES:
            message = f"{len(found)} stores match; at most {_MAX_STORES} can be pushed to: narrow the selectors"
            return NoChoice("spec.secretStoreRefs", "TooManyStores", message)
        return tuple(found[key] for key in sorted(found))

    async def by_key(self, key: str, push: PushSecret) -> StoreRef:
        """Return the store of a key of the status; it may no longer exist."""
        group, kind, name = split_key(key)
        if group == CORE_GROUP:
            return StoreRef(kind=kind, name=name)
        versions = [ref.api_version for ref in push.spec.secret_store_refs if ref.group_kind == (group, kind)]
        return StoreRef(api_version=versions[0] if versions else await self._served(group), kind=kind, name=name)

    async def _served(self, group: str) -> str:
        """Return the preferred version of a group; if the API server has none, one that resolves to nothing."""
        try:
            answer = await self._client.read(discovery_path(group), _Group)
        except (ApiError, ValueError):
            return f"{group}/v1"
        return answer.preferred_version.group_version or f"{group}/v1"

    async def _picked(self, ref: PushStoreRef, push: PushSecret) -> Picked:
        """Return the kind of a reference; a provider's own kind is watched from now on."""
        named = StoreRef(api_version=ref.api_version, kind=ref.kind, name=ref.name or "any")
        reference = normalise(named, ObjectRef(namespace=push.metadata.namespace))
        if not ref.chooses:
            message = f"the reference to a {reference.kind.kind} has neither name nor labelSelector: set one"
            raise ResolutionError(Reason.NOT_FOUND, message, subject=reference.subject)
        check_gate(reference, v2_stores=self._v2_stores)
        try:
            return pick(reference, Cluster(self._objects))
        except ResolutionError as error:
            if error.unwatched is None or not await self._objects.include(error.unwatched):
                raise
        return pick(reference, Cluster(self._objects))

    def _meant(self, ref: PushStoreRef, picked: Picked, namespace: str) -> Iterator[Chosen]:
        where = "" if picked.scope is Scope.CLUSTER else namespace
        for obj in self._candidates(ref, picked.kind, where):
            meta = meta_of(obj)
            if meta.deletion_timestamp is None and controller_named(picked, obj) in ("", self._controller_class):
                store = StoreRef(api_version=ref.api_version, kind=picked.kind.kind, name=meta.name)
                yield Chosen(store, picked.kind, key_of(picked.kind, meta.name), meta.uid, dict(meta.labels))

    def _candidates(self, ref: PushStoreRef, kind: KindId, namespace: str) -> Iterable[Any]:
        if ref.label_selector is not None:
            return ref.label_selector.among(self._objects.list(kind, namespace), lambda obj: meta_of(obj).labels)
        obj = self._objects.get(kind, ObjectKey(namespace, ref.name))
        if obj is None:
            where = f" in namespace {namespace}" if namespace else ""
            message = f"there is no {kind.kind} {ref.name}{where}: create it, or correct the reference{sharing(kind)}"
            subject = ObjectRef(kind.api_version, kind.kind, namespace, ref.name)
            raise ResolutionError(Reason.NOT_FOUND, message, subject=subject)
        return [obj]


# --- pure -------------------------------------------------------------------------------------------------------------


def targets_store(ref: PushStoreRef, store: Chosen) -> bool:
    """Return whether a `storeRef` of dataTo refers to this store. Raises SelectorError."""
    if ref.group_kind != (store.kind.group, store.kind.kind):
        return False
    if ref.name:
        return ref.name == store.ref.name
    return ref.label_selector is not None and ref.label_selector.matches(store.labels)


def wrong_data_to(spec: PushSecretSpec) -> NoChoice | None:
    """Return the first dataTo whose storeRef cannot match any of `secretStoreRefs`."""
    wrong = next(iter(data_to_store_problems(spec)), None)
    return None if wrong is None else NoChoice(wrong.path, "InvalidSpec", wrong.message)


def idle_data_to(spec: PushSecretSpec, stores: Iterable[Chosen]) -> NoChoice | None:
    """Return the first dataTo that selects stores by label and matches none."""
    known = tuple(stores)
    for index, rule in enumerate(spec.data_to):
        path, ref = f"spec.dataTo[{index}].storeRef", rule.store_ref
        if ref is None or ref.name or ref.label_selector is None:
            continue
        try:
            ref.label_selector.check()
        except SelectorError as error:
            return _broken_selector(path, error)
        if any(targets_store(ref, store) for store in known):
            continue
        return NoChoice(path, "StoreNotFound", f"its labelSelector matches no {ref.kind} of spec.secretStoreRefs")
    return None


def _broken_selector(path: str, error: SelectorError) -> NoChoice:
    return NoChoice(path, "InvalidSelector", f"labelSelector: {error}")


class _Version(msgspec.Struct, rename="camel"):
    group_version: str = ""


class _Group(msgspec.Struct, rename="camel"):
    preferred_version: _Version = msgspec.field(default_factory=_Version)
