"""Secrets of a cluster as a store: a remote key is the name of a Secret, a property is one of its keys."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final, TypeVar

from eso_api.stores.kubernetes import ANY_NAMESPACE, KubernetesProvider
from eso_api.values import SecretBytes
from eso_provider_kubernetes.changes import Changes
from eso_provider_kubernetes.clusterstore import PAGE_SIZE, ClusterStore, Request, checked_name, review_access
from eso_provider_kubernetes.secretwrites import (
    SECRET_KIND,
    SECRETS,
    Pushing,
    Secret,
    SecretWriter,
    json_text,
    map_of,
    read_metadata,
    value_of,
)
from eso_sdk.errors import invalid_request
from eso_sdk.matching import Matcher
from eso_sdk.provider import Check, Pushed, Value, finds, pushes, reads, store_kind
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import (
    ChangeEvent,
    DeleteItem,
    FindQuery,
    Found,
    Heartbeat,
    PushItem,
    RemoteRef,
    SourceSecret,
    Validation,
    ValueMetadata,
    WatchItem,
)
from kubebase.meta import Malformed, ObjectKey, metadata_of
from kuberun.requests import Selection

I = TypeVar("I", PushItem, DeleteItem)  # noqa: E741 - an item
R = TypeVar("R", Pushed, bool)

_SIDE_BY_SIDE: Final = 16


@store_kind(
    kind="Kubernetes", plural="kubernetes", cluster="ClusterKubernetes", v1_key="kubernetes", concurrency=_SIDE_BY_SIDE
)
class KubernetesStore(ClusterStore[KubernetesProvider]):
    """Secrets of this or another cluster."""

    async def open(self) -> None:
        await super().open()
        self._namespace = self.config.remote_namespace
        self._reading = asyncio.Semaphore(_SIDE_BY_SIDE)
        self._writer = SecretWriter(self)
        self._changes = Changes(self, SECRETS, self._namespace, key_of=lambda key: key.name)

    async def validate(self) -> Validation:
        return await review_access(self, SECRETS, self._namespace)

    # --- reading -----------------------------------------------------------------------------------------------------

    @reads("metadata", "not_found")
    async def get_many(self, refs: Sequence[RemoteRef]) -> Sequence[Value | ProviderError]:
        """Read each Secret once, however many of its properties are requested."""
        names = list(dict.fromkeys(ref.key for ref in refs))
        found = dict(zip(names, await asyncio.gather(*map(self._read, names)), strict=True))
        return [await _value_or_error(found[ref.key], ref) for ref in refs]

    async def get_map(self, ref: RemoteRef) -> dict[str, bytes]:
        return await map_of(await self._secret(ref.key), ref)

    async def check(self, ref: RemoteRef) -> Check:
        if ref.property:
            secret = await self._secret(ref.key)
            return Check(exists=ref.property in secret.values, version=secret.metadata.resource_version)
        with self.asking("GetSecret", Request("get", SECRETS, self._namespace, checked_name(ref.key))):
            metadata = await self.client.get(metadata_of(SECRETS), ObjectKey(self._namespace, ref.key))
        return Check(exists=True, version=metadata.metadata.resource_version)

    @finds("name", "tags", "path")
    async def find(self, query: FindQuery) -> AsyncIterator[Found]:
        """Find by labels if the query has tags, else by name.

        Secrets have no paths. Manifests for the operator in Go may set one, which never had an effect.
        """
        if not query.tags and not query.name_regexp:
            raise invalid_request("find needs name.regexp or tags")
        matcher = Matcher(FindQuery(name_regexp="" if query.tags else query.name_regexp))
        selector = ",".join(f"{name}={value}" for name, value in sorted(query.tags.items()))
        request = Request("list", SECRETS, self._namespace)
        pages = self.client.pages(SECRET_KIND, Selection(self._namespace, label_selector=selector), size=PAGE_SIZE)
        while True:
            with self.asking("ListSecrets", request):
                page = await anext(pages, None)
            if page is None:
                return
            for item in page.items:
                secret = _decoded(item)
                if await matcher.accepts(secret.metadata.name):
                    value = SecretBytes(json_text(secret.values))
                    yield Found(secret.metadata.name, value, _metadata(secret))

    async def _read(self, name: str) -> Secret | ProviderError:
        async with self._reading:
            try:
                return await self._secret(name)
            except ProviderError as error:
                return error

    async def _secret(self, name: str) -> Secret:
        with self.asking("GetSecret", Request("get", SECRETS, self._namespace, checked_name(name))):
            return await self.client.get(SECRET_KIND, ObjectKey(self._namespace, name))

    # --- writing -----------------------------------------------------------------------------------------------------

    @pushes("whole_secret", "if_absent", "if_version")
    async def push_many(self, items: Sequence[PushItem], source: SourceSecret) -> Sequence[Pushed | ProviderError]:
        """Write all items of one remote key, each namespace in one write."""

        async def write(key: ObjectKey, group: Sequence[PushItem]) -> Sequence[Pushed | ProviderError]:
            metadata = [read_metadata(item.provider_metadata, key.name) for item in group]
            pushings = [Pushing(*pair) for pair in zip(group, metadata, strict=True)]
            return await self._writer.push(key, pushings, source, guarded=key.namespace != self._namespace)

        return await self._by_namespace(items, write)

    async def delete_many(self, items: Sequence[DeleteItem]) -> Sequence[bool | ProviderError]:
        """Delete keys of one Secret in one write, or the Secret itself."""

        async def delete(key: ObjectKey, group: Sequence[DeleteItem]) -> Sequence[bool | ProviderError]:
            return await self._writer.delete(key, group, guarded=key.namespace != self._namespace)

        return await self._by_namespace(items, delete)

    async def _by_namespace(
        self, items: Sequence[I], work: Callable[[ObjectKey, Sequence[I]], Awaitable[Sequence[R | ProviderError]]]
    ) -> Sequence[R | ProviderError]:
        """Process the items of each namespace together; an item with invalid metadata fails alone."""
        results: dict[str, R | ProviderError] = {}
        groups: dict[str, list[I]] = {}
        for item in items:
            try:
                groups.setdefault(self._target_namespace(item), []).append(item)
            except ProviderError as error:
                results[item.item_id] = error
        for namespace, group in groups.items():
            outcomes = await work(ObjectKey(namespace, checked_name(group[0].remote.key)), group)
            results |= {item.item_id: outcome for item, outcome in zip(group, outcomes, strict=True)}
        return [results[item.item_id] for item in items]

    def _target_namespace(self, item: PushItem | DeleteItem) -> str:
        namespace = read_metadata(item.provider_metadata, item.remote.key).remote_namespace
        if not namespace:
            return self._namespace
        if self.call.store.namespace:
            raise invalid_request(
                f'metadata of "{item.remote.key}": remoteNamespace may be set only with a cluster-scoped store;'
                " remove it, or use a ClusterSecretStore"
            )
        if namespace != self._namespace and not self._allows(namespace):
            raise invalid_request(
                f'metadata of "{item.remote.key}": {self.holder.kind} "{self.holder.name}" does not allow pushes to'
                f' namespace "{namespace}"; remove remoteNamespace, or let the administrator add the namespace to'
                " its allowedRemoteNamespaces"
            )
        return checked_name(namespace)

    def _allows(self, namespace: str) -> bool:
        allowed = self.config.allowed_remote_namespaces
        return namespace in allowed or ANY_NAMESPACE in allowed

    # --- changes -----------------------------------------------------------------------------------------------------

    async def subscribe(self, items: Sequence[WatchItem], resume_token: str) -> AsyncIterator[ChangeEvent | Heartbeat]:
        async for event in self._changes.follow(items, resume_token):
            yield event


async def _value_or_error(found: Secret | ProviderError, ref: RemoteRef) -> Value | ProviderError:
    if isinstance(found, ProviderError):
        return found
    try:
        return Value(SecretBytes(await value_of(found, ref)), _metadata(found))
    except ProviderError as error:
        return error


def _metadata(secret: Secret) -> ValueMetadata:
    return ValueMetadata(provider_version=secret.metadata.resource_version)


def _decoded(item: Secret | Malformed) -> Secret:
    if isinstance(item, Malformed):
        what = f'Secret "{item.key.name}" cannot be read: {item.error}'
        raise ProviderError(ErrorReason.BACKEND_ERROR, what)
    return item
