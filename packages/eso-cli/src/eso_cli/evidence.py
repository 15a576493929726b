"""What `eso why` looks at: an ExternalSecret or PushSecret, and the live objects on the way of its values.

Of every object but the one in question only what the story needs is kept: metadata, conditions, where its provider is.
Secrets, and whatever else is a target, are asked for as metadata, so that no value is ever sent here. An object that
may not be read is part of the evidence, not an error. No verdict is made here; that is `story.py`'s part.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, TypeVar

import msgspec

from eso_api.crd import CustomKind
from eso_api.externalsecret import EXTERNAL_SECRET, ExternalSecret
from eso_api.kinds import KINDS
from eso_api.pushsecret import PUSH_SECRET, PushSecret, PushStoreRef
from eso_api.references import GeneratorRef, SelectorError, StoreRef
from eso_api.template import Template
from eso_cli.routes import NOWHERE, Classes, Route, route_of
from eso_operator.stores.reference import normalise
from eso_operator.stores.target import ResolutionError
from eso_operator.sync.wants import Generate, wants_of
from eso_operator.targets.discovery import served_resource
from eso_operator.targets.marks import target_name
from eso_render.sources import references
from eso_wire.values import KindId, ObjectRef
from kuberun.client import Client
from kuberun.errors import ApiError, Forbidden, NotFound, NotServed
from kuberun.meta import (
    Condition,
    JsonObject,
    Kind,
    Malformed,
    ObjectKey,
    ObjectMeta,
    Resource,
    meta_of,
    metadata_of,
    raw,
)
from kuberun.requests import Selection

SECRETS: Final = Resource("", "v1", "secrets", "Secret")
CONFIG_MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap")
EVENTS: Final = Resource("", "v1", "events", "Event")

MAX_SOURCES: Final = 30
MAX_EVENTS: Final = 3
"""What is beyond helps nobody who reads it on a screen."""

T = TypeVar("T")
Subject = ExternalSecret | PushSecret


class Look(Enum):
    """How a look at an object ended."""

    FOUND = "found"
    ABSENT = "absent"
    HIDDEN = "hidden"


@dataclass(frozen=True, slots=True)
class Sight:
    """An object as far as it was seen. `why` says what kept it from being seen."""

    kind: str
    key: ObjectKey
    look: Look = Look.FOUND
    why: str = ""
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    conditions: tuple[Condition, ...] = ()
    address: str = ""
    """Of a provider class."""

    def __str__(self) -> str:
        return f"{self.kind} {self.key.name}"


@dataclass(frozen=True, slots=True)
class Source:
    """A store or a generator, and the providers that it may go to."""

    sight: Sight
    validated: bool
    """Whether this kind of object says itself whether it can be used."""
    route: Route = NOWHERE
    providers: tuple[Sight, ...] = ()


class Recorded(msgspec.Struct, rename="camel"):
    """A recorded event."""

    type: str = ""
    reason: str = ""
    message: str = ""
    count: int | None = None
    last_timestamp: str | None = None
    event_time: str | None = None

    @property
    def at(self) -> str:
        return self.last_timestamp or self.event_time or ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything the story is told from. `secrets` are the target of an ExternalSecret, or what a PushSecret reads."""

    subject: Subject
    sources: tuple[Source, ...] = ()
    templates: tuple[Sight, ...] = ()
    secrets: tuple[Sight, ...] = ()
    events: tuple[Recorded, ...] = ()
    left_out: int = 0
    """Sources beyond the bound, which were not looked at."""


async def gather(client: Client, kind: CustomKind[Any], key: ObjectKey) -> Evidence | Sight:
    """The object with everything around it; or what kept it from being seen."""
    seen = await Eyes(client).read(kind.kind(), key)
    if isinstance(seen, Sight):
        return seen
    return await _Gatherer(Eyes(client), key.namespace).around(seen)


