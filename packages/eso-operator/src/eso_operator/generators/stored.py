"""The generator in a GeneratorState, as it was when it generated; resolved like a live one for the clean-up.

    spec.resource of a GeneratorState -> stored_generator -> StoredObjects, in front of the live objects -> resolve

| stored kind | configuration | credentials |
|---|---|---|
| v1alpha1 generator | as stored | namespace of the state |
| v2 Generator | as stored; address or class of the live object, else found by kind | namespace of the state |
| provider's own namespaced kind | as stored | namespace of the state |
| any cluster-scoped kind | of the live object | of the live object |

A user who can write a GeneratorState controls its content. So a stored configuration never gets credentials of another
namespace, and for kinds that may name namespaces the live object is used. A clean-up for such a kind also needs the
operator's seal on the state (`generators/seals.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from eso_api.generators.clustergenerator import CLUSTER_GENERATOR
from eso_api.references import GENERATORS_GROUP, GeneratorRef
from eso_api.v2.generator import GENERATOR, GENERATOR_GROUP
from eso_operator.stores.loading import malformed, parse_kind, plain
from eso_operator.stores.resolved import ClusterObjects, ConfigBinding, Form, ResolvedStore, Scope
from eso_wire.kinds import KindId, ObjectRef
from kubebase.meta import JsonObject, Malformed, ObjectKey

_GENERATOR: Final = KindId(GENERATOR.group, GENERATOR.versions[0], GENERATOR.name)


@dataclass(frozen=True, slots=True)
class StoredGenerator:
    """The generator to resolve. Without a `document` the live object is used."""

    ref: GeneratorRef
    kind: KindId
    key: ObjectKey
    document: JsonObject | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"{self.ref.kind} {self.ref.name}"


def view_of(resolved: ResolvedStore, spec: Any) -> JsonObject:
    """Return the part of a generator to store, for a clean-up after it was changed or deleted.

    `spec` is its configuration; None if the provider reads the configuration itself.
    """
    ref = resolved.store if resolved.form is Form.GENERATOR else resolved.config.ref
    return {
        "apiVersion": ref.api_version,
        "kind": ref.kind,
        "metadata": {"name": ref.name, "namespace": ref.namespace},
        "spec": _provider_config(resolved.config, spec) if resolved.form is Form.GENERATOR else spec or {},
    }


def stored_generator(resource: Any, state: ObjectRef, objects: ClusterObjects) -> StoredGenerator:
    """Return the generator that a state holds. Raises ResolutionError if it holds none."""
    if not isinstance(resource, dict) or not isinstance(resource.get("spec", {}), dict):
        raise malformed(state, "spec.resource must be the generator that made it")
    api_version, kind = resource.get("apiVersion"), resource.get("kind")
    if not (isinstance(api_version, str) and api_version and isinstance(kind, str) and kind):
        raise malformed(state, "spec.resource must have the apiVersion and kind of a generator")
    metadata = resource.get("metadata")
    named: dict[str, Any] = metadata if isinstance(metadata, dict) else {}
    name = named.get("name")
    # A generator that was part of a ClusterGenerator may have been stored without a name.
    ref = GeneratorRef(api_version=api_version, kind=kind, name=name if isinstance(name, str) and name else state.name)
    found = parse_kind(api_version, kind)
    key = ObjectKey(state.namespace, ref.name)
    spec: dict[str, Any] = resource.get("spec", {})
    if found.group == GENERATORS_GROUP:
        document = None if kind == CLUSTER_GENERATOR.name else _document(ref, key, spec)
    elif found.group == GENERATOR_GROUP:
        document = _v2_document(ref, key, spec, objects) if kind == GENERATOR.name else None
    else:
        cluster = objects.scope(found) is Scope.CLUSTER or not named.get("namespace")
        document = None if cluster else _document(ref, key, spec)
    return StoredGenerator(ref, found, key, document)


class StoredObjects(ClusterObjects):
    """The live objects, with the stored generator in place of the live one of the same name."""

    def __init__(self, stored: StoredGenerator, cluster: ClusterObjects) -> None:
        self._stored = stored
        self._cluster = cluster

    def get(self, kind: KindId, key: ObjectKey) -> Any | None:
        if self._is_stored(kind) and key == self._stored.key:
            return self._stored.document
        return self._cluster.get(kind, key)

    def list(self, kind: KindId, namespace: str = "") -> Iterable[Any]:
        return self._cluster.list(kind, namespace)

    def scope(self, kind: KindId) -> Scope | None:
        return Scope.NAMESPACED if self._is_stored(kind) else self._cluster.scope(kind)

    def _is_stored(self, kind: KindId) -> bool:
        mine = self._stored.kind
        return self._stored.document is not None and (kind.group, kind.kind) == (mine.group, mine.kind)


def _provider_config(config: ConfigBinding, spec: Any) -> JsonObject:
    if spec is None:
        ref = config.ref
        named = {"apiVersion": ref.api_version, "kind": ref.kind, "name": ref.name, "namespace": ref.namespace}
        return {"providerConfig": {"providerRef": named}}
    inline = {"apiVersion": config.kind.api_version, "kind": config.kind.kind, "spec": spec}
    return {"providerConfig": {"inline": inline}}


def _v2_document(ref: GeneratorRef, key: ObjectKey, spec: dict[str, Any], objects: ClusterObjects) -> JsonObject | None:
    """Return the live Generator with the stored configuration; the stored one alone if no live one exists."""
    config = spec.get("providerConfig")
    inline = config.get("inline") if isinstance(config, dict) else None
    live = objects.get(_GENERATOR, key)
    if live is None or isinstance(live, Malformed):
        return _document(ref, key, spec)
    if inline is None:
        return None
    document = plain(live, ObjectRef(ref.api_version, ref.kind, key.namespace, key.name))
    current: dict[str, Any] = document.get("spec", {})
    address = {part: value for part, value in current.get("providerConfig", {}).items() if part != "providerRef"}
    return {**document, "spec": {**current, "providerConfig": {**address, "inline": inline}}}


def _document(ref: GeneratorRef, key: ObjectKey, spec: dict[str, Any]) -> JsonObject:
    metadata = {"name": key.name, "namespace": key.namespace}
    return {"apiVersion": ref.api_version, "kind": ref.kind, "metadata": metadata, "spec": spec}
