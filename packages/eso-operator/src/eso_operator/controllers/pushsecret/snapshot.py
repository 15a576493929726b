"""What one reconcile of a PushSecret reads: its object, its stores, its sources. Nothing is written here.

`SnapshotReader.gather` returns the frozen `PushSnapshot` that the checks of `checks.py` use: the object, metadata of
its sources and stores from the caches, and the time. Values are read later and live, by `SourceReader`, once the checks
found that a push is due.

PushSources are Secrets of the PushSecret's own namespace, by name or by label, or generated values. Stores are named or
selected by label; namespaced ones are always those of the PushSecret's own namespace. Stores that belong to another
operator, and stores that are being deleted, are skipped.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import msgspec

from eso_api.common import READY
from eso_api.externalsecret import ExternalSecret
from eso_api.pushsecret import PUSH_SECRET, PushSecret, PushStoreRef
from eso_api.references import CORE_GROUP, GeneratorRef, SelectorError, StoreRef
from eso_api.values import SecretBytes
from eso_operator.controllers.base import api_error_text
from eso_operator.controllers.pushsecret.ownership import Writes
from eso_operator.controllers.pushsecret.record import LastPush, split_key
from eso_operator.controllers.refresh import (
    SHORTEST_INTERVAL,
    current_version,
    interval_note,
    moment,
    with_min_interval,
)
from eso_operator.dependencies import ANY_PROVIDER, Dependency, on_object
from eso_operator.generators.ledger import GeneratedValues
from eso_operator.generators.source import GeneratorSource
from eso_operator.providers.bytelimits import HeldBytes
from eso_operator.providers.errors import cause_of
from eso_operator.sources.fetch import Failure
from eso_operator.sources.templates import VersionOf
from eso_operator.stores.loading import Picked, check_gate, controller_named, key_of, normalise, pick, sharing
from eso_operator.stores.resolved import ClusterView, Reason, ResolutionError, Scope, WatchedObjects
from eso_wire.errors import ProviderError, RetryClass
from eso_wire.values import KindId, ObjectRef, SourceSecret
from kubebase.clock import parse_rfc3339
from kubebase.meta import JsonObject, Object, ObjectKey, Resource, meta_of, raw
from kuberun.cache import Cache
from kuberun.client import Client
from kuberun.errors import ApiError, NotFound
from kuberun.requests import discovery_path
from kuberun.status import is_false, is_true

SECRETS: Final = Resource("", "v1", "secrets", "Secret")
SOURCE_DELETED: Final = "SourceDeleted"
MAX_SOURCES: Final = 500
BY_NAMESPACE: Final = "namespace"
"""The index that every informer of the operator has."""

_KIND: Final = raw(SECRETS)
_MAX_STORES: Final = 1000
_MADE_SECONDS: Final = 10.0
"""A source that an ExternalSecret makes is looked for again after this time, if it does not appear before."""
_MANIFEST_COPY: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""The annotation in which kubectl stores a copy of the whole manifest, values included: it never leaves the cluster."""


def refreshed_at(push: PushSecret) -> datetime | None:
    """Return the last refresh time of the status."""
    return moment(push.status.refresh_time)


def changed(push: PushSecret) -> bool:
    """Return whether the object changed since the last push."""
    return push.status.synced_resource_version != current_version(push)


@dataclass(frozen=True, slots=True)
class PushStore:
    """A store that is pushed to. `key` is its name in `status.syncedPushSecrets`."""

    ref: StoreRef
    kind: KindId
    key: str
    uid: str = ""
    labels: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.kind.kind} {self.ref.name}"


@dataclass(frozen=True, slots=True)
class SourceVersion:
    """A source Secret with its cached metadata."""

    name: str
    uid: str
    version: str
    created_at: datetime | None

    @property
    def mark(self) -> str:
        return f"{self.name} {self.uid} {self.version}"


