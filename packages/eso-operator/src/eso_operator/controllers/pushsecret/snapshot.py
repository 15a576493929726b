"""The frozen inputs of one reconcile, including the time: the input of the checks in `decide.py`.

Later steps read more: sources and templates, stores and credentials, and the pushes of other PushSecrets.

The sources of a push: Secrets of the PushSecret's own namespace, by name or by label, or generated values.

Secrets are read live. The annotation in which kubectl stores a copy of the whole manifest, values included, never
leaves the cluster.

The stores of a PushSecret, by name or by label, and their keys in the status.

    v1 stores and Providers     Kind/name            as in the Go operator
    other kinds                 group/Kind/name

Namespaced stores are always those of the PushSecret's own namespace. Stores that belong to another operator, and stores
that are being deleted, are skipped.

Collects the inputs of one reconcile: the object, its sources and stores from the caches, the time.
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
from eso_operator.controllers.pushsecret.ownership import Pushes
from eso_operator.controllers.pushsecret.record import LastPush, split_key
from eso_operator.controllers.refresh import SHORTEST_INTERVAL, interval_note, moment, with_min_interval
from eso_operator.dependencies.dependencies import ANY_PROVIDER, Dependency, on_object
from eso_operator.generators.ledger import GeneratedValues
from eso_operator.generators.source import GeneratorSource
from eso_operator.providers.bytelimits import HeldBytes
from eso_operator.providers.errors import cause_of
from eso_operator.sources.templates import VersionOf
from eso_operator.stores.loading import Picked, check_gate, controller_named, key_of, normalise, pick, sharing
from eso_operator.stores.resolved import ClusterView as Cluster
from eso_operator.stores.resolved import Reason, ResolutionError, Scope, WatchedObjects
from eso_operator.targets.metadata import synced_version
from eso_wire.errors import ProviderError, RetryClass
from eso_wire.values import KindId, ObjectRef, SourceSecret
from kubebase import durations
from kubebase.clock import parse_rfc3339
from kubebase.meta import JsonObject, Malformed, Object, ObjectKey, Resource, meta_of, raw
from kuberun.cache import Cache
from kuberun.client import Client
from kuberun.errors import ApiError, NotFound
from kuberun.requests import discovery_path
from kuberun.status import is_false, is_true

DEFAULT_INTERVAL: Final = 3600.0

SOURCE_DELETED: Final = "SourceDeleted"


def current_version(push: PushSecret) -> str:
    meta = push.metadata
    return synced_version(meta.generation, meta.labels, meta.annotations)


def interval_of(push: PushSecret) -> float:
    """Return the seconds between pushes; an invalid interval counts as the default."""
    try:
        return durations.seconds(push.spec.refresh_interval, field="spec.refreshInterval")
    except durations.DurationError:
        return DEFAULT_INTERVAL


def refreshed_at(push: PushSecret) -> datetime | None:
    """Return the last refresh time of the status."""
    return moment(push.status.refresh_time)


def changed(push: PushSecret) -> bool:
    """Return whether the object changed since the last push."""
    return push.status.synced_resource_version != current_version(push)


@dataclass(frozen=True, slots=True)
class Chosen:
    """A store that is pushed to. `key` is its name in `status.syncedPushSecrets`."""

    ref: StoreRef
    kind: KindId
    key: str
    uid: str = ""
    labels: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.kind.kind} {self.ref.name}"


@dataclass(frozen=True, slots=True)
class NoChoice:
    """The reason why the stores cannot be determined."""

    path: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class SeenSource:
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
    sources: tuple[SeenSource, ...]
    stores: tuple[Chosen, ...] | NoChoice
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
        stores = () if isinstance(self.stores, NoChoice) else self.stores
        return frozenset(f"{store.key} {store.uid}" for store in stores)

    @property
    def source_marks(self) -> frozenset[str]:
        return frozenset(source.mark for source in self.sources)


SECRETS: Final = Resource("", "v1", "secrets", "Secret")

MAX_SOURCES: Final = 500

BY_NAMESPACE: Final = "namespace"
"""The index that every informer of the operator has."""


_KIND: Final = raw(SECRETS)

_MADE_SECONDS: Final = 10.0
"""A source that an ExternalSecret makes is looked for again after this time, if it does not appear before."""

_MANIFEST_COPY: Final = "kubectl.kubernetes.io/last-applied-configuration"


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
        self.reason = reason
        self.message = message
        self.retry = retry
        self.retry_after = after
        self.waits = waits
        """As in `reading.fetched.Failure`."""


MakerOf = Callable[[str, str], ExternalSecret | None]
"""Returns the ExternalSecret that makes a Secret, by the namespace and name of the Secret."""


class SourceGoneError(SourceError):
    """The Secret, or every Secret that was selected, is not there."""


@dataclass(frozen=True, slots=True)
class Source:
    """One Secret, or generated values. `mark` shows whether it is still the same one."""

    name: str
    mark: str
    about: SourceSecret
    values: Mapping[str, SecretBytes] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Sources:
    """All sources of a PushSecret, in the order of names."""

    found: tuple[Source, ...]
    made: tuple[GeneratedValues, ...] = ()
    depends_on: frozenset[Dependency] = frozenset()

    @property
    def marks(self) -> frozenset[str]:
        return frozenset(source.mark for source in self.found if not self.made)

    @property
    def renew_within(self) -> float | None:
        return min((made.refresh_within for made in self.made if made.refresh_within is not None), default=None)


class SourceReader:
    """Reads sources. The process has one. `secrets` holds metadata only."""

    def __init__(
        self, client: Client, secrets: Cache[Object], generators: GeneratorSource, *, maker_of: MakerOf
    ) -> None:
        self._client = client
        self._secrets = secrets
        self._generators = generators
        self._maker_of = maker_of

    def seen(self, push: PushSecret) -> tuple[SeenSource, ...]:
        """Return the source Secrets with their cached metadata."""
        source = push.spec.selector.secret
        if source is None:
            return ()
        if source.name:
            found = self._secrets.get(ObjectKey(push.metadata.namespace, source.name))
            return (_seen(found),) if isinstance(found, Object) else ()
        try:
            return tuple(_seen(each) for each in self._selected(push))
        except SelectorError:
            return ()

    async def read(self, push: PushSecret, held: HeldBytes) -> Sources:
        """Return the values. Raises SourceError."""
        selector = push.spec.selector
        if selector.generator_ref is not None:
            return await self._generated(push, selector.generator_ref, held)
        if selector.secret is None or not selector.secret.chooses:
            raise SourceError("InvalidSpec", "spec.selector must name a Secret, select Secrets, or name a generator")
        if selector.secret.name:
            return Sources((await self._one(push.metadata.namespace, selector.secret.name),))
        return Sources(await self._many(push))

    async def _one(self, namespace: str, name: str) -> Source:
        try:
            return _source(await self._client.get(_KIND, ObjectKey(namespace, name)))
        except NotFound:
            raise self._gone(namespace, name) from None
        except ApiError as problem:
            message = f"Secret {namespace}/{name} cannot be read: {api_error_text(problem)}"
            raise SourceError("SecretUnreadable", message) from None

    def _gone(self, namespace: str, name: str) -> SourceGoneError:
        """Return the error of a Secret that does not exist. One that an ExternalSecret is about to make is awaited."""
        maker = self._maker_of(namespace, name)
        if maker is None or is_true(maker.status.conditions, READY):
            message = f"Secret {namespace}/{name} does not exist: create it, or correct spec.selector"
            return SourceGoneError("SecretNotFound", message)
        made = f"Secret {namespace}/{name} does not exist yet: ExternalSecret {maker.metadata.name} makes it"
        if is_false(maker.status.conditions, READY):
            return SourceGoneError("SecretNotFound", f"{made}, and is not ready; its condition says why")
        return SourceGoneError("SecretNotFound", made, waits=_MADE_SECONDS)

    async def _many(self, push: PushSecret) -> tuple[Source, ...]:
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

    async def _generated(self, push: PushSecret, ref: GeneratorRef, held: HeldBytes) -> Sources:
        try:
            made = await self._generators.generate(caller_of(push), 0, ref, held)
        except ResolutionError as error:
            raise SourceError(error.reason.value, error.message, retry=error.retry, waits=error.waits) from error
        except ProviderError as error:
            raise SourceError(cause_of(error), error.message, retry=error.retry, after=error.retry_after) from error
        name = f"{ref.kind} {ref.name}"
        return Sources((Source(name, name, SourceSecret(), made.values),), (made,), made.depends_on)

    def _selected(self, push: PushSecret) -> list[Object]:
        source = push.spec.selector.secret
        if source is None or source.selector is None:
            return []
        found = self._secrets.find(BY_NAMESPACE, push.metadata.namespace)
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


def _seen(secret: Object) -> SeenSource:
    meta = secret.metadata
    created = parse_rfc3339(meta.creation_timestamp) if meta.creation_timestamp else None
    return SeenSource(meta.name, meta.uid, meta.resource_version, created)


def _source(secret: JsonObject) -> Source:
    meta = secret["metadata"]
    annotations = {key: text for key, text in (meta.get("annotations") or {}).items() if key != _MANIFEST_COPY}
    return Source(
        name=meta["name"],
        mark=f"{meta['name']} {meta.get('uid', '')} {meta.get('resourceVersion', '')}",
        about=SourceSecret(secret.get("type") or "", meta.get("labels") or {}, annotations),
        values={key: SecretBytes(base64.b64decode(text or "")) for key, text in (secret.get("data") or {}).items()},
    )


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
                return broken_selector(path, error)
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


def broken_selector(path: str, error: SelectorError) -> NoChoice:
    return NoChoice(path, "InvalidSelector", f"labelSelector: {error}")


class _Version(msgspec.Struct, rename="camel"):
    group_version: str = ""


class _Group(msgspec.Struct, rename="camel"):
    preferred_version: _Version = msgspec.field(default_factory=_Version)


class Gatherer:
    """Gathers snapshots. The process has one."""

    def __init__(
        self,
        objects: Cache[PushSecret],
        pushes: Pushes,
        *,
        sources: SourceReader,
        chooser: StoreChooser,
        version_of: VersionOf,
        shortest_interval: float = SHORTEST_INTERVAL,
    ) -> None:
        self._objects = objects
        self._pushes = pushes
        self._sources = sources
        self._chooser = chooser
        self._version_of = version_of
        self._shortest = shortest_interval

    def find(self, key: ObjectKey) -> PushSecret | None:
        """Return the object if it exists and decodes. `controllers.malformed` reports objects that do not decode."""
        found = self._objects.get(key)
        return None if isinstance(found, Malformed) else found

    async def gather(self, push: PushSecret, now: datetime) -> PushSnapshot:
        last = self._pushes.last(push)
        note, push = interval_note(push.spec.refresh_interval, self._shortest), self.with_min_interval(push)
        return PushSnapshot(
            push=push,
            now=now,
            remembered=last,
            sources=self._sources.seen(push),
            stores=await self._chooser.choose(push),
            new_templates=last is not None and self._has_new_templates(last),
            unrecorded=bool(self._pushes.unrecorded(push)),
            interval_note=note,
            freed=self._pushes.rivals.freed(push.key),
        )

    def with_min_interval(self, push: PushSecret) -> PushSecret:
        """Return the object with its effective interval."""
        return with_min_interval(push, self._shortest)

    def _has_new_templates(self, last: LastPush) -> bool:
        """Return whether a template changed. A missing template does not count: the next push reports it."""
        return any(self._version_of(used.kind, used.key) not in ("", used.version) for used in last.templates)
