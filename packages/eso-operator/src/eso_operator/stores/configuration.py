"""Stages 6 and 11: the configuration that is sent with calls, and whether the provider can do with it what is needed.

| object | configuration's namespace |
|---|---|
| namespaced store, provider, generator | its own; naming another one is refused |
| cluster-scoped, ProviderNamespace | must be named |
| cluster-scoped, ManifestNamespace or v1 | the one named, else the caller's |
| provider's own kind, v1 store, v1alpha1 generator | the object is its own configuration |

`authentication.py` decides where the credentials come from. `rule` says which namespaces the references of the
configuration may name: only a cluster-scoped object may name any. Stage 11 checks the handshake of the provider for a
common protocol, the kind and the needed operations.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, assert_never

import msgspec

from eso_api.v2.connection import (
    GENERATOR_CONFIG_API_VERSION,
    STORE_CONFIG_API_VERSION,
    InlineConfig,
    ProviderConfig,
    ProviderRef,
)
from eso_api.validation import provider_config_problems
from eso_operator.stores.loading import (
    AuthScope,
    Bridged,
    LoadedStore,
    Owned,
    identity,
    is_built_in,
    is_ours,
    named,
    parse_kind,
    plain,
)
from eso_operator.stores.resolved import (
    ClusterView,
    ConfigBinding,
    Connection,
    Form,
    Need,
    Reason,
    ReferenceRule,
    ResolutionError,
    Scope,
)
from eso_wire.errors import RetryClass
from eso_wire.kinds import ConfigDelivery, Handshake, KindId, KindInfo, KindRole, ObjectRef
from eso_wire.pointers import depends_on_caller, stands_for
from eso_wire.versions import SUPPORTED, spelled
from kubebase.meta import ObjectKey

_CLUSTER = "Cluster"

JsonSpec = dict[str, Any] | None
"""A configuration; None if it is unknown."""


@dataclass(frozen=True, slots=True)
class WantedKind:
    """A kind of configuration."""

    role: KindRole
    kind: KindId
    scope: Scope = Scope.NAMESPACED

    def __str__(self) -> str:
        return str(self.kind)

    @property
    def kinds(self) -> tuple[KindId, ...]:
        """Return the kind itself, then its namespaced twin if it has one."""
        name = self.kind.kind
        if self.scope is Scope.CLUSTER and name.startswith(_CLUSTER) and name != _CLUSTER:
            return self.kind, self.kind._replace(kind=name.removeprefix(_CLUSTER))
        return (self.kind,)

    def declared(self, kinds: Collection[KindId]) -> bool:
        return any(kind in kinds for kind in self.kinds)

    def served(self, handshake: Handshake, spec: JsonSpec) -> KindInfo | None:
        del spec  # the kind alone decides
        infos = {info.kind: info for info in reversed(handshake.kinds) if info.role is self.role}
        return next((infos[kind] for kind in self.kinds if kind in infos), None)


@dataclass(frozen=True, slots=True)
class WantedGenerator:
    """A v1alpha1 generator, which is served as that kind or bridged by its name."""

    kind: KindId

    def __str__(self) -> str:
        return str(self.kind)

    def declared(self, kinds: Collection[KindId]) -> bool:
        return self.kind in kinds

    def served(self, handshake: Handshake, spec: JsonSpec) -> KindInfo | None:
        del spec  # the kind alone decides
        makers = [info for info in handshake.kinds if info.role is KindRole.GENERATOR]
        exact = next((info for info in makers if info.kind == self.kind), None)
        return exact or next((info for info in makers if info.v1_provider_key == self.kind.kind), None)


@dataclass(frozen=True, slots=True)
class WantedKey:
    """The key below `spec.provider` of a v1 store."""

    key: str

    def __str__(self) -> str:
        return f"spec.provider.{self.key}"

    def declared(self, keys: Collection[str]) -> bool:
        return self.key in keys

    def served(self, handshake: Handshake, spec: JsonSpec) -> KindInfo | None:
        """Return the served kind. Several kinds may serve one key, each for the blocks that meet its condition."""
        stores = (info for info in handshake.kinds if info.role is KindRole.STORE and info.v1_provider_key == self.key)
        return next((info for info in stores if stands_for(info.v1_when, spec)), None)


Wanted = WantedKind | WantedGenerator | WantedKey


_CONFIG_API_VERSION = {KindRole.STORE: STORE_CONFIG_API_VERSION, KindRole.GENERATOR: GENERATOR_CONFIG_API_VERSION}


@dataclass(frozen=True, slots=True)
class Configuration:
    """The configuration of the backend, and the kind that a provider must serve for it.

    `spec` is None if it is in the namespace of the caller and there is no caller: in the validation of a cluster-scoped
    store.
    """

    ref: ObjectRef
    wanted: Wanted
    rule: ReferenceRule
    spec: dict[str, Any] | None = field(repr=False)


def configure(store: LoadedStore, caller: ObjectRef, view: ClusterView) -> Configuration:
    """Return the configuration of a store for one caller."""
    match store.source:
        case Bridged(key=key, block=block):
            return Configuration(store.ref, WantedKey(key), _rule(store), block)
        case Owned() as owned if store.form is Form.V1_GENERATOR:
            return Configuration(owned.ref, WantedGenerator(owned.kind), ReferenceRule.IGNORE_EXPLICIT, owned.spec)
        case Owned() as owned:
            return Configuration(owned.ref, WantedKind(store.role, owned.kind, store.scope), _rule(store), owned.spec)
        case ProviderConfig() as config:
            return _configured(store, config, caller, view)
        case _:
            assert_never(store.source)


def _rule(store: LoadedStore) -> ReferenceRule:
    """Return the rule for a configuration that is part of the store object."""
    return ReferenceRule.OWN_NAMESPACE if store.namespaced else ReferenceRule.EXPLICIT_OR_AUTH


def _configured(store: LoadedStore, config: ProviderConfig, caller: ObjectRef, view: ClusterView) -> Configuration:
    if problems := provider_config_problems(config, _path(store)):
        raise _invalid(store, "; ".join(f"{problem.path}: {problem.message}" for problem in problems))
    if config.inline is not None:
        return _inline(store, config.inline)
    if config.provider_ref is None:
        raise AssertionError("a configuration without problems has a reference or is inline")
    return _referenced(store, config.provider_ref, caller, view)


def _inline(store: LoadedStore, inline: InlineConfig) -> Configuration:
    if not store.namespaced and store.behaviour.auth_scope is AuthScope.PROVIDER_NAMESPACE:
        raise ResolutionError(
            Reason.CONFIG_NAMESPACE_REQUIRED,
            f"{store}: an inline configuration has no namespace to take credentials from: set authenticationScope to"
            " ManifestNamespace, or name an object with providerRef",
            subject=store.ref,
        )
    kind = _config_kind(store, inline.api_version, inline.kind)
    return Configuration(store.ref, WantedKind(store.role, kind), _rule(store), inline.spec)


def _referenced(store: LoadedStore, ref: ProviderRef, caller: ObjectRef, view: ClusterView) -> Configuration:
    kind = _config_kind(store, ref.api_version, ref.kind)
    key = ObjectKey(_namespace(store, ref, caller), ref.name)
    _check_kind(store, kind, view)
    if not key.namespace:
        return Configuration(named(kind, key), WantedKind(store.role, kind), ReferenceRule.OWN_NAMESPACE, None)
    obj = view.objects.get(kind, key)
    if obj is None:
        raise ResolutionError(
            Reason.CONFIG_NOT_FOUND,
            f"{store} names {ref.kind} {key}, which does not exist: create it, or correct {_path(store)}.providerRef",
            subject=named(kind, key),
        )
    found = identity(kind, obj)
    spec = plain(obj, found).get("spec", {})
    if not isinstance(spec, dict):
        raise _invalid(store, f"the spec of {ref.kind} {key} must be an object")
    # Its author has rights in that namespace only, so its references must stay in the namespace of credentials.
    return Configuration(found, WantedKind(store.role, kind), ReferenceRule.OWN_NAMESPACE, spec)


def _config_kind(store: LoadedStore, api_version: str, kind: str) -> KindId:
    found = parse_kind(api_version or _CONFIG_API_VERSION[store.role], kind)
    if is_built_in(found) or is_ours(found):
        raise _invalid(store, f"{found} is no kind of a provider: set apiVersion and kind of its configuration")
    return found


def _namespace(store: LoadedStore, ref: ProviderRef, caller: ObjectRef) -> str:
    if store.namespaced:
        if ref.namespace not in ("", store.ref.namespace):
            raise ResolutionError(
                Reason.CROSS_NAMESPACE,
                f"{store} names {ref.kind} {ref.name} in namespace {ref.namespace}; a namespaced object may only use"
                f" its own namespace {store.ref.namespace}",
                subject=store.ref,
            )
        return store.ref.namespace
    if store.behaviour.auth_scope is AuthScope.PROVIDER_NAMESPACE and not ref.namespace:
        raise ResolutionError(
            Reason.CONFIG_NAMESPACE_REQUIRED,
            f"{store}: {_path(store)}.providerRef needs a namespace, because credentials come from it; or set"
            " authenticationScope to ManifestNamespace",
            subject=store.ref,
        )
    return ref.namespace or caller.namespace


def _check_kind(store: LoadedStore, kind: KindId, view: ClusterView) -> None:
    match view.objects.scope(kind):
        case Scope.NAMESPACED:
            return
        case Scope.CLUSTER:
            # It has conditions of its own, which a store in front of it must not bypass.
            raise _invalid(store, f"{kind.kind} is cluster-scoped: refer to it directly, or name a namespaced kind")
        case None:
            raise ResolutionError(
                Reason.UNKNOWN_KIND,
                f"{store} names a {kind}, which is no kind the operator knows: install the provider it belongs to with"
                f" its CustomResourceDefinitions, or correct {_path(store)}.providerRef",
                subject=store.ref,
                unwatched=kind,
            )
        case other:
            assert_never(other)


def _path(store: LoadedStore) -> str:
    match store.form:
        case Form.V1_PLUGIN:
            return "spec.provider.plugin"
        case Form.PROVIDER:
            return "spec"
        case _:
            return "spec.providerConfig"


def _invalid(store: LoadedStore, problem: str) -> ResolutionError:
    return ResolutionError(Reason.INVALID_CONFIG, f"{store}: {problem}", subject=store.ref)


# --- handshake -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Agreement:
    """The handshake and its description of this kind."""

    handshake: Handshake
    info: KindInfo


def incompatible(store: LoadedStore, label: str, handshake: Handshake) -> ResolutionError:
    """Return the error of a provider with which this operator shares no version of the protocol."""
    return ResolutionError(
        Reason.INCOMPATIBLE,
        f"{store}: provider {label} speaks protocol {spelled(handshake.supported)}, this operator speaks"
        f" {spelled(SUPPORTED)}: upgrade the older of the two",
        subject=store.ref,
    )


def agree(
    store: LoadedStore, connection: Connection, configuration: Configuration, need: Need, view: ClusterView
) -> Agreement:
    """Return the agreement. Raises ResolutionError if the provider cannot do what this caller needs."""
    handshake = _handshake(store, connection, view)
    label = connection.endpoint.label
    if handshake.selected is None:
        raise incompatible(store, label, handshake)
    info = configuration.wanted.served(handshake, configuration.spec)
    if info is None:
        raise ResolutionError(
            Reason.UNSUPPORTED_KIND,
            f"{store}: provider {label} ({handshake.provider_name} {handshake.provider_version}) does not serve"
            f" {configuration.wanted} as a {store.role.lower()}; it serves"
            f" {', '.join(sorted(str(kind.kind) for kind in handshake.kinds)) or 'nothing'}",
            subject=store.ref,
        )
    if missing := need.operations - info.operations:
        raise ResolutionError(
            Reason.NOT_IMPLEMENTED,
            f"{store}: provider {label} cannot {', '.join(sorted(missing))} with {info.kind.kind}",
            subject=store.ref,
        )
    return Agreement(handshake, info)


def bind_config(store: LoadedStore, configuration: Configuration, info: KindInfo) -> ConfigBinding:
    """Return the configuration in the delivery that the provider supports; inline, with credentials, if possible."""
    spec = configuration.spec
    inline = ConfigDelivery.INLINE in info.deliveries or spec is None
    if not inline and not _is_object(store):
        raise ResolutionError(
            Reason.UNSUPPORTED_KIND,
            f"{store}: its provider reads configurations itself, and this one is no object it could read: name one with"
            " providerRef",
            subject=store.ref,
        )
    return ConfigBinding(
        ref=configuration.ref,
        kind=info.kind,
        delivery=ConfigDelivery.INLINE if inline else ConfigDelivery.BY_REFERENCE,
        spec=msgspec.json.encode(spec, order="deterministic") if inline and spec is not None else None,
        credentials=info.credentials if inline else (),
        rule=configuration.rule,
        v1_key=configuration.wanted.key if isinstance(configuration.wanted, WantedKey) else "",
        by_caller=depends_on_caller(info.caller_dependences, spec),
        metadata_references=info.metadata_references,
    )


def _is_object(store: LoadedStore) -> bool:
    """Return whether the configuration is the whole spec of an object, which a provider could read itself."""
    match store.source:
        case ProviderConfig(provider_ref=ref):
            return ref is not None
        case Owned():
            return store.form is Form.DIRECT or store.namespaced
        case Bridged():
            return False


def _handshake(store: LoadedStore, connection: Connection, view: ClusterView) -> Handshake:
    found = view.handshakes.get(connection.key)
    if isinstance(found, Handshake):
        return found
    why = found or "there has been no handshake with it yet"
    raise ResolutionError(
        Reason.NOT_CONNECTED,
        f"{store}: provider {connection.endpoint.label} is not connected: {why}",
        subject=store.ref,
        retry=RetryClass.BACKOFF,
        connection=connection,
    )