@dataclass(frozen=True, slots=True)
class PushSnapshot:
    """`remembered` is None for an object that this process has not pushed yet."""

    push: PushSecret
    now: datetime
    remembered: LastPush | None
    sources: tuple[SourceVersion, ...]
    stores: tuple[PushStore, ...] | Failure
    """Why they cannot be determined, if so."""
    new_templates: bool = False
    """True if a template that the last push read from another object has changed."""
    unrecorded: bool = False
    """Something was pushed, and the status could not be written since."""
    interval_note: str = ""
    """The note about its refresh interval."""
    freed: bool = False
    """True if another PushSecret overwrote a value and no longer pushes there."""
    version: str = ""
    """The version of the object that is pushed, if `push` is a newer state of it."""

    @property
    def store_marks(self) -> frozenset[str]:
        stores = () if isinstance(self.stores, Failure) else self.stores
        return frozenset(f"{store.key} {store.uid}" for store in stores)

    @property
    def source_marks(self) -> frozenset[str]:
        return frozenset(source.mark for source in self.sources)


# --- sources ----------------------------------------------------------------------------------------------------------


class SourceError(Exception):
    """There is nothing to push. The message names the source and the reason, never a value."""

    def __init__(
        self,
        reason: str,
        message: str,
        *,
        retry: RetryClass = RetryClass.BACKOFF,
        after: float = 0.0,
        waits: float = 0.0,
    ) -> None:
        super().__init__(message)
        self.failure = Failure("spec.selector", reason, message, retry=retry, retry_after=after, waits=waits)


class SourceGoneError(SourceError):
    """The Secret, or every Secret that was selected, is not there."""


@dataclass(frozen=True, slots=True)
class PushSource:
    """One Secret, or generated values. `mark` shows whether it is still the same one."""

    name: str
    mark: str
    about: SourceSecret
    values: Mapping[str, SecretBytes] = field(repr=False)


@dataclass(frozen=True, slots=True)
class PushSources:
    """All sources of a PushSecret, in the order of names."""

    found: tuple[PushSource, ...]
    made: tuple[GeneratedValues, ...] = ()
    depends_on: frozenset[Dependency] = frozenset()

    @property
    def marks(self) -> frozenset[str]:
        return frozenset(source.mark for source in self.found if not self.made)

    @property
    def renew_within(self) -> float | None:
        return min((made.refresh_within for made in self.made if made.refresh_within is not None), default=None)


@dataclass(frozen=True, slots=True)
class SourceReader:
    """Reads sources. The process has one."""

    client: Client
    secrets: Cache[Object]
    """Metadata only."""
    generators: GeneratorSource
    maker_of: Callable[[str, str], ExternalSecret | None]
    """Returns the ExternalSecret that makes a Secret, by the namespace and name of the Secret."""

    def versions(self, push: PushSecret) -> tuple[SourceVersion, ...]:
        """Return the source Secrets with their cached metadata."""
        source = push.spec.selector.secret
        if source is None:
            return ()
        if source.name:
            found = self.secrets.get(ObjectKey(push.metadata.namespace, source.name))
            return (_version_of(found),) if isinstance(found, Object) else ()
        try:
            return tuple(_version_of(each) for each in self._selected(push))
        except SelectorError:
            return ()

    async def read(self, push: PushSecret, held: HeldBytes) -> PushSources:
        """Return the values. Raises SourceError."""
        selector = push.spec.selector
        if selector.generator_ref is not None:
            return await self._generated(push, selector.generator_ref, held)
        if selector.secret is None or not selector.secret.chooses:
            raise SourceError("InvalidSpec", "spec.selector must name a Secret, select Secrets, or name a generator")
        if selector.secret.name:
            return PushSources((await self._one(push.metadata.namespace, selector.secret.name),))
        return PushSources(await self._many(push))

    async def _one(self, namespace: str, name: str) -> PushSource:
        try:
            return _source(await self.client.get(_KIND, ObjectKey(namespace, name)))
        except NotFound:
            raise self._gone(namespace, name) from None
        except ApiError as problem:
            message = f"Secret {namespace}/{name} cannot be read: {api_error_text(problem)}"
            raise SourceError("SecretUnreadable", message) from None

    def _gone(self, namespace: str, name: str) -> SourceGoneError:
        """Return the error of a Secret that does not exist. One that an ExternalSecret is about to make is awaited."""
        maker = self.maker_of(namespace, name)
        if maker is None or is_true(maker.status.conditions, READY):
            message = f"Secret {namespace}/{name} does not exist: create it, or correct spec.selector"
            return SourceGoneError("SecretNotFound", message)
        made = f"Secret {namespace}/{name} does not exist yet: ExternalSecret {maker.metadata.name} makes it"
        if is_false(maker.status.conditions, READY):
            return SourceGoneError("SecretNotFound", f"{made}, and is not ready; its condition says why")
        return SourceGoneError("SecretNotFound", made, waits=_MADE_SECONDS)

    async def _many(self, push: PushSecret) -> tuple[PushSource, ...]:
        namespace = push.metadata.namespace
        try:
            names = sorted(each.metadata.name for each in self._selected(push))
        except SelectorError as problem:
            raise SourceError("InvalidSelector", f"spec.selector.secret.selector: {problem}") from None
        if len(names) > MAX_SOURCES:
            message = f"{len(names)} Secrets match spec.selector.secret.selector; at most {MAX_SOURCES} can be pushed"
            raise SourceError("TooManySecrets", message)
        found = []
        for name in names:
            try:
                found.append(await self._one(namespace, name))
            except SourceGoneError:
                continue  # deleted since it was listed
        if not found:
            raise SourceGoneError("SecretNotFound", f"no Secret of {namespace} matches spec.selector.secret.selector")
        return tuple(found)

    async def _generated(self, push: PushSecret, ref: GeneratorRef, held: HeldBytes) -> PushSources:
        try:
            made = await self.generators.generate(caller_of(push), 0, ref, held)
        except ResolutionError as error:
            raise SourceError(error.reason.value, error.message, retry=error.retry, waits=error.waits) from error
        except ProviderError as error:
            raise SourceError(cause_of(error), error.message, retry=error.retry, after=error.retry_after) from error
        name = f"{ref.kind} {ref.name}"
        return PushSources((PushSource(name, name, SourceSecret(), made.values),), (made,), made.depends_on)

    def _selected(self, push: PushSecret) -> list[Object]:
        source = push.spec.selector.secret
        if source is None or source.selector is None:
            return []
        found = self.secrets.find(BY_NAMESPACE, push.metadata.namespace)
        return source.selector.among(found, lambda secret: secret.metadata.labels)


