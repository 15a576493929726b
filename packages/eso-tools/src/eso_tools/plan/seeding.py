"""The objects of the private API server: the manifests, and copies of the live objects that they refer to.

A live object is copied once, before the first object that needs it. What the operator knows of an ExternalSecret or
PushSecret from its status is kept as far as it matters for the next refresh; the refresh itself is due at once, except
under policies that do not refresh.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from eso_operator.certificates.secrets import PART_LABEL
from eso_operator.generators.seals import SECRET_NAME as SEAL_SECRET
from eso_tools.manifests import Document, InputError, field_problems, path_of, rank
from eso_tools.plan.live import Live, place_of
from eso_tools.plan.needs import FANS_OUT, SYNCED, Need, identity, needs_of
from kubebase import durations
from kubebase.meta import JsonObject
from localkube.cluster import Cluster
from localkube.cluster.catalog import Target
from localkube.errors import StatusError
from localkube.manifests import ManifestError, install, refusal
from localkube.model import ServedKind, User, WriteOptions
from localkube.schema.metadata import dns_label

_OURS: Final = "external-secrets.io"
_COPIED: Final = {
    "ExternalSecret": ("binding", "manifests"),
    "PushSecret": ("syncedPushSecrets", "syncedVersions"),
}
_REFRESH: Final = ("refreshTime", "renewTime", "syncedResourceVersion", "conditions")
_USER: Final = User("eso-plan", ("system:masters",))

Place = tuple[tuple[str, str], str, str]


@dataclass(frozen=True, slots=True)
class Planned:
    """An ExternalSecret, a PushSecret or a parent of them, ready to be stored."""

    kind: ServedKind
    obj: JsonObject = field(repr=False)


class Seeder:
    """Puts objects into the private API server."""

    def __init__(self, cluster: Cluster, live: Live, namespace: str) -> None:
        self._cluster = cluster
        self._live = live
        self._namespace = namespace
        self._given: set[Place] = set()
        self._reads: set[Need] = set()
        self._problems: list[str] = []
        self.before: dict[Place, JsonObject] = {}
        """The live objects."""
        self.skipped: dict[str, int] = {}
        """Kinds that do not matter for a plan, with the number of their objects."""

    async def prepare(self, documents: Iterable[Document], unread: Iterable[str] = ()) -> list[Planned]:
        """Apply every manifest that others need; return the ExternalSecrets, PushSecrets and their parents.

        Raises an InputError that names every document that cannot be used, after the files that cannot be read.
        """
        self._problems = list(unread)
        wanted = [document for document in sorted(documents, key=rank) if self._is_usable(document)]
        self._given |= {self._place(document.content) for document in wanted}
        if any(identity(document.content) in FANS_OUT or _selects_namespaces(document) for document in wanted):
            for namespace in await self._live.namespaces():
                await self._install(namespace)
        others = [document for document in wanted if identity(document.content) not in SYNCED]
        for document in others:
            await self._apply(document)
        synced = [document for document in wanted if identity(document.content) in SYNCED]
        accepted = [(document, await self._accepted(document)) for document in synced]
        if self._problems:
            raise InputError("\n".join(self._problems))
        for document in wanted:
            await self.fetch_needs(document.content, self._namespace_of(document.content))
        return [await self._planned_object(document, obj) for document, obj in accepted if obj is not None]

    async def put(self, planned: Planned) -> None:
        """Put an object whose refresh is planned."""
        await self._store(planned.kind, planned.obj)

    async def _accepted(self, document: Document) -> JsonObject | None:
        """Return the object as the API server would store it; None if it is refused."""
        content, namespace = copy.deepcopy(document.content), self._namespace_of(document.content)
        kind = self._kind(content)
        try:
            await self._make_namespace(namespace)
            options = WriteOptions(_USER, field_manager="eso-plan", dry_run=True)
            return (await self._cluster.create(kind, namespace, content, options)).object
        except StatusError as problem:
            self._refuse(document, refusal(kind, document.content, problem))
        except ManifestError as problem:
            self._refuse(document, problem)
        return None

    async def _planned_object(self, document: Document, made: JsonObject) -> Planned:
        """Return the object to store: an update of the live one if there is one."""
        (group, name), metadata = identity(document.content), document.content["metadata"]
        found = await self._live.find(Need(group, name, self._namespace_of(document.content), str(metadata["name"])))
        return Planned(self._kind(document.content), updated(made, found[0]) if found else made)

    async def fetch_needs(self, obj: JsonObject, namespace: str) -> None:
        """Copy the live objects that an object refers to, and those that they refer to."""
        for need in needs_of(obj, namespace):
            for found in await self.fetch(need):
                await self.fetch_needs(found, str(found["metadata"].get("namespace", "")) or namespace)

    async def fetch(self, need: Need) -> list[JsonObject]:
        """Copy live objects that the manifests do not contain; return the new ones."""
        if need in self._reads:
            return []
        self._reads.add(need)
        new = []
        for obj in await self._live.find(need):
            place = place_of(obj)
            kind = self._cluster.catalog.find_kind(str(obj.get("apiVersion")), str(obj.get("kind")))
            if kind is None or place in self.before or _is_of_an_operator(obj):
                continue
            self.before[place] = obj
            if place not in self._given:
                await self._make_namespace(place[1])
                await self._store(kind, copied(obj))
                new.append(obj)
        return new

    # --- objects ------------------------------------------------------------------------------------------------------

    def _is_usable(self, document: Document) -> bool:
        """Return whether the document is planned, and note why it cannot be: `kubectl apply` would refuse it too."""
        match document.content:
            case {"apiVersion": str(version), "kind": str(kind), "metadata": {"name": str(), **more}}:
                if problem := namespace_problem(more.get("namespace") or ""):
                    self._note(document.problem(("metadata", "namespace"), f"metadata.namespace {problem}"))
                    return False
            case _:
                self._note(document.problem((), "an object needs apiVersion, kind and metadata.name"))
                return False
        served = self._cluster.catalog.find_kind(version, kind)
        if served is not None:
            wrong = field_problems(document, served.schema.openapi) if _is_strict(document) else []
            self._problems += wrong
            return not wrong
        if version.partition("/")[0].endswith(_OURS):
            what = f"{version} {kind} is not known: correct apiVersion or kind, or install the provider that defines it"
            self._note(document.problem((), what))
        else:
            self._skip(kind)
        return False

    async def _apply(self, document: Document) -> None:
        try:
            await self._make_namespace(self._namespace_of(document.content))
            await self._install(document.content)
        except ManifestError as problem:
            if _is_strict(document):
                self._refuse(document, problem)
            else:  # it may be valid in the cluster, whose version of the kind is not known here
                self._skip(identity(document.content)[1])

    def _refuse(self, document: Document, problem: ManifestError) -> None:
        self._note(document.problem(path_of(problem.field), str(problem)))

    def _note(self, problem: InputError) -> None:
        self._problems.append(str(problem))

    def _skip(self, kind: str) -> None:
        self.skipped[kind] = self.skipped.get(kind, 0) + 1

    async def _install(self, obj: JsonObject) -> None:
        metadata = {name: obj["metadata"].get(name) for name in ("name", "labels", "annotations", "namespace")}
        if self._kind(obj).resource.namespaced:
            metadata["namespace"] = self._namespace_of(obj)
        given = {name: part for name, part in metadata.items() if part}
        content = {name: part for name, part in obj.items() if name not in ("metadata", "status")}
        await install(self._cluster, [{**content, "metadata": given}])

    async def _make_namespace(self, name: str) -> None:
        if not name or self._cluster.store.latest(Target(self._namespaces, "", name).key) is not None:
            return
        found = await self._live.find(Need("", "Namespace", "", name))
        await self._install(found[0] if found else namespace_object(name))

    async def _store(self, kind: ServedKind, obj: JsonObject) -> None:
        metadata = obj["metadata"]
        version = kind.storage_version
        obj["apiVersion"] = f"{kind.resource.group}/{version}" if kind.resource.group else version
        key = Target(kind, str(metadata.get("namespace", "")), str(metadata["name"])).key
        await self._cluster.store.put(key, obj).committed()

    @property
    def _namespaces(self) -> ServedKind:
        return self._kind({"apiVersion": "v1", "kind": "Namespace"})

    def _kind(self, obj: JsonObject) -> ServedKind:
        kind = self._cluster.catalog.find_kind(str(obj["apiVersion"]), str(obj["kind"]))
        if kind is None:  # never: only served kinds come here
            raise InputError(f"{obj['apiVersion']} {obj['kind']} is not known")
        return kind

    def _namespace_of(self, obj: JsonObject) -> str:
        if not self._kind(obj).resource.namespaced:
            return ""
        return str(obj["metadata"].get("namespace") or self._namespace)

    def _place(self, obj: JsonObject) -> Place:
        return identity(obj), self._namespace_of(obj), str(obj["metadata"]["name"])


def copied(obj: JsonObject) -> JsonObject:
    """Return a live object for another server: without its status, and safe from garbage collection."""
    made = copy.deepcopy(obj)
    made.pop("status", None)
    metadata = made["metadata"]
    for name in ("finalizers", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"):
        metadata.pop(name, None)
    for owner in metadata.get("ownerReferences", []):
        # The owner may be missing here. An owner of a version that is not served counts as existing.
        owner["apiVersion"] = f"{owner['apiVersion'].rpartition('/')[0]}/elsewhere"
    return made


def updated(made: JsonObject, live: JsonObject) -> JsonObject:
    """Return an object as it is after its manifest was applied over the live one."""
    old = copied(live)["metadata"]
    metadata = made["metadata"]
    same = made.get("spec") == live.get("spec")
    for name in ("labels", "annotations"):
        if both := {**(old.get(name) or {}), **(metadata.get(name) or {})}:
            metadata[name] = both
    metadata |= {name: old[name] for name in ("uid", "creationTimestamp") if name in old}
    metadata["generation"] = int(old.get("generation") or 1) + (0 if same else 1)
    if status := copied_status(made, live.get("status") or {}):
        made["status"] = status
    return made


def copied_status(made: JsonObject, status: JsonObject) -> JsonObject:
    """Return the part of a status that the next refresh depends on."""
    spec = made.get("spec") or {}
    copied = {name: status[name] for name in _COPIED.get(str(made["kind"]), ()) if name in status}
    if _refreshes(spec):
        return copied
    conditions = status.get("conditions") or []
    if any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions):
        copied |= {name: status[name] for name in _REFRESH if name in status}
    return copied


def _refreshes(spec: JsonObject) -> bool:
    if spec.get("refreshPolicy") in ("CreatedOnce", "OnChange"):
        return False
    try:
        return durations.seconds(spec.get("refreshInterval", "1h"), field="spec.refreshInterval") > 0
    except (durations.DurationError, msgspec.ValidationError, TypeError):
        return True


def _is_of_an_operator(obj: JsonObject) -> bool:
    """Return whether an object holds keys of the operator that runs in the cluster."""
    metadata = obj["metadata"]
    return PART_LABEL in (metadata.get("labels") or {}) or metadata["name"] == SEAL_SECRET


def _selects_namespaces(document: Document) -> bool:
    """Return whether a store lists the namespaces that may use it by their labels."""
    spec: Any = document.content.get("spec")
    return isinstance(spec, dict) and bool(spec.get("conditions"))


def namespace_problem(name: Any) -> str:
    """Return why a namespace cannot have this name; empty if it can, and for no name."""
    if not isinstance(name, str):
        return "must be text"
    wrong = dns_label(name) if name else []
    return f'"{name}" cannot be the name of a namespace: {wrong[0]}' if wrong else ""


def namespace_object(name: str) -> JsonObject:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def _is_strict(document: Document) -> bool:
    """Return whether the kind is ours or Kubernetes' own core: of other kinds, the cluster may have another version."""
    group, _ = identity(document.content)
    return not group or group.endswith(_OURS)
