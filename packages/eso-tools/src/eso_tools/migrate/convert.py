"""One v1 store or v1alpha1 generator becomes its v2 objects, which resolve to the same provider and credentials.

    v1 object                      v2 objects
    SecretStore                    configuration object + SecretStore with providerRef
    ClusterSecretStore             ClusterSecretStore with inline configuration, authenticationScope ManifestNamespace
    spec.provider.plugin           the same block as providerConfig
    Password and other generators  configuration object + Generator with providerRef
    ClusterGenerator               ClusterGenerator with inline configuration, authenticationScope ManifestNamespace

A v1 cluster-scoped store reads each credential from the namespace that its reference names, else from the namespace of
its user. An inline configuration with ManifestNamespace has exactly this rule; a configuration object has not, because
its references must stay in one namespace. A v1alpha1 generator ignores the namespaces that references name: they are
left out.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from eso_api.generators.clustergenerator import CLUSTER_GENERATOR, SPEC_FIELDS
from eso_api.kinds import AnyKind
from eso_api.secretstore import CLUSTER_SECRET_STORE
from eso_api.v2.connection import GENERATOR_CONFIG_API_VERSION, STORE_CONFIG_API_VERSION
from eso_api.v2.generator import CLUSTER_GENERATOR_V2, GENERATOR
from eso_api.v2.policy import DISABLED, MANIFEST_NAMESPACE
from eso_api.v2.secretstore import CLUSTER_SECRET_STORE_V2, SECRET_STORE_V2
from eso_operator.stores.loading import PLUGIN_KEY
from eso_tools.migrate.bridges import Bridge, Bridges
from eso_tools.migrate.inventory import Id, id_of, spec_of
from eso_wire import pointers
from eso_wire.values import CredentialKind
from kubebase.meta import JsonObject
from localkube.schema.structural import StructuralSchema

LABEL: Final = "external-secrets.io/made-by"
MADE_BY: Final = "eso-migrate"
"""The label of every object that a migration creates. Only such objects are removed again."""
ORIGIN: Final = "external-secrets.io/migrated-from"
"""The annotation with the v1 object, as GROUP/KIND/NAME."""

_COPIED: Final = ("controller", "refreshInterval", "refreshTrigger", "retrySettings")
"""Fields of a v1 store that mean the same in a v2 store."""


class RefusedError(Exception):
    """A v1 object cannot be migrated. The message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Converted:
    """The v2 objects of one v1 object; users refer to the last one."""

    origin: Id
    objects: tuple[JsonObject, ...]
    existing: frozenset[Id] = frozenset()
    """Those that people wrote already: they are used, and neither changed nor removed."""

    @property
    def made(self) -> list[JsonObject]:
        return [obj for obj in self.objects if id_of(obj) not in self.existing]

    @property
    def store(self) -> JsonObject:
        return self.objects[-1]

    @property
    def reference(self) -> JsonObject:
        """Return the reference that names the v2 object."""
        return {
            "apiVersion": self.store["apiVersion"],
            "kind": self.store["kind"],
            "name": self.store["metadata"]["name"],
        }


# --- stores ----------------------------------------------------------------------------------------------------------


def convert_store(store: JsonObject, bridges: Bridges, labels: frozenset[str] = frozenset()) -> Converted:
    """Return the v2 objects of a v1 store. `labels` are the keys of labels that references select stores by."""
    origin, spec = _checked(store), spec_of(store)
    blocks = spec.get("provider")
    if not isinstance(blocks, dict) or len(blocks) != 1:
        raise RefusedError("spec.provider must have exactly one member; correct the store first")
    ((key, block),) = blocks.items()
    if not isinstance(block, dict):
        raise RefusedError(f"spec.provider.{key} must be an object; correct the store first")
    copied: JsonObject = {name: spec[name] for name in _COPIED if name in spec}
    made = _Maker(origin, {name: text for name, text in _labels(store).items() if name in labels})
    cluster = origin.kind == CLUSTER_SECRET_STORE.name
    if cluster:
        copied |= {"conditions": spec["conditions"]} if spec.get("conditions") else {}
        copied["authenticationScope"] = MANIFEST_NAMESPACE
    kind = CLUSTER_SECRET_STORE_V2 if cluster else SECRET_STORE_V2
    if key == PLUGIN_KEY:
        return Converted(origin, (made.object(kind, {**copied, "providerConfig": copy.deepcopy(block)}),))
    bridge = bridges.store(key, block)
    if bridge is None:
        raise RefusedError(_not_installed(f"spec.provider.{key}"))
    own = bridge.served.own_spec(copy.deepcopy(block))
    return _with_config(made, bridge, own, (kind, copied), STORE_CONFIG_API_VERSION)


# --- generators ------------------------------------------------------------------------------------------------------


