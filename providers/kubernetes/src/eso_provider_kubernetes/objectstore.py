"""Objects of one kind as a store, read only: a remote key is the name of an object, a property a path in its JSON.

namespaced store        NAME             in the namespace of the store
cluster-scoped store    NAMESPACE/NAME   or NAME, if the kind is cluster-scoped
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final

import msgspec

from eso_api.stores.kubernetes import CrdProvider
from eso_api.values import SecretBytes
from eso_provider_kubernetes.access import review_access
from eso_provider_kubernetes.changes import Changes
from eso_provider_kubernetes.clusterstore import PAGE_SIZE, ClusterStore
from eso_provider_kubernetes.discovery import check_resource, discover
from eso_provider_kubernetes.failures import Request
from eso_provider_kubernetes.names import checked_name
from eso_provider_kubernetes.whitelist import Whitelist
from eso_sdk.errors import invalid_request, property_not_found
from eso_sdk.extract import property_names, property_of
from eso_sdk.matching import Matcher
from eso_sdk.provider import Check, Value, finds, reads, store_kind
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import (
    ChangeEvent,
    FindQuery,
    Found,
    Heartbeat,
    RemoteRef,
    Validation,
    ValueMetadata,
    WatchItem,
)
from kubebase.meta import JsonObject, Kind, Malformed, ObjectKey, Resource, key_of, metadata_of, raw, version_of
from kuberun.requests import Selection


@store_kind(
    kind="CustomResource", plural="customresources", cluster="ClusterCustomResource", v1_key="crd", concurrency=16
)
class CustomResourceStore(ClusterStore[CrdProvider]):
    """Objects of one kind of this or another cluster."""

    @classmethod
    def check_config(cls, config: CrdProvider) -> tuple[str, ...]:
        check_resource(config.resource)
        Whitelist(config.whitelist)
        return super().check_config(config)

    async def open(self) -> None:
        await super().open()
        self._whitelist = Whitelist(self.config.whitelist)
        self._discovering = asyncio.Lock()
        self._found: _Objects | None = None

    async def validate(self) -> Validation:
        objects = await self._objects()
        return await review_access(self, objects.resource, objects.namespace)

    # --- reading -----------------------------------------------------------------------------------------------------

    @reads("not_found")
    async def get(self, ref: RemoteRef) -> Value:
        objects = await self._objects()
        key = objects.key(ref.key)
        self._whitelist.check(key, ref.property)
        with self.asking(f"Get{objects.resource.kind}", Request("get", objects.resource, key.namespace, key.name)):
            found = await self.client.get(objects.kind, key)
        text = _json(found)
        value = await property_of(text, ref.property, ref.key) if ref.property else text
        if value is None:
            raise property_not_found(ref.key, ref.property, known=property_names(text, ref.property))
        return Value.of(value, version=version_of(found))

    async def check(self, ref: RemoteRef) -> Check:
        if ref.property:
            try:
                return Check(exists=True, version=(await self.get(ref)).metadata.provider_version)
            except ProviderError as error:
                if error.is_not_found:
                    return Check(exists=False)
                raise
        objects = await self._objects()
        key = objects.key(ref.key)
        self._whitelist.check(key, "")
        with self.asking(f"Get{objects.resource.kind}", Request("get", objects.resource, key.namespace, key.name)):
            found = await self.client.get(metadata_of(objects.resource), key)
        return Check(exists=True, version=found.metadata.resource_version)

    @finds("name", "tags")
    async def find(self, query: FindQuery) -> AsyncIterator[Found]:
        """Find whole objects, so only those that the whitelist permits as a whole."""
        if not query.tags and not query.name_regexp:
            raise invalid_request("find needs name.regexp or tags")
        objects = await self._objects()
        matcher = Matcher(FindQuery() if query.tags else query)
        selector = ",".join(f"{name}={value}" for name, value in sorted(query.tags.items()))
        selection = Selection(objects.namespace, label_selector=selector)
        pages = self.client.pages(objects.kind, selection, size=PAGE_SIZE)
        while True:
            with self.asking(f"List{objects.resource.kind}s", Request("list", objects.resource, objects.namespace)):
                page = await anext(pages, None)
            if page is None:
                return
            for item in page.items:
                key = key_of(item)
                if await matcher.accepts(key.name) and self._whitelist.allows(key, ""):
                    yield _found(item, objects.text(key))

    async def subscribe(self, items: Sequence[WatchItem], resume_token: str) -> AsyncIterator[ChangeEvent | Heartbeat]:
        objects = await self._objects()
        async for event in objects.changes.follow(items, resume_token):
            yield event

    async def _objects(self) -> _Objects:
        """Return the discovered resource. It is discovered once for the session, and again after a failure."""
        async with self._discovering:
            if self._found is None:
                resource = await discover(self, self.config.resource)
                self._found = _Objects(self, resource, self.holder.namespace)
            return self._found


class _Objects:
    """The resource behind the kind, and what keys mean in it."""

    def __init__(self, store: CustomResourceStore, resource: Resource, home: str) -> None:
        if home and not resource.namespaced:
            raise ProviderError(
                ErrorReason.CONFIG_INVALID,
                f"/resource: {resource.kind} is cluster-scoped; only a cluster-scoped store can read it",
            )
        self.resource = resource
        self.kind: Kind[JsonObject] = raw(resource)
        self.namespace = home
        """Empty for all namespaces."""
        self.changes = Changes(store, resource, home, key_of=self.text)

    def key(self, text: str) -> ObjectKey:
        """Return the object that a remote key names."""
        namespace, slash, name = text.rpartition("/")
        split = not self.namespace and self.resource.namespaced
        if split != bool(slash):
            form = "NAMESPACE/NAME" if split else "NAME"
            raise invalid_request(f'"{text}" does not name a {self.resource.kind} of this store; write {form}')
        return ObjectKey(self.namespace or (checked_name(namespace) if split else ""), checked_name(name))

    def text(self, key: ObjectKey) -> str:
        """Return the remote key of an object."""
        return f"{key.namespace}/{key.name}" if not self.namespace and key.namespace else key.name


def _found(item: JsonObject | Malformed, key: str) -> Found:
    if isinstance(item, Malformed):
        raise ProviderError(ErrorReason.BACKEND_ERROR, f'"{key}" cannot be read: {item.error}')
    return Found(key, SecretBytes(_json(item)), ValueMetadata(provider_version=version_of(item)))


_BOOKKEEPING: Final = "managedFields"


def _json(document: JsonObject) -> bytes:
    """Return the object as JSON without `managedFields`."""
    metadata = {name: value for name, value in (document.get("metadata") or {}).items() if name != _BOOKKEEPING}
    return msgspec.json.encode({**document, "metadata": metadata})
