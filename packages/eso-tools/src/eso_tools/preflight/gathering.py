"""Reads a cluster for `eso preflight`, with the rights of its user, into the values of a snapshot.

Every list is paged and bounded. A list that the user may not read becomes a `Gap`; the others are read. Only metadata
of Secrets is listed, and only of the records of the Helm releases that own a CRD, a Deployment or a ClusterRole of
External Secrets; the newest record of each is read. Go's chart lets users change every name, so `workload_of` considers
images, labels, container names and arguments.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from eso_api.kinds import KINDS, AnyKind
from eso_api.references import GENERATORS_GROUP
from eso_api.v2.providerclass import CLUSTER_PROVIDER_CLASS, PROVIDER_CLASS, ClusterProviderClass, ProviderClass
from eso_operator.flags import flags_in
from eso_operator.stores.discovery import PROVIDER_LABEL, announced
from eso_tools.objects import SECRETS, SERVICES
from eso_tools.preflight.helmrecords import KEEP, POLICY, TYPE, RecordError, is_managed, owner_of, release_of
from eso_tools.preflight.snapshot import (
    DEFINITIONS,
    DEPLOYMENTS,
    WEBHOOKS,
    Definition,
    Owner,
    Release,
    Running,
    Snapshot,
    SnapshotGap,
    Stored,
    UnreadObject,
    Webhook,
    Workload,
    WorkloadRole,
    is_ours,
)
from eso_tools.providers import Want
from kubebase.meta import JsonObject, Kind, Malformed, Object, Resource, meta_of, metadata_of, raw
from kuberun.client import Client
from kuberun.errors import ApiError, Forbidden, NotFound, Unauthorized, Unreachable
from kuberun.requests import ALL, Selection

ROLES: Final = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
"""They still name Go's release when its CRDs were replaced, which removes Helm's annotations, and its pods are gone."""
_CHART_LABELS: Final = "app.kubernetes.io/managed-by=Helm,app.kubernetes.io/name=external-secrets"
MAX_OBJECTS: Final = 20_000
"""Objects of one list that are looked at."""
_PAGE: Final = 200
_DEFINITIONS_PAGE: Final = 20
"""Definitions are large."""
_MAX_RELEASES: Final = 10

T = TypeVar("T")
F = TypeVar("F")


class Gatherer:
    """Reads one cluster once."""

    def __init__(self, client: Client, *, max_objects: int = MAX_OBJECTS) -> None:
        self._client = client
        self._max = max_objects
        self._gaps: list[SnapshotGap] = []

    async def gather(self, kinds: Sequence[AnyKind] = KINDS) -> Snapshot:
        """Return everything that could be read. Raises `ApiError` if the API server cannot be reached at all.

        `kinds` are those of the core and of the installed providers.
        """
        version = await self._client.read("/version", _Version)
        definitions = await self._selected(raw(DEFINITIONS), definition_of, size=_DEFINITIONS_PAGE)
        workloads = await self._selected(raw(DEPLOYMENTS), workload_of)
        roles = await self._selected(metadata_of(ROLES), owner_of_role, Selection(label_selector=_CHART_LABELS))
        owners = dict.fromkeys([*(each.owner for each in definitions), *(each.owner for each in workloads), *roles])
        return Snapshot(
            version=version.git_version,
            definitions=tuple(definitions),
            workloads=tuple(workloads),
            webhooks=tuple(await self._selected(raw(WEBHOOKS), webhook_of)),
            releases=tuple(await self._releases(list(filter(None, owners)))),
            running=tuple(await self._running()),
            objects=tuple(await self._objects(definitions, kinds)),
            unknown=await self._unknown(definitions, kinds),
            gaps=tuple(self._gaps),
        )

    async def gather_objects(self, kinds: Sequence[AnyKind]) -> Snapshot:
        """Return the objects of these kinds alone. Raises `ApiError` if the API server cannot be reached at all."""
        return Snapshot(objects=tuple(await self._objects((), kinds)), gaps=tuple(self._gaps))

    async def _objects(self, definitions: Sequence[Definition], kinds: Sequence[AnyKind] = KINDS) -> list[Stored]:
        known = {each.name: each.served for each in definitions} or await self._discovered(kinds)
        found: list[Stored] = []
        for custom in kinds:
            served = known.get(custom.crd_name, ())
            version = next((each for each in custom.versions if each in served), "")
            if version:
                documents = await self._selected(raw(custom.resource(version)), _itself)
                found += [Stored(custom, document) for document in documents]
        return found

    async def _unknown(self, definitions: Sequence[Definition], kinds: Sequence[AnyKind]) -> dict[str, int]:
        """Count the objects of each definition that none of these kinds has."""
        known = {custom.crd_name for custom in kinds}
        counts: dict[str, int] = {}
        for each in definitions:
            if each.name not in known and each.served:
                plural, _, group = each.name.partition(".")
                resource = Resource(group, each.served[0], plural, each.kind, namespaced=each.namespaced)
                counts[each.name] = len(await self._selected(metadata_of(resource), lambda found: found.metadata.name))
        return counts

    async def _discovered(self, kinds: Sequence[AnyKind]) -> dict[str, tuple[str, ...]]:
        """Return the versions that each group serves, for users who may not list definitions."""
        served: dict[str, tuple[str, ...]] = {}
        for group in dict.fromkeys(custom.group for custom in kinds):
            try:
                answer = await self._client.read(f"/apis/{group}", _Group)
            except (NotFound, Forbidden):
                continue
            served[group] = tuple(each.version for each in answer.versions)
        return {custom.crd_name: served.get(custom.group, ()) for custom in kinds}

    async def _running(self) -> list[Running]:
        labelled = Selection(label_selector=f"{PROVIDER_LABEL}=true")
        found = await self._selected(metadata_of(SERVICES), provider_of_service, labelled)
        classes: tuple[AnyKind, ...] = (PROVIDER_CLASS, CLUSTER_PROVIDER_CLASS)
        for custom in classes:
            found += await self._selected(custom.kind(), provider_of_class)
        return found

    async def _releases(self, owners: Sequence[Owner]) -> list[Release | UnreadObject]:
        read: list[Release | UnreadObject] = [await self._release(owner) for owner in owners[:_MAX_RELEASES]]
        return read + [
            UnreadObject(owner, f"only {_MAX_RELEASES} releases were read") for owner in owners[_MAX_RELEASES:]
        ]

    async def _release(self, owner: Owner) -> Release | UnreadObject:
        """Read the newest record of a release: what `helm uninstall` and `helm upgrade` compare with."""
        labels = f"owner=helm,name={owner.name}"
        selection = Selection(owner.namespace, label_selector=labels, field_selector=f"type={TYPE}")
        try:
            page = await self._client.list(metadata_of(SECRETS), selection)
            records = [each for each in page.items if isinstance(each, Object)]
            if not records:
                return UnreadObject(owner, "no record of it was found in Secrets of its namespace")
            newest = max(records, key=_revision)
            return release_of(owner, await self._client.get(raw(SECRETS), newest.key))
        except RecordError as problem:
            return UnreadObject(owner, f"its record cannot be used: {problem}")
        except Forbidden:
            return UnreadObject(owner, f"you may not read Secrets of namespace {owner.namespace}")
        except (Unreachable, Unauthorized):
            raise
        except ApiError as problem:
            return UnreadObject(owner, f"its record cannot be read: {problem.message}")

    async def _selected(
        self, kind: Kind[T], keep: Callable[[T], F | None], selection: Selection = ALL, *, size: int = _PAGE
    ) -> list[F]:
        """List a resource and return what `keep` returns for its objects, without None."""
        return [
            is_retained async for item in self._each(kind, selection, size) if (is_retained := keep(item)) is not None
        ]

    async def _each(self, kind: Kind[T], selection: Selection, size: int) -> AsyncIterator[T]:
        seen, what = 0, str(kind.resource)
        try:
            async for page in self._client.pages(kind, selection, size=size):
                for item in page.items:
                    if seen == self._max:
                        self._gaps.append(SnapshotGap(what, f"only the first {self._max} were looked at", partly=True))
                        return
                    seen += 1
                    if not isinstance(item, Malformed):
                        yield item
        except NotFound:  # of a list: the resource itself
            return
        except Forbidden:
            self._gaps.append(SnapshotGap(what, "you may not list them"))
        except (Unreachable, Unauthorized):
            raise
        except ApiError as problem:
            self._gaps.append(SnapshotGap(what, f"they cannot be listed: {problem.message}"))


class _Version(msgspec.Struct, rename="camel"):
    git_version: str = ""


class _GroupVersion(msgspec.Struct):
    version: str = ""


class _Group(msgspec.Struct):
    versions: list[_GroupVersion] = []


def _itself(document: JsonObject) -> JsonObject:
    return document


def _revision(record: Object) -> int:
    version = record.metadata.labels.get("version", "")
    return int(version) if version.isdecimal() else 0


_SERVICE_PREFIX: Final = "provider-"
"""The name of a provider's Service is, by convention, this and the name of its package."""


