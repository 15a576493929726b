"""Objects of one kind as a store, read only: a remote key is the name of an object, a property a path in its JSON.

namespaced store        NAME             in the namespace of the store
cluster-scoped store    NAMESPACE/NAME   or NAME, if the kind is cluster-scoped
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import msgspec
import re2

from eso_api.stores.kubernetes import CrdProvider, CrdResource, CrdRule, CrdWhitelist
from eso_api.values import SecretBytes
from eso_provider_kubernetes.changes import Changes
from eso_provider_kubernetes.clusterstore import (
    PAGE_SIZE,
    AnyClusterStore,
    ClusterStore,
    Request,
    checked_name,
    review_access,
)
from eso_sdk.errors import invalid_config, invalid_request, property_not_found
from eso_sdk.extract import property_names, property_of
from eso_sdk.matching import Matcher
from eso_sdk.provider import Check, Value, finds, reads, store_kind
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import ChangeEvent, FindQuery, Found, Heartbeat, RemoteRef, Validation, ValueMetadata, WatchItem
from kubebase.meta import JsonObject, Kind, Malformed, ObjectKey, Resource, key_of, metadata_of, raw, version_of
from kubebase.patterns import problem_in
from kuberun.errors import ApiError, NotFound
from kuberun.requests import Selection

# --- The whitelist of a store `crd`: the reads that it permits. Pure -------------------------------------------------


_OPTIONS: Final = re2.Options()
_OPTIONS.max_mem = 8 * 1024 * 1024
_OPTIONS.log_errors = False


class Whitelist:
    """The rules of a store. Without rules every read is permitted; otherwise one rule has to match."""

    def __init__(self, config: CrdWhitelist) -> None:
        self._rules = [_Rule(rule, f"/whitelist/rules/{at}") for at, rule in enumerate(config.rules)]

    def allows(self, key: ObjectKey, prop: str) -> bool:
        return not self._rules or any(rule.matches(key, prop) for rule in self._rules)

    def check(self, key: ObjectKey, prop: str) -> None:
        if not self.allows(key, prop):
            what = f'property "{prop}" of "{key}"' if prop else f'"{key}" as a whole'
            raise ProviderError(
                ErrorReason.PERMISSION_DENIED,
                f"no rule of the store's whitelist allows to read {what}; add one, or name an allowed property",
            )


class _Rule:
    def __init__(self, rule: CrdRule, pointer: str) -> None:
        self._name = _compiled(rule.name, f"{pointer}/name")
        self._namespace = _compiled(rule.namespace, f"{pointer}/namespace")
        self._properties = [_compiled(each, f"{pointer}/properties/{at}") for at, each in enumerate(rule.properties)]

    def matches(self, key: ObjectKey, prop: str) -> bool:
        if self._name.search(key.name) is None or self._namespace.search(key.namespace) is None:
            return False
        return not self._properties or (bool(prop) and any(each.search(prop) for each in self._properties))


def _compiled(pattern: str, pointer: str) -> Any:
    try:
        return re2.compile(pattern, _OPTIONS)
    except re2.error as failed:
        raise invalid_config(pointer, f"must be a regular expression (RE2): {problem_in(failed)}") from None


# --- Discovery of the resource of a kind: its plural and scope, from the API server ----------------------------------


_GROUP: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_VERSION: Final = re.compile(r"[a-z][a-z0-9]*")
_NOTHING_READABLE: Final = "does not serve this kind for reading; check group, version and kind"


class _Served(msgspec.Struct):
    name: str
    kind: str = ""
    namespaced: bool = True
    verbs: list[str] = []


class _ResourceList(msgspec.Struct):
    resources: list[_Served] = []


def check_resource(resource: CrdResource) -> None:
    """Reject an invalid kind, and Secrets, which have a store of their own."""
    if resource.group and not _GROUP.fullmatch(resource.group):
        raise invalid_config("/resource/group", "must be an API group, or empty for the core group")
    if not _VERSION.fullmatch(resource.version):
        raise invalid_config("/resource/version", "must be an API version like v1")
    if not resource.kind:
        raise invalid_config("/resource/kind", "must be set")
    if not resource.group and resource.kind.lower() == "secret":
        raise invalid_config("/resource/kind", "must not be Secret; read Secrets with the provider kubernetes")


async def discover(store: AnyClusterStore, wanted: CrdResource) -> Resource:
    """Return the resource of this kind."""
    unknown = Resource(wanted.group, wanted.version, wanted.kind.lower(), wanted.kind)
    try:
        with store.observe("Discovery"):
            listed = await store.client.read(unknown.root, _ResourceList)
    except NotFound:
        raise invalid_config("/resource", f"the API server {_NOTHING_READABLE}") from None
    except ApiError as error:
        raise store.failure(error, Request("discover", unknown)) from None
    for served in listed.resources:
        if served.kind == wanted.kind and "/" not in served.name and "get" in served.verbs:
            return Resource(wanted.group, wanted.version, served.name, wanted.kind, served.namespaced)
    raise invalid_config("/resource", f"the API server {_NOTHING_READABLE}")


# --- Objects of one kind as a store, read only -----------------------------------------------------------------------


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

    def __init__(self, store: CustomResourceStore, resource: Resource, namespace: str) -> None:
        if namespace and not resource.namespaced:
            raise ProviderError(
                ErrorReason.CONFIG_INVALID,
                f"/resource: {resource.kind} is cluster-scoped; only a cluster-scoped store can read it",
            )
        self.resource = resource
        self.kind: Kind[JsonObject] = raw(resource)
        self.namespace = namespace
        """Empty for all namespaces."""
        self.changes = Changes(store, resource, namespace, key_of=self.text)

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
