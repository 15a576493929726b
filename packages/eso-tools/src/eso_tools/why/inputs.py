"""The inputs of an explanation: one object, and the live objects that its values pass through.

Of the other objects only metadata, conditions and the provider's address are read. `explanation.py` draws conclusions.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from eso_api.common import READY
from eso_api.externalsecret import EXTERNAL_SECRET, ClusterExternalSecret, ExternalSecret
from eso_api.generators.generatorstate import GeneratorState
from eso_api.pushsecret import PUSH_SECRET, ClusterPushSecret, PushSecret, PushStoreRef
from eso_api.references import GeneratorRef, SelectorError, StoreRef
from eso_api.template import Template, template_references
from eso_api.v2.providerclass import ProviderClassSpec
from eso_operator.sources.entries import Generate, entries_of
from eso_operator.stores.addresses import service_of
from eso_operator.stores.loading import identified, normalise
from eso_operator.stores.resolved import VALIDATION, Gate, Need, ResolutionError, ResolverSettings
from eso_operator.targets.metadata import target_name
from eso_tools.objects import (
    CONFIG_MAPS,
    EVENTS,
    SECRETS,
    SERVICES,
    AnyKind,
    ObjectReader,
    ObjectSummary,
    ReadState,
    RecordedEvent,
    Role,
    UnreadableError,
    role_of,
    summary_of,
)
from eso_tools.why.path import CORE_NAMESPACE, NO_PATH, OBJECT, PathFinder, ProviderPath
from eso_wire.kinds import KindId, ObjectRef, Operation
from kubebase.meta import JsonObject, Kind, Malformed, ObjectKey, meta_of, metadata_of
from kuberun.client import Client
from kuberun.requests import Selection
from kuberun.source import error_text
from kuberun.status import is_true

MAX_SOURCES: Final = 30
MAX_CHILDREN: Final = 30
MAX_EXPLAINED_CHILDREN: Final = 3
MAX_EVENTS: Final = 3
"""Limits of what an explanation shows; more would not fit a screen."""

_READING: Final = Need(gate=Gate.FULL)
_PUSHING: Final = Need(gate=Gate.POLICY)
_CLEANING: Final = Need(frozenset({Operation.CLEANUP}), Gate.POLICY)

Reference = StoreRef | GeneratorRef


@dataclass(frozen=True, slots=True)
class Source:
    """A store or a generator, and the path to its provider."""

    summary: ObjectSummary
    path: ProviderPath = NO_PATH


@dataclass(frozen=True, slots=True)
class Inputs:
    """All inputs of an explanation. `subject` is the decoded object, or `Malformed`."""

    kind: AnyKind
    summary: ObjectSummary
    subject: Any
    sources: tuple[Source, ...] = ()
    templates: tuple[ObjectSummary, ...] = ()
    objects: tuple[ObjectSummary, ...] = ()
    """The target of an ExternalSecret, the sources of a PushSecret, or the Service of a provider class."""
    children: tuple[Inputs | ObjectSummary, ...] = ()
    """The objects that a fan-out created; those that are not ready have their own inputs."""
    events: tuple[RecordedEvent, ...] = ()
    left_out: int = 0
    """The number of sources or children beyond the limit, which were not read."""


async def gather(client: Client, kind: AnyKind, key: ObjectKey) -> Inputs | ObjectSummary:
    """Read the object and the objects around it; return a `ObjectSummary` with the reason if it cannot be read."""
    return await _Gatherer(ObjectReader(client), kind, key).run()


class _Gatherer:
    """Reads the objects around one subject."""

    def __init__(self, reader: ObjectReader, kind: AnyKind, key: ObjectKey) -> None:
        self._reader = reader
        self._kind = kind
        self._key = key if kind.namespaced else ObjectKey("", key.name)
        self._namespace = self._key.namespace
        self._paths = PathFinder(reader, self._namespace)

    async def run(self) -> Inputs | ObjectSummary:
        resource = self._kind.resource()
        document = await self._reader.document(resource, self._key)
        if isinstance(document, ObjectSummary):
            return document
        summary = summary_of(resource, document)
        try:
            subject = msgspec.convert(document, self._kind.type)
        except msgspec.ValidationError as problem:
            subject = Malformed(summary.metadata, error_text(problem))
        around = {} if isinstance(subject, Malformed) else await self._around(subject)
        return Inputs(self._kind, summary, subject, events=await self._events(), **around)

    async def _around(self, subject: Any) -> dict[str, Any]:
        match role_of(self._kind):
            case Role.READS:
                found = list(dict.fromkeys(_read_from(subject)))
                return {
                    **await self._sources(subject, found, _READING),
                    "templates": await self._templates(subject.spec.target.template),
                    "objects": await self._target(subject),
                }
            case Role.PUSHES:
                return {
                    **await self._sources(subject, [ref async for ref in self._pushed_to(subject)], _PUSHING),
                    "templates": await self._templates(subject.spec.template),
                    "objects": await self._pushed(subject),
                }
            case Role.STORE:
                ref: Reference = StoreRef(api_version=self._api_version, kind=self._kind.name, name=self._key.name)
                return await self._sources(subject, [ref], VALIDATION)
            case Role.GENERATOR:
                ref = GeneratorRef(api_version=self._api_version, kind=self._kind.name, name=self._key.name)
                return await self._sources(subject, [ref], VALIDATION)
            case Role.STATE:
                return {"sources": (await self._stored(subject),)}
            case Role.CLASS:
                return {"objects": await self._service(subject.spec)}
            case Role.FANS_OUT:
                return await self._children(subject)

    # --- stores and generators ----------------------------------------------------------------------------------------

    @property
    def _api_version(self) -> str:
        return self._kind.resource().api_version

    def _caller(self, subject: Any) -> ObjectRef:
        group, _, version = self._api_version.rpartition("/")
        return identified(KindId(group, version, self._kind.name), subject.metadata)

    async def _sources(self, subject: Any, refs: list[Reference], need: Need) -> dict[str, Any]:
        caller = self._caller(subject)
        return {
            "sources": tuple([await self._source(ref, caller, need) for ref in refs[:MAX_SOURCES]]),
            "left_out": max(len(refs) - MAX_SOURCES, 0),
        }

    async def _source(self, ref: Reference, caller: ObjectRef, need: Need) -> Source:
        return self._source_of(ref, await self._paths.to_provider(ref, caller, need))

    def _source_of(self, ref: Reference, path: ProviderPath) -> Source:
        found = next((stage.subject for stage in path.stages if stage.name == OBJECT and stage.reason is None), None)
        if found is not None:
            return Source(self._paths.summary(found), path)
        kind, key = ref.kind or "SecretStore", ObjectKey(self._namespace, ref.name)
        if path.failed is not None:
            return Source(ObjectSummary(kind, key, ReadState.ABSENT, path.failed.detail), path)
        summary = ObjectSummary(kind, key, ReadState.UNREADABLE)
        return Source(replace(summary, why=path.unreadable.removeprefix(f"{summary}: ")), path)

    async def _stored(self, state: GeneratorState) -> Source:
        """Return the generator that a state holds, as the clean-up resolves it."""
        caller = self._caller(state)
        try:
            stored = await self._paths.stored(state, caller)
        except ResolutionError as problem:
            return Source(ObjectSummary("generator", self._key, ReadState.ABSENT, problem.message))
        except UnreadableError as unreadable:
            return Source(ObjectSummary("generator", self._key, ReadState.UNREADABLE, str(unreadable)))
        path = await self._paths.to_provider(stored.ref, caller, _CLEANING, stored)
        if stored.document is None:
            return self._source_of(stored.ref, path)
        return Source(ObjectSummary(stored.kind.kind, stored.key, metadata=meta_of(stored.document)), path)

    async def _pushed_to(self, subject: PushSecret) -> AsyncIterator[Reference]:
        if subject.spec.selector.generator_ref is not None:
            yield subject.spec.selector.generator_ref
        for ref in subject.spec.secret_store_refs:
            for name in [ref.name] if ref.label_selector is None else await self._labelled(ref):
                yield StoreRef(api_version=ref.api_version, kind=ref.kind, name=name)

    async def _labelled(self, ref: PushStoreRef) -> list[str]:
        named = normalise(StoreRef(api_version=ref.api_version, kind=ref.kind, name="any"), ObjectRef())
        resource = await self._reader.resource(named.kind)
        selection = _selection(self._namespace, ref.label_selector.query) if ref.label_selector else None
        if resource is None or selection is None:
            return []
        return [each.metadata.name for each in await self._reader.listed(metadata_of(resource), selection)]

    # --- targets, sources and templates -------------------------------------------------------------------------------

    async def _target(self, subject: ExternalSecret) -> tuple[ObjectSummary, ...]:
        key, manifest = ObjectKey(self._namespace, target_name(subject)), subject.spec.target.manifest
        if manifest is None:
            return (await self._reader.read_metadata(SECRETS, key),)
        group, _, version = manifest.api_version.rpartition("/")
        resource = await self._reader.resource(KindId(group, version, manifest.kind))
        if resource is None:
            return (ObjectSummary(manifest.kind, key, ReadState.ABSENT, f"the API server has no {manifest.kind}"),)
        return (await self._reader.read_metadata(resource, key),)

    async def _pushed(self, subject: PushSecret) -> tuple[ObjectSummary, ...]:
        secret = subject.spec.selector.secret
        if secret is None:
            return ()
        if secret.name or secret.selector is None:
            return (await self._reader.read_metadata(SECRETS, ObjectKey(self._namespace, secret.name)),)
        selection = _selection(self._namespace, secret.selector.query)
        listed = await self._reader.listed(metadata_of(SECRETS), selection) if selection else []
        found = tuple(ObjectSummary("Secret", each.key, metadata=each.metadata) for each in listed)
        none = ObjectSummary(
            "Secret", ObjectKey(self._namespace, "by label"), ReadState.ABSENT, "no Secret matches the selector"
        )
        return found[:MAX_SOURCES] or (none,)

    async def _templates(self, template: Template | None) -> tuple[ObjectSummary, ...]:
        named = template_references(template)
        wanted = [(CONFIG_MAPS, name) for name in sorted(named.config_maps)]
        wanted += [(SECRETS, name) for name in sorted(named.secrets)]
        return tuple(
            [await self._reader.read_metadata(kind, ObjectKey(self._namespace, name)) for kind, name in wanted]
        )

    async def _service(self, spec: ProviderClassSpec) -> tuple[ObjectSummary, ...]:
        """Return the Service behind the address of a class; none for an address outside the cluster."""
        host = spec.address.rpartition("//")[2].rpartition(":")[0]
        service = service_of(host, self._namespace or CORE_NAMESPACE, ResolverSettings(CORE_NAMESPACE))
        if service is None:
            return ()
        return (await self._reader.read_metadata(SERVICES, ObjectKey(service.namespace, service.name)),)

    # --- fan-out ------------------------------------------------------------------------------------------------------

    async def _children(self, parent: ClusterExternalSecret | ClusterPushSecret) -> dict[str, Any]:
        match parent:
            case ClusterExternalSecret():
                kind: AnyKind = EXTERNAL_SECRET
                name = parent.spec.external_secret_name or parent.metadata.name
            case _:
                kind, name = PUSH_SECRET, parent.spec.push_secret_name or parent.metadata.name
        namespaces = parent.status.provisioned_namespaces
        children: list[Inputs | ObjectSummary] = []
        explained = 0
        for namespace in namespaces[:MAX_CHILDREN]:
            child = await self._reader.read_summary(kind.resource(), ObjectKey(namespace, name))
            not_ready = child.read_state is ReadState.FOUND and not is_true(child.conditions, READY)
            if not_ready and explained < MAX_EXPLAINED_CHILDREN:
                children.append(await _Gatherer(self._reader, kind, child.key).run())
                explained += 1
            else:
                children.append(child)
        return {"children": tuple(children), "left_out": max(len(namespaces) - MAX_CHILDREN, 0)}

    async def _events(self) -> tuple[RecordedEvent, ...]:
        about = f"involvedObject.kind={self._kind.name},involvedObject.name={self._key.name}"
        # Events about a cluster-scoped object are in the namespace `default`.
        selection = Selection(self._namespace or "default", field_selector=about)
        listed = await self._reader.listed(Kind(EVENTS, dict), selection)
        return tuple(sorted(_recorded(listed), key=lambda event: event.at)[-MAX_EVENTS:])


def _read_from(subject: ExternalSecret) -> Iterator[Reference]:
    for want in entries_of(subject.spec):
        yield want.generator if isinstance(want, Generate) else want.store


def _selection(namespace: str, query: Callable[[], str]) -> Selection | None:
    try:
        return Selection(namespace, label_selector=query())
    except SelectorError:
        return None


def _recorded(documents: Iterable[JsonObject]) -> Iterator[RecordedEvent]:
    for document in documents:
        try:
            yield msgspec.convert(document, RecordedEvent)
        except msgspec.ValidationError:
            continue
