"""What a store depends on, and which store a reference means: the keys of the indexes through which changes wake users.

    consumer  --store_of-->  store  --needs_of-->  class, configuration object
                                    (Secrets, ConfigMaps, service accounts: `BoundTarget.sources`)

Only names: whether any of them exists, or may be used, is not decided here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from eso_api.references import GeneratorRef, StoreRef
from eso_api.v2.connection import GENERATOR_CONFIG_API_VERSION, STORE_CONFIG_API_VERSION, ProviderConfig
from eso_api.v2.generator import GENERATOR_GROUP
from eso_operator.stores.classes import CLASS, CLUSTER_CLASS
from eso_operator.stores.loading import PLUGIN_KEY, identity, typed
from eso_operator.stores.reference import is_cluster_scoped, normalise, parse_kind
from eso_operator.stores.target import ResolutionError
from eso_wire.values import KindId, ObjectRef


class ObjectId(NamedTuple):
    """An object whatever its version; the namespace of a cluster-scoped object is empty."""

    group: str
    kind: str
    namespace: str
    name: str


def store_of(ref: StoreRef | GeneratorRef, namespace: str) -> tuple[ObjectId, ...]:
    """What a reference from that namespace may mean. A provider's own kind is listed under both scopes."""
    try:
        reference = normalise(ref, ObjectRef(namespace=namespace))
    except ResolutionError:
        return ()
    kind = reference.kind
    own = ObjectId(kind.group, kind.kind, namespace, reference.name)
    cluster = own._replace(namespace="")
    match is_cluster_scoped(kind):
        case True:
            return (cluster,)
        case False:
            return (own,)
        case None:
            return own, cluster


def needs_of(kind: KindId, obj: Any) -> tuple[ObjectId, ...]:
    """The class and the configuration object that a store, generator or provider names."""
    ref = identity(kind, obj)
    config = _provider_config(obj, ref)
    if config is None:
        return ()
    needs = []
    if config.class_ref is not None:
        cls = CLASS if config.class_ref.kind == CLASS.kind else CLUSTER_CLASS
        needs.append(ObjectId(cls.group, cls.kind, ref.namespace if cls is CLASS else "", config.class_ref.name))
    if config.provider_ref is not None:
        default = GENERATOR_CONFIG_API_VERSION if kind.group == GENERATOR_GROUP else STORE_CONFIG_API_VERSION
        wanted = parse_kind(config.provider_ref.api_version or default, config.provider_ref.kind)
        # Of a cluster-scoped store without a namespace here, the namespace is each user's: `*` stands for all of them.
        namespace = ref.namespace or config.provider_ref.namespace or "*"
        needs.append(ObjectId(wanted.group, wanted.kind, namespace, config.provider_ref.name))
    return tuple(needs)


def _provider_config(obj: Any, ref: ObjectRef) -> ProviderConfig | None:
    """The connection, wherever the object keeps it; None when it has none, or one that does not read."""
    spec = getattr(obj, "spec", None)
    config = getattr(spec, "provider_config", None)
    if isinstance(config, ProviderConfig):
        return config
    block = getattr(spec, "provider", None)
    if isinstance(block, dict) and PLUGIN_KEY in block:
        try:
            return typed(block[PLUGIN_KEY], ProviderConfig, ref)
        except ResolutionError:
            return None
    return None
