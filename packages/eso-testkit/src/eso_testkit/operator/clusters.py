"""A cluster as the resolver sees it, for tests: objects in memory, providers that response, reads that are noted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from eso_api.externalsecret import SECRET_TYPE_LABEL
from eso_api.kinds import KINDS
from eso_api.values import SecretBytes
from eso_operator.stores.credentialreader import Content, CredentialReader
from eso_operator.stores.resolved import ClusterView, Need, ResolverSettings, Scope, WatchedObjects
from eso_wire.values import CredentialPath, Handshake, KindId, KindInfo, KindRole, ObjectRef, Operation, Token
from eso_wire.versions import CURRENT, SUPPORTED
from kubebase.meta import JsonObject, ObjectKey, key_of

CORE = "external-secrets-system"
SETTINGS = ResolverSettings(core_namespace=CORE)
TENANTS_TOO = ResolverSettings(core_namespace=CORE, namespaced_providers=True)
"""Every namespace may have its own providers."""
API_AUDIENCE = "https://kubernetes.default.svc"
ANYTHING = Need(frozenset())

ALL_OPERATIONS = frozenset(Operation)


class ObjectsInMemory(WatchedObjects):
    """`Objects` from plain documents. A kind is known if one of its objects is, or if `watched` lists it.

    Kinds of the API are known from the start, as in an operator of the whole cluster.
    """

    def __init__(self, documents: Iterable[JsonObject] = (), watched: Mapping[KindId, Scope] | None = None) -> None:
        self._objects: dict[tuple[str, str], dict[ObjectKey, Any]] = {}
        self._scopes = {
            (kind.group, kind.name): Scope.NAMESPACED if kind.namespaced else Scope.CLUSTER for kind in KINDS
        }
        self._scopes |= {(kind.group, kind.kind): scope for kind, scope in (watched or {}).items()}
        for document in documents:
            self.add(document)

    def add(self, document: JsonObject) -> None:
        group = document["apiVersion"].rpartition("/")[0]
        name = (group, document["kind"])
        self._objects.setdefault(name, {})[key_of(document)] = document
        self._scopes.setdefault(name, Scope.NAMESPACED if key_of(document).namespace else Scope.CLUSTER)

    def get(self, kind: KindId, key: ObjectKey) -> Any | None:
        return self._objects.get((kind.group, kind.kind), {}).get(key)

    def list(self, kind: KindId, namespace: str = "") -> Iterable[Any]:
        found = self._objects.get((kind.group, kind.kind), {})
        return [obj for key, obj in found.items() if namespace in ("", key.namespace)]

    def scope(self, kind: KindId) -> Scope | None:
        return self._scopes.get((kind.group, kind.kind))

    def revision(self, kind: KindId) -> int:
        return -1 if self.scope(kind) is None else 0

    async def include(self, kind: KindId) -> bool:
        return self.scope(kind) is not None


class EveryConnection(Mapping[str, Handshake | str]):
    """Gives the same response for every connection."""

    def __init__(self, response: Handshake | str) -> None:
        self._answer = response

    def __getitem__(self, key: str) -> Handshake | str:
        return self._answer

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def obj(api_version: str, kind: str, name: str, namespace: str = "", **fields: Any) -> JsonObject:
    """Return an object; `labels`, `annotations` and `deletionTimestamp` go into its metadata."""
    metadata: JsonObject = {"name": name, "uid": f"uid-{namespace}-{name}", "generation": 1}
    if namespace:
        metadata["namespace"] = namespace
    for part in ("labels", "annotations", "deletionTimestamp"):
        if part in fields:
            metadata[part] = fields.pop(part)
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def namespace_object(name: str, **labels: str) -> JsonObject:
    return obj("v1", "Namespace", name, labels={"kubernetes.io/metadata.name": name, **labels})


def provider_service(name: str, namespace: str, *, kinds: str = "", v1_keys: str = "", **fields: Any) -> JsonObject:
    """Return a labelled Service with one port."""
    annotations = {
        "external-secrets.io/provider-kinds": kinds,
        "external-secrets.io/provider-v1-keys": v1_keys,
        **fields.pop("annotations", {}),
    }
    spec = {"ports": [{"name": "grpc", "port": 8080}], **fields.pop("spec", {})}
    labels = {"external-secrets.io/provider": "true"}
    return obj("v1", "Service", name, namespace, labels=labels, annotations=annotations, spec=spec)


def ready(status: str = "True", reason: str = "Valid", message: str = "") -> JsonObject:
    """Return a status with that Ready condition."""
    return {"conditions": [{"type": "Ready", "status": status, "reason": reason, "message": message}]}


def serving(
    *kinds: KindId, v1_key: str = "", role: KindRole = KindRole.STORE, credentials: tuple[CredentialPath, ...] = ()
) -> Handshake:
    """Return a provider that supports all operations for these kinds."""
    infos = tuple(
        KindInfo(kind, role, ALL_OPERATIONS, v1_provider_key=v1_key, credentials=credentials) for kind in kinds
    )
    return Handshake(CURRENT, SUPPORTED, "test", "1.0.0", "instance-1", infos)


def caller(namespace: str = "team-a", kind: str = "ExternalSecret", name: str = "db") -> ObjectRef:
    return ObjectRef(api_version="external-secrets.io/v1", kind=kind, namespace=namespace, name=name, uid="uid-caller")


def cluster(
    *documents: JsonObject,
    handshakes: Mapping[str, Handshake | str] | None = None,
    watched: Mapping[KindId, Scope] | None = None,
) -> ClusterView:
    return ClusterView(ObjectsInMemory(documents, watched), handshakes if handshakes is not None else {})


@dataclass
class NotedReads(CredentialReader):
    """A reader for which every object exists, and which records the reads."""

    secrets: list[ObjectKey] = field(default_factory=list)
    config_maps: list[ObjectKey] = field(default_factory=list)
    tokens: list[tuple[ObjectKey, tuple[str, ...]]] = field(default_factory=list)
    lifetimes: list[int] = field(default_factory=list)
    annotations: dict[str, str] = field(default_factory=dict)
    """Annotations of every object that is read."""
    missing: frozenset[ObjectKey] = frozenset()
    versions: dict[ObjectKey, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=lambda: {SECRET_TYPE_LABEL: "webhook"})
    """Labels of every Secret: every required label is present."""

    @property
    def namespaces(self) -> set[str]:
        """Return every namespace that was read."""
        keys = [*self.secrets, *self.config_maps, *(account for account, _ in self.tokens)]
        return {key.namespace for key in keys}

    async def secret(self, key: ObjectKey) -> Content | None:
        self.secrets.append(key)
        return self._every_object(key)

    async def config_map(self, key: ObjectKey) -> Content | None:
        self.config_maps.append(key)
        return self._every_object(key)

    async def service_account(self, key: ObjectKey) -> Content | None:
        return self._every_object(key)

    async def token(self, account: ObjectKey, audiences: tuple[str, ...], lifetime: int = 0) -> Token | None:
        self.tokens.append((account, audiences))
        self.lifetimes.append(lifetime)
        return None if account in self.missing else Token(SecretBytes(b"token-of-" + account.name.encode()))

    async def api_audiences(self, account: ObjectKey) -> frozenset[str]:
        del account
        return frozenset({API_AUDIENCE})

    def _every_object(self, key: ObjectKey) -> Content | None:
        if key in self.missing:
            return None
        return Content(f"uid-{key}", self.versions.get(key, "1"), _EveryKey(key), self.labels, self.annotations)


class _EveryKey(Mapping[str, SecretBytes]):
    """Data that has every key except `absent`."""

    def __init__(self, owner: ObjectKey) -> None:
        self._owner = owner

    def __getitem__(self, key: str) -> SecretBytes:
        if key == "absent":
            raise KeyError(key)
        return SecretBytes(f"{self._owner}:{key}".encode())

    def __iter__(self) -> Iterator[str]:
        return iter(("one", "two"))

    def __len__(self) -> int:
        return 2