class Eyes:
    """Reads that give a `Sight` where others raise."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def read(self, kind: Kind[T], key: ObjectKey) -> T | Sight:
        resource = kind.resource
        try:
            return await self.client.get(kind, key)
        except NotServed:
            return Sight(resource.kind, key, Look.ABSENT, f"the API server does not know {resource}; apply the CRDs")
        except NotFound:
            return Sight(resource.kind, key, Look.ABSENT, "does not exist")
        except ApiError as problem:
            return Sight(resource.kind, key, Look.HIDDEN, _hidden(problem))

    async def glance(self, resource: Resource, key: ObjectKey) -> Sight:
        """Metadata alone."""
        seen = await self.read(metadata_of(resource), key)
        return seen if isinstance(seen, Sight) else Sight(resource.kind, key, metadata=seen.metadata)

    async def list(self, kind: Kind[T], selection: Selection) -> list[T]:
        """What there is and can be read; nothing if it may not be listed."""
        try:
            page = await self.client.list(kind, selection)
        except ApiError:
            return []
        return [item for item in page.items if not isinstance(item, Malformed)]

    async def resource(self, kind: KindId) -> Resource | None:
        """Where objects of that kind are; None if the API server has none, or does not say so."""
        for custom in KINDS:
            if (custom.group, custom.name) == (kind.group, kind.kind):
                return custom.resource(kind.version if kind.version in custom.versions else "")
        try:
            return await served_resource(self.client, kind.api_version, kind.kind)
        except ApiError:
            return None


def sight_of(resource: Resource, document: JsonObject) -> Sight:
    """Of a whole object what may be kept: stores can hold values in their specs."""
    metadata, spec = meta_of(document), document.get("spec")
    address = spec.get("address") if isinstance(spec, dict) else ""
    shown = address if isinstance(address, str) else ""
    return Sight(resource.kind, metadata.key, metadata=metadata, conditions=tuple(_conditions(document)), address=shown)


def _conditions(document: JsonObject) -> Iterator[Condition]:
    try:
        yield from msgspec.convert(document.get("status") or {}, _Status).conditions
    except msgspec.ValidationError:
        return


class _Status(msgspec.Struct):
    conditions: list[Condition] = []


class _Gatherer:
    """The way around one object."""

    def __init__(self, eyes: Eyes, namespace: str) -> None:
        self._eyes = eyes
        self._namespace = namespace

    async def around(self, subject: Subject) -> Evidence:
        match subject:
            case ExternalSecret():
                refs: list[StoreRef | GeneratorRef] = list(dict.fromkeys(_read_from(subject)))
                secrets = await self._target(subject)
                template = subject.spec.target.template
            case PushSecret():
                refs = [ref async for ref in self._pushed_to(subject)]
                secrets = await self._pushed(subject)
                template = subject.spec.template
        classes = await self._classes()
        return Evidence(
            subject,
            sources=tuple([await self._source(ref, classes) for ref in refs[:MAX_SOURCES]]),
            templates=await self._templates(template),
            secrets=secrets,
            events=await self._events(subject),
            left_out=max(len(refs) - MAX_SOURCES, 0),
        )

    async def _target(self, subject: ExternalSecret) -> tuple[Sight, ...]:
        key, manifest = ObjectKey(self._namespace, target_name(subject)), subject.spec.target.manifest
        if manifest is None:
            return (await self._eyes.glance(SECRETS, key),)
        group, _, version = manifest.api_version.rpartition("/")
        resource = await self._eyes.resource(KindId(group, version, manifest.kind))
        if resource is None:
            return (Sight(manifest.kind, key, Look.ABSENT, f"the API server has no {manifest.kind}"),)
        return (await self._eyes.glance(resource, key),)

    async def _pushed(self, subject: PushSecret) -> tuple[Sight, ...]:
        secret = subject.spec.selector.secret
        if secret is None:
            return ()
        if secret.name or secret.selector is None:
            return (await self._eyes.glance(SECRETS, ObjectKey(self._namespace, secret.name)),)
        selection = _selection(self._namespace, secret.selector.query)
        listed = await self._eyes.list(metadata_of(SECRETS), selection) if selection else []
        found = tuple(Sight("Secret", each.key, metadata=each.metadata) for each in listed)
        nobody = Sight("Secret", ObjectKey(self._namespace, "by label"), Look.ABSENT, "no Secret matches the selector")
        return found[:MAX_SOURCES] or (nobody,)

    async def _pushed_to(self, subject: PushSecret) -> AsyncIterator[StoreRef | GeneratorRef]:
        if subject.spec.selector.generator_ref is not None:
            yield subject.spec.selector.generator_ref
        for ref in subject.spec.secret_store_refs:
            for name in [ref.name] if ref.label_selector is None else await self._labelled(ref):
                yield StoreRef(api_version=ref.api_version, kind=ref.kind, name=name)

    async def _labelled(self, ref: PushStoreRef) -> list[str]:
        resource = await self._eyes.resource(_kind_of(StoreRef(api_version=ref.api_version, kind=ref.kind, name="any")))
        selection = _selection(self._namespace, ref.label_selector.query) if ref.label_selector else None
        if resource is None or selection is None:
            return []
        return [each.metadata.name for each in await self._eyes.list(metadata_of(resource), selection)]

    async def _source(self, ref: StoreRef | GeneratorRef, classes: Classes) -> Source:
        key, validated = ObjectKey(self._namespace, ref.name), isinstance(ref, StoreRef)
        try:
            kind = _kind_of(ref)
        except ResolutionError as problem:
            return Source(Sight(ref.kind or "SecretStore", key, Look.ABSENT, problem.message), validated)
        resource = await self._eyes.resource(kind)
        if resource is None:
            why = f"the API server does not know {kind}; install its provider with its CRDs"
            return Source(Sight(kind.kind, key, Look.ABSENT, why), validated)
        seen = await self._eyes.read(raw(resource), key if resource.namespaced else ObjectKey("", ref.name))
        if isinstance(seen, Sight):
            return Source(seen, validated)
        route = route_of(resource, seen)
        providers = classes.serving(route, self._namespace if resource.namespaced else "")
        found = tuple(sight_of(one.resource, one.document) for one in providers)
        return Source(sight_of(resource, seen), validated, route, found or await self._named(route))

    async def _named(self, route: Route) -> tuple[Sight, ...]:
        """What a store names and no list has."""
        if route.resource is None:
            return ()
        return (await self._eyes.glance(route.resource, route.key),)

    async def _classes(self) -> Classes:
        found = Classes()
        for resource in Classes.RESOURCES:
            listed = await self._eyes.list(raw(resource), Selection())
            if not listed and resource.namespaced:  # perhaps only those of the own namespace may be listed
                listed = await self._eyes.list(raw(resource), Selection(self._namespace))
            found.add(resource, listed)
        return found

    async def _templates(self, template: Template | None) -> tuple[Sight, ...]:
        named = references(template)
        wanted = [(CONFIG_MAPS, name) for name in sorted(named.config_maps)]
        wanted += [(SECRETS, name) for name in sorted(named.secrets)]
        return tuple([await self._eyes.glance(kind, ObjectKey(self._namespace, name)) for kind, name in wanted])

    async def _events(self, subject: Subject) -> tuple[Recorded, ...]:
        kind = (EXTERNAL_SECRET if isinstance(subject, ExternalSecret) else PUSH_SECRET).name
        about = f"involvedObject.kind={kind},involvedObject.name={subject.metadata.name}"
        listed = await self._eyes.list(Kind(EVENTS, dict), Selection(self._namespace, field_selector=about))
        return tuple(sorted(_recorded(listed), key=lambda event: event.at)[-MAX_EVENTS:])


def _read_from(subject: ExternalSecret) -> Iterator[StoreRef | GeneratorRef]:
    for want in wants_of(subject.spec):
        yield want.generator if isinstance(want, Generate) else want.store


def _kind_of(ref: StoreRef | GeneratorRef) -> KindId:
    return normalise(ref, ObjectRef()).kind


def _selection(namespace: str, query: Callable[[], str]) -> Selection | None:
    try:
        return Selection(namespace, label_selector=query())
    except SelectorError:
        return None


def _recorded(documents: Iterable[JsonObject]) -> Iterator[Recorded]:
    for document in documents:
        try:
            yield msgspec.convert(document, Recorded)
        except msgspec.ValidationError:
            continue


def _hidden(problem: ApiError) -> str:
    if isinstance(problem, Forbidden):
        return "you may not read it"
    return f"cannot be read: {problem.message}"