def caller_of(push: PushSecret) -> ObjectRef:
    """Return the identity of the PushSecret for providers and the resolver."""
    meta = push.metadata
    version = PUSH_SECRET.resource().api_version
    return ObjectRef(version, "PushSecret", meta.namespace, meta.name, meta.uid, meta.generation)


def missed(error: SourceError) -> frozenset[Dependency]:
    """Return the dependencies whose change may make the source readable."""
    cause = error.__cause__
    if isinstance(cause, ResolutionError):
        return frozenset({on_object(cause.subject), ANY_PROVIDER})
    return frozenset({ANY_PROVIDER} if isinstance(cause, ProviderError) else ())


def _version_of(secret: Object) -> SourceVersion:
    meta = secret.metadata
    created = parse_rfc3339(meta.creation_timestamp) if meta.creation_timestamp else None
    return SourceVersion(meta.name, meta.uid, meta.resource_version, created)


def _source(secret: JsonObject) -> PushSource:
    meta = secret["metadata"]
    annotations = {key: text for key, text in (meta.get("annotations") or {}).items() if key != _MANIFEST_COPY}
    return PushSource(
        name=meta["name"],
        mark=f"{meta['name']} {meta.get('uid', '')} {meta.get('resourceVersion', '')}",
        about=SourceSecret(secret.get("type") or "", meta.get("labels") or {}, annotations),
        values={key: SecretBytes(base64.b64decode(text or "")) for key, text in (secret.get("data") or {}).items()},
    )


