"""The path from a store or generator to its provider, as the operator's own resolver explains it.

    explain -> an object is missing in the view -> read it -> explain again, until a stage fails or all pass

Only the operator speaks to providers, so handshakes come from the status of provider classes. Its flags are not known
here either: `settings_of` derives the provider namespaces from the classes, and `DEPENDS_ON_FLAGS` are the refusals
that other flags could lift.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from eso_api.common import READY
from eso_api.generators.generatorstate import GeneratorState
from eso_api.references import GeneratorRef, StoreRef
from eso_api.v2.providerclass import CLUSTER_PROVIDER_CLASS, PROVIDER_CLASS, ClassKind, ProviderClassStatus
from eso_operator.generators.stored import StoredGenerator, StoredObjects, stored_generator
from eso_operator.stores.discovery import PROVIDER_LABEL, class_connection
from eso_operator.stores.loading import ready_condition
from eso_operator.stores.resolve import STAGES, Stage, explain
from eso_operator.stores.resolved import (
    CLASS,
    CLUSTER_CLASS,
    SERVICE,
    ClusterObjects,
    ClusterView,
    Need,
    Reason,
    ResolutionError,
    ResolverSettings,
    Scope,
)
from eso_tools.objects import SERVICES, ObjectReader, ObjectSummary, ReadState, UnreadableError, summary_of
from eso_wire.kinds import Handshake, KindId, KindInfo, KindRole, ObjectRef, Operation
from eso_wire.versions import CURRENT, SUPPORTED
from kubebase.meta import JsonObject, ObjectKey, Resource, key_of, raw
from kuberun.requests import Selection
from kuberun.status import find_condition

T = TypeVar("T")

CORE_NAMESPACE: Final = "external-secrets"
DEPENDS_ON_FLAGS: Final = frozenset(
    {
        Reason.UNMANAGED,
        Reason.ADDRESS_DENIED,
        Reason.FEATURE_DISABLED,
        Reason.NOT_INSTALLED,
        Reason.NOT_CONNECTED,
        Reason.AMBIGUOUS,
        Reason.CERTIFICATE_REQUIRED,
    }
)
OBJECT, ENDPOINT, GATE, HANDSHAKE = STAGES[2], STAGES[6], STAGES[9], STAGES[10]
"""The stages of `explain` that find the store and the provider, and that check whether both are ready."""

_MAX_READS: Final = 64
_CLASSES: Final = {CLASS: PROVIDER_CLASS.resource(), CLUSTER_CLASS: CLUSTER_PROVIDER_CLASS.resource()}
_LABELLED: Final = f"{PROVIDER_LABEL}=true"


@dataclass(frozen=True, slots=True)
class ProviderPath:
    """The stages up to the first that failed, and the provider at their end, if it was found."""

    stages: tuple[Stage, ...] = ()
    provider: ObjectSummary | None = None
    unreadable: str = ""
    """The object that the user may not read, and that the remaining stages need."""

    @property
    def failed(self) -> Stage | None:
        return next((stage for stage in self.stages if stage.reason is not None), None)


NO_PATH: Final = ProviderPath()


class PathFinder:
    """The view of the resolver on a cluster, read on demand with the rights of a user."""

    def __init__(self, reader: ObjectReader, namespace: str) -> None:
        self._reader = reader
        self._namespace = namespace
        self._objects = _ReadObjects()
        self._settings = ResolverSettings(CORE_NAMESPACE)
        self._handshakes: Mapping[str, Handshake | str] | None = None
        self._unlisted = ""
        """The providers that the user may not list, and why: a provider that is not found may exist nevertheless."""

    async def to_provider(
        self, ref: StoreRef | GeneratorRef, caller: ObjectRef, need: Need, stored: StoredGenerator | None = None
    ) -> ProviderPath:
        """Return the path that the operator takes from a reference. `stored` replaces the live generator."""
        try:
            stages = await self._explained(ref, caller, need, stored)
        except UnreadableError as unreadable:
            return ProviderPath(unreadable=str(unreadable))
        endpoint = next((each for each in stages if each.name == ENDPOINT), None)
        if endpoint is None:
            return ProviderPath(stages)
        if endpoint.reason in DEPENDS_ON_FLAGS and self._unlisted:
            return ProviderPath(stages[:-1], unreadable=self._unlisted)
        found = endpoint.subject if endpoint.reason is None else None
        return ProviderPath(stages, None if found is None else await self._provider(found))

    def summary(self, ref: ObjectRef) -> ObjectSummary:
        """Return an object that a stage found."""
        key = ObjectKey(ref.namespace, ref.name)
        found = self._objects.known(_id(ref), key)
        return ObjectSummary(ref.kind, key) if found is None else summary_of(Resource("", "", "", ref.kind), found)

    async def stored(self, state: GeneratorState, ref: ObjectRef) -> StoredGenerator:
        """Return the generator that a state holds. Raises ResolutionError if it holds none, or HiddenError."""
        return await self._reading(lambda: stored_generator(state.spec.resource, ref, self._objects))

    async def _explained(
        self, ref: StoreRef | GeneratorRef, caller: ObjectRef, need: Need, stored: StoredGenerator | None
    ) -> tuple[Stage, ...]:
        handshakes = await self._known_providers()
        objects: ClusterObjects = self._objects if stored is None else StoredObjects(stored, self._objects)
        view = ClusterView(objects, handshakes)
        return await self._reading(lambda: explain(ref, caller, need=need, view=view, settings=self._settings))

    async def _reading(self, rule: Callable[[], T]) -> T:
        """Return the result of a rule, after all objects that it needs were read. Raises HiddenError."""
        for _ in range(_MAX_READS):
            try:
                return rule()
            except _UnreadError as unread:
                await self._read(unread)
        raise UnreadableError("its path to a provider", "too many objects are involved")

    async def _provider(self, ref: ObjectRef) -> ObjectSummary:
        """Return the class of a provider; that of the same name for a Service, which the operator makes."""
        key = ObjectKey(ref.namespace, ref.name)
        for kind, resource in _CLASSES.items():
            if ref.kind in (kind.kind, SERVICES.kind) and (found := self._objects.known(kind, key)) is not None:
                return summary_of(resource, found)
        return await self._reader.read_metadata(SERVICES, key)

    async def _known_providers(self) -> Mapping[str, Handshake | str]:
        """Read the classes and the labelled Services, once."""
        if self._handshakes is None:
            for kind, resource in _CLASSES.items():
                self._objects.add_all(kind, await self._classes(resource))
            self._settings = settings_of(self._objects.list(CLASS))
            for namespace in dict.fromkeys((*self._settings.shared_namespaces, self._namespace)):
                if namespace:
                    await self._read(_UnreadError(SERVICE, namespace=namespace))
            self._handshakes = dict(handshakes_of(self._objects, self._settings))
        return self._handshakes

    async def _classes(self, resource: Resource) -> list[JsonObject]:
        try:
            return await self._reader.list_all(raw(resource), Selection())
        except UnreadableError as unreadable:
            self._unlisted = str(unreadable)
        # The user may be allowed to list this namespace only.
        mine = resource.namespaced and self._namespace
        return await self._reader.listed(raw(resource), Selection(self._namespace)) if mine else []

    async def _read(self, unread: _UnreadError) -> None:
        kind = unread.kind
        resource = await self._reader.resource(kind)
        self._objects.scopes[kind] = None if resource is None else _scope(resource)
        if unread.key is not None:
            found: JsonObject | ObjectSummary | None = None
            if resource is not None:
                found = await self._reader.document(resource, unread.key)
            self._objects.put(kind, unread.key, found)
        elif unread.namespace is not None:
            labels = _LABELLED if kind == SERVICE else ""
            selection = Selection(unread.namespace, label_selector=labels)
            items = [] if resource is None else await self._reader.listed(raw(resource), selection)
            self._objects.add_all(kind, items, unread.namespace)


def settings_of(classes: Iterable[Any]) -> ResolverSettings:
    """Return settings that allow the providers of these classes, except those that the operator refuses to dial."""
    dialled = {
        key_of(each).namespace
        for each in classes
        if (ready := ready_condition(each)) is not None and ready.reason != Reason.ADDRESS_DENIED
    }
    return ResolverSettings(CORE_NAMESPACE, provider_namespaces=tuple(sorted(dialled)))


def handshakes_of(objects: ClusterObjects, settings: ResolverSettings) -> Iterator[tuple[str, Handshake | str]]:
    """Yield the handshakes in the status of classes, by connection. While a provider is down, its last one counts."""
    view = ClusterView(objects)
    for kind in _CLASSES:
        for document in objects.list(kind):
            try:
                connection = class_connection(kind, document, settings=settings, view=view)
                status = msgspec.convert(document.get("status") or {}, ProviderClassStatus)
            except (ResolutionError, msgspec.ValidationError):
                continue
            if status.kinds:
                yield connection.key, _handshake(key_of(document).name, status)
            elif (ready := find_condition(status.conditions, READY)) is not None and ready.reason:
                yield connection.key, f"{ready.reason}: {ready.message}"


def _handshake(name: str, status: ProviderClassStatus) -> Handshake:
    return Handshake(CURRENT, SUPPORTED, name, status.provider_version, "", tuple(map(_info, status.kinds)))


def _info(kind: ClassKind) -> KindInfo:
    operations = frozenset(Operation(name) for name in kind.operations if name in set(Operation))
    role = KindRole.GENERATOR if Operation.GENERATE in operations else KindRole.STORE
    return KindInfo(KindId(kind.group, kind.version, kind.kind), role, operations, v1_provider_key=kind.v1_provider_key)


class _UnreadError(Exception):
    """The resolver needs an object (`key`), a list (`namespace`), or else the scope of a kind."""

    def __init__(self, kind: KindId, key: ObjectKey | None = None, namespace: str | None = None) -> None:
        super().__init__(str(kind))
        self.kind = kind
        self.key = key
        self.namespace = namespace


class _ReadObjects(ClusterObjects):
    """The objects that were read so far. Implements `stores.view.Objects`."""

    def __init__(self) -> None:
        self._objects: dict[tuple[KindId, ObjectKey], JsonObject | ObjectSummary | None] = {}
        self._lists: dict[tuple[KindId, str], Sequence[JsonObject]] = {}
        self.scopes: dict[KindId, Scope | None] = {}

    def get(self, kind: KindId, key: ObjectKey) -> Any | None:
        try:
            found = self._objects[kind, key]
        except KeyError:
            raise _UnreadError(kind, key) from None
        if isinstance(found, ObjectSummary):
            if found.read_state is ReadState.UNREADABLE:
                raise UnreadableError(str(found), found.why)
            return None
        return found

    def list(self, kind: KindId, namespace: str = "") -> Iterable[Any]:
        if (everything := self._lists.get((kind, ""))) is not None:
            return [each for each in everything if namespace in ("", key_of(each).namespace)]
        try:
            return self._lists[kind, namespace]
        except KeyError:
            raise _UnreadError(kind, namespace=namespace) from None

    def scope(self, kind: KindId) -> Scope | None:
        if kind not in self.scopes:
            raise _UnreadError(kind)
        return self.scopes[kind]

    def known(self, kind: KindId, key: ObjectKey) -> JsonObject | None:
        found = self._objects.get((kind, key))
        return found if isinstance(found, dict) else None

    def put(self, kind: KindId, key: ObjectKey, found: JsonObject | ObjectSummary | None) -> None:
        self._objects[kind, key] = found

    def add_all(self, kind: KindId, documents: Sequence[JsonObject], namespace: str = "") -> None:
        self._lists[kind, namespace] = documents
        for document in documents:
            self._objects[kind, key_of(document)] = document


def _scope(resource: Resource) -> Scope:
    return Scope.NAMESPACED if resource.namespaced else Scope.CLUSTER


def _id(ref: ObjectRef) -> KindId:
    group, _, version = ref.api_version.rpartition("/")
    return KindId(group, version, ref.kind)