def definition_of(crd: JsonObject) -> Definition | None:
    """Return a definition of a group of External Secrets; None for every other one."""
    metadata, spec, status = meta_of(crd), crd.get("spec") or {}, crd.get("status") or {}
    if not is_ours(str(spec.get("group", ""))):
        return None
    versions = spec.get("versions") or ()
    return Definition(
        name=metadata.name,
        served=tuple(str(each["name"]) for each in versions if each.get("served")),
        storage=next((str(each["name"]) for each in versions if each.get("storage")), ""),
        stored_versions=tuple(status.get("storedVersions") or ()),
        conversion=_conversion(spec.get("conversion") or {}),
        owner=owner_of(metadata.annotations),
        managed_by_helm=is_managed(metadata.labels),
        is_retained=metadata.annotations.get(POLICY) == KEEP,
        kind=str((spec.get("names") or {}).get("kind", "")),
        namespaced=spec.get("scope") != "Cluster",
    )


def webhook_of(configuration: JsonObject) -> Webhook | None:
    """Return a configuration of the operator in Go; None for others, such as a policy engine that judges our kinds."""
    hooks = [hook for hook in configuration.get("webhooks") or () if is_ours(str(hook.get("name", "")))]
    if not hooks:
        return None
    services = dict.fromkeys(_served_by(hook.get("clientConfig")) for hook in hooks)
    metadata = meta_of(configuration)
    return Webhook(metadata.name, tuple(services), owner_of(metadata.annotations))