# --- stores -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoreChooser:
    """Chooses stores. The process has one."""

    objects: WatchedObjects
    client: Client
    controller_class: str
    v2_stores: bool = True

    async def choose(self, push: PushSecret) -> tuple[PushStore, ...] | Failure:
        """Return the stores to push to, each once, in the order of their keys."""
        found: dict[str, PushStore] = {}
        for index, ref in enumerate(push.spec.secret_store_refs):
            path = f"spec.secretStoreRefs[{index}]"
            try:
                picked = await self._picked(ref, push)
                found |= {store.key: store for store in self._meant(ref, picked, push.metadata.namespace)}
            except ResolutionError as error:
                return Failure(path, error.reason.value, error.message)
            except SelectorError as error:
                return broken_selector(path, error)
        if len(found) > _MAX_STORES:
            message = f"{len(found)} stores match; at most {_MAX_STORES} can be pushed to: narrow the selectors"
            return Failure("spec.secretStoreRefs", "TooManyStores", message)
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
            found = await self.client.read(discovery_path(group), _Group)
        except (ApiError, ValueError):
            return f"{group}/v1"
        return found.preferred_version.group_version or f"{group}/v1"

    async def _picked(self, ref: PushStoreRef, push: PushSecret) -> Picked:
        """Return the kind of a reference; a provider's own kind is watched from now on."""
        named = StoreRef(api_version=ref.api_version, kind=ref.kind, name=ref.name or "any")
        reference = normalise(named, ObjectRef(namespace=push.metadata.namespace))
        if not ref.chooses:
            message = f"the reference to a {reference.kind.kind} has neither name nor labelSelector: set one"
            raise ResolutionError(Reason.NOT_FOUND, message, subject=reference.subject)
        check_gate(reference, v2_stores=self.v2_stores)
        try:
            return pick(reference, ClusterView(self.objects))
        except ResolutionError as error:
            if error.unwatched is None or not await self.objects.include(error.unwatched):
                raise
        return pick(reference, ClusterView(self.objects))

    def _meant(self, ref: PushStoreRef, picked: Picked, namespace: str) -> Iterator[PushStore]:
        where = "" if picked.scope is Scope.CLUSTER else namespace
        for obj in self._candidates(ref, picked.kind, where):
            meta = meta_of(obj)
            if meta.deletion_timestamp is None and controller_named(picked, obj) in ("", self.controller_class):
                store = StoreRef(api_version=ref.api_version, kind=picked.kind.kind, name=meta.name)
                yield PushStore(store, picked.kind, key_of(picked.kind, meta.name), meta.uid, dict(meta.labels))

    def _candidates(self, ref: PushStoreRef, kind: KindId, namespace: str) -> Iterable[Any]:
        if ref.label_selector is not None:
            return ref.label_selector.among(self.objects.list(kind, namespace), lambda obj: meta_of(obj).labels)
        obj = self.objects.get(kind, ObjectKey(namespace, ref.name))
        if obj is None:
            where = f" in namespace {namespace}" if namespace else ""
            message = f"there is no {kind.kind} {ref.name}{where}: create it, or correct the reference{sharing(kind)}"
            subject = ObjectRef(kind.api_version, kind.kind, namespace, ref.name)
            raise ResolutionError(Reason.NOT_FOUND, message, subject=subject)
        return [obj]


def targets_store(ref: PushStoreRef, store: PushStore) -> bool:
    """Return whether a `storeRef` of dataTo refers to this store. Raises SelectorError."""
    if ref.group_kind != (store.kind.group, store.kind.kind):
        return False
    if ref.name:
        return ref.name == store.ref.name
    return ref.label_selector is not None and ref.label_selector.matches(store.labels)


def broken_selector(path: str, error: SelectorError) -> Failure:
    return Failure(path, "InvalidSelector", f"labelSelector: {error}")


class _Version(msgspec.Struct, rename="camel"):
    group_version: str = ""


class _Group(msgspec.Struct, rename="camel"):
    preferred_version: _Version = msgspec.field(default_factory=_Version)


# --- snapshot ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SnapshotReader:
    """Gathers snapshots. The process has one."""

    objects: Cache[PushSecret]
    writes: Writes
    sources: SourceReader
    chooser: StoreChooser
    version_of: VersionOf
    shortest_interval: float = SHORTEST_INTERVAL

    async def gather(self, push: PushSecret, now: datetime) -> PushSnapshot:
        last = self.writes.last(push)
        note, push = interval_note(push.spec.refresh_interval, self.shortest_interval), self.with_min_interval(push)
        return PushSnapshot(
            push=push,
            now=now,
            remembered=last,
            sources=self.sources.versions(push),
            stores=await self.chooser.choose(push),
            new_templates=last is not None and self._has_new_templates(last),
            unrecorded=bool(self.writes.unrecorded(push)),
            interval_note=note,
            freed=self.writes.has_freed(push.key),
        )

    def with_min_interval(self, push: PushSecret) -> PushSecret:
        """Return the object with its effective interval."""
        return with_min_interval(push, self.shortest_interval)

    def _has_new_templates(self, last: LastPush) -> bool:
        """Return whether a template changed. A missing template does not count: the next push reports it."""
        return any(self.version_of(used.kind, used.key) not in ("", used.version) for used in last.templates)