def convert_generator(generator: JsonObject, bridges: Bridges, name: str = "") -> Converted:
    """Return the v2 objects of a v1alpha1 generator; `name` if its own one is taken by another kind."""
    origin, spec = _checked(generator), spec_of(generator)
    cluster = origin.kind == CLUSTER_GENERATOR.name
    kind, own = _embedded(spec) if cluster else (origin.kind, spec)
    bridge = bridges.generator(kind)
    if bridge is None:
        raise RefusedError(_not_installed(f"generator {kind}"))
    own = _without_namespaces(own, bridge, origin)
    copied: JsonObject = {name: own[name] for name in ("controller", "retrySettings") if own.get(name)}
    copied["gatingPolicy"] = DISABLED  # a v1alpha1 generator is called in every state
    if cluster:
        copied["authenticationScope"] = MANIFEST_NAMESPACE
    made = _Maker(origin, {}, name)
    target = CLUSTER_GENERATOR_V2 if cluster else GENERATOR
    return _with_config(made, bridge, own, (target, copied), GENERATOR_CONFIG_API_VERSION)


def _embedded(spec: JsonObject) -> tuple[str, JsonObject]:
    kind, embedded = spec.get("kind"), spec.get("generator")
    inner = embedded.get(SPEC_FIELDS.get(str(kind), "")) if isinstance(embedded, dict) else None
    if not isinstance(kind, str) or not isinstance(inner, dict):
        raise RefusedError("spec.generator must hold the spec of the generator that spec.kind names; correct it first")
    return kind, inner


def _without_namespaces(spec: JsonObject, bridge: Bridge, origin: Id) -> JsonObject:
    """Return the spec without namespaces in references: v1alpha1 generators ignore them, v2 generators do not."""
    own = copy.deepcopy(spec)
    found = pointers.expand(own, [path.pattern for path in bridge.credentials])
    for path, places in zip(bridge.credentials, found, strict=True):
        for pointer, reference in places:
            if not isinstance(reference, dict):
                continue
            if path.kind is not CredentialKind.CA_PROVIDER:
                reference.pop("namespace", None)
            elif origin.kind == CLUSTER_GENERATOR.name and not _has_bundle(own, pointer):
                raise RefusedError(
                    f"{pointer} takes a CA bundle from the namespace of each user, which a v2 ClusterGenerator cannot"
                    " do: put the bundle into caBundle, or use a Generator in each namespace"
                )
    return own


def _has_bundle(spec: JsonObject, pointer: str) -> bool:
    holder = pointers.at(spec, pointers.parent(pointer))
    return isinstance(holder, dict) and bool(holder.get("caBundle"))


# --- parts -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Maker:
    """Makes the v2 objects of one v1 object."""

    origin: Id
    labels: dict[str, str]
    name: str = ""

    def object(self, kind: AnyKind, spec: JsonObject) -> JsonObject:
        origin = self.origin
        metadata: JsonObject = {"name": self.name or origin.name}
        if kind.namespaced and origin.namespace:
            metadata["namespace"] = origin.namespace
        metadata["labels"] = {**self.labels, LABEL: MADE_BY}
        metadata["annotations"] = {ORIGIN: f"{origin.group}/{origin.kind}/{origin.name}"}
        return {"apiVersion": kind.resource().api_version, "kind": kind.name, "metadata": metadata, "spec": spec}


def _with_config(
    made: _Maker, bridge: Bridge, own: JsonObject, target: tuple[AnyKind, JsonObject], assumed: str
) -> Converted:
    """Return store or generator with its configuration: an object if it is namespaced, else inline."""
    kind, copied = target
    api_version = bridge.kind.resource().api_version
    named: JsonObject = {} if api_version == assumed else {"apiVersion": api_version}
    config = made.object(bridge.kind, own)
    if unknown := _unknown_fields(bridge.kind, config):
        raise RefusedError(f"{bridge.kind.name} has no field {', '.join(unknown)}; remove it from the v1 object first")
    if not kind.namespaced:
        inline = {**named, "kind": bridge.kind.name, "spec": own}
        return Converted(made.origin, (made.object(kind, {**copied, "providerConfig": {"inline": inline}}),))
    ref = {**named, "kind": bridge.kind.name, "name": config["metadata"]["name"]}
    store = made.object(kind, {**copied, "providerConfig": {"providerRef": ref}})
    return Converted(made.origin, (config, store))


def _unknown_fields(kind: AnyKind, obj: JsonObject) -> list[str]:
    """Return the fields that an API server would drop: the v2 object would mean something else."""
    return _schema(kind).prune(copy.deepcopy(obj))


def same_spec(kind: AnyKind, one: JsonObject, other: JsonObject) -> bool:
    """Return whether two objects of a kind say the same, with the defaults that an API server sets."""
    found = [copy.deepcopy(each) for each in (one, other)]
    for each in found:
        _schema(kind).default(each)
    return bool(spec_of(found[0]) == spec_of(found[1]))


@cache
def _schema(kind: AnyKind) -> StructuralSchema:
    schema = kind.crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return StructuralSchema(schema, kind.resource())


def _checked(obj: JsonObject) -> Id:
    if obj["metadata"].get("deletionTimestamp"):
        raise RefusedError("it is being deleted")
    return id_of(obj)


def _labels(obj: JsonObject) -> dict[str, str]:
    labels: Any = obj["metadata"].get("labels")
    return labels if isinstance(labels, dict) else {}


def _not_installed(what: str) -> str:
    return f"no installed provider serves {what}; install its package beside eso, and run the migration again"