def owner_of_role(role: Object) -> Owner | None:
    """Return the Helm release of a role."""
    return owner_of(role.metadata.annotations)


def provider_of_service(service: Object) -> Running:
    """Return the provider behind a labelled Service: what its annotations announce."""
    kinds, keys = announced(service.metadata.annotations)
    serves = {Want(kind.group, kind.kind) for kind in kinds}
    serves |= {Want(group, key) for key in keys for group in ("", GENERATORS_GROUP)}
    name = service.metadata.name.removeprefix(_SERVICE_PREFIX)
    return Running(f"Service {service.key}", frozenset(serves), name)


def provider_of_class(found: ProviderClass | ClusterProviderClass) -> Running:
    """Return the provider of a class: what it must serve, and what it reported."""
    serves = {Want(kind.group, kind.kind) for kind in found.status.kinds}
    keys = {kind.v1_provider_key for kind in found.status.kinds} | {*found.spec.v1_provider_keys}
    serves |= {Want(group, key) for key in keys - {""} for group in ("", GENERATORS_GROUP)}
    return Running(f"{type(found).__name__} {found.key}", frozenset(serves))


def _conversion(conversion: JsonObject) -> str:
    if conversion.get("strategy") != "Webhook":
        return ""
    return _served_by((conversion.get("webhook") or {}).get("clientConfig"))


def _served_by(config: Any) -> str:
    match config:
        case {"service": {"namespace": str(namespace), "name": str(name)}}:
            return f"{namespace}/{name}"
        case _:
            return "a URL"


_GO_IMAGE: Final = "external-secrets/external-secrets"
_OUR_IMAGE: Final = "eso-operator"
_OUR_FLAGS: Final = frozenset({"core-namespace", "provider-namespace", "trust-domain", "service-account"})
"""Flags that only this operator has."""
_NAME_LABEL: Final = "app.kubernetes.io/name"
_NAMES: Final = {
    "external-secrets": WorkloadRole.GO_OPERATOR,
    "external-secrets-webhook": WorkloadRole.GO_WEBHOOK,
    "external-secrets-cert-controller": WorkloadRole.GO_CERTIFICATES,
}
"""Values of the name label in Go's chart."""
_SUBCOMMANDS: Final = {"webhook": WorkloadRole.GO_WEBHOOK, "certcontroller": WorkloadRole.GO_CERTIFICATES}
"""The first argument selects what the image in Go runs."""


def workload_of(deployment: JsonObject) -> Workload | None:
    """Return a Deployment of one of the operators; None for every other one."""
    metadata, spec = meta_of(deployment), deployment.get("spec") or {}
    labels = metadata.labels
    for container in ((spec.get("template") or {}).get("spec") or {}).get("containers") or ():
        if (role := _role(container, labels)) is not None:
            return Workload(
                metadata.key,
                role,
                replicas=spec.get("replicas", 1),
                arguments=_arguments(container),
                selector=spec.get("selector") or {},
                owner=owner_of(metadata.annotations),
            )
    return None


def _role(container: JsonObject, labels: dict[str, str]) -> WorkloadRole | None:
    repository = str(container.get("image", "")).partition("@")[0]
    name = repository.rpartition("/")[2].partition(":")[0]
    words = _arguments(container)
    flags = {flag for flag, _ in flags_in(words)}
    is_named = labels.get(_NAME_LABEL) in _NAMES or container.get("name") == "external-secrets"
    if name == _OUR_IMAGE or (is_named and flags & _OUR_FLAGS):
        return WorkloadRole.OURS
    is_go = _path(repository).endswith(_GO_IMAGE)
    if not is_go and not is_named:
        return None
    subcommand = next((_SUBCOMMANDS[word] for word in words if word in _SUBCOMMANDS), None)
    return subcommand or _NAMES.get(labels.get(_NAME_LABEL, ""), WorkloadRole.GO_OPERATOR)


def _path(repository: str) -> str:
    """Return an image without its tag; a colon before the last slash belongs to a port."""
    folder, slash, last = repository.rpartition("/")
    return f"{folder}{slash}{last.partition(':')[0]}"


def _arguments(container: JsonObject) -> tuple[str, ...]:
    given: list[Any] = [*(container.get("command") or ()), *(container.get("args") or ())]
    return tuple(str(word) for word in given)
