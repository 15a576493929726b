"""Stages 1 to 3: fill in the defaults of a reference, find the form of the object that it names, and load that object.

Every form is loaded as a `LoadedStore`. A namespaced object is looked up in the caller's namespace only: a reference
cannot name another one. The error about a missing object suggests another kind or generation of that name, or a similar
name.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, TypeVar, assert_never

import msgspec

from eso_api.common import POLL, NamespaceCondition, RetrySettings
from eso_api.crd import CustomKind
from eso_api.generators.clustergenerator import CLUSTER_GENERATOR, SPEC_FIELDS
from eso_api.kinds import GENERATOR_KINDS, KINDS
from eso_api.references import CORE_GROUP, STORE_KINDS, GeneratorRef, StoreRef
from eso_api.secretstore import CLUSTER_SECRET_STORE, SECRET_STORE, SecretStoreSpec
from eso_api.v2.connection import ProviderConfig
from eso_api.v2.generator import CLUSTER_GENERATOR_V2, GENERATOR, ClusterGeneratorV2Spec
from eso_api.v2.policy import DISABLED, MANIFEST_NAMESPACE, PROVIDER_NAMESPACE, ClusterPolicy, Policy
from eso_api.v2.provider import CLUSTER_PROVIDER, PROVIDER
from eso_api.v2.secretstore import CLUSTER_SECRET_STORE_V2, SECRET_STORE_V2
from eso_operator.stores.resolved import CallPolicy, ClusterView, Form, Reason, ResolutionError, Scope
from eso_wire.errors import RetryClass
from eso_wire.kinds import KindId, KindRole, ObjectRef
from kubebase import durations
from kubebase.hints import did_you_mean, similar
from kubebase.meta import Condition, JsonObject, Malformed, ObjectKey, ObjectMeta, meta_of
from kuberun.source import error_text

_STORES: Final[dict[CustomKind[Any], Form]] = {
    SECRET_STORE: Form.V1,
    CLUSTER_SECRET_STORE: Form.V1,
    SECRET_STORE_V2: Form.STORE,
    CLUSTER_SECRET_STORE_V2: Form.STORE,
    PROVIDER: Form.PROVIDER,
    CLUSTER_PROVIDER: Form.PROVIDER,
}
_GENERATORS: Final[dict[CustomKind[Any], Form]] = {
    GENERATOR: Form.GENERATOR,
    CLUSTER_GENERATOR_V2: Form.GENERATOR,
    CLUSTER_GENERATOR: Form.V1_GENERATOR,
    **dict.fromkeys(GENERATOR_KINDS, Form.V1_GENERATOR),
}
_FORMS: Final = {KindRole.STORE: _STORES, KindRole.GENERATOR: _GENERATORS}

# An earlier draft had Providers in v1; references may still use that version.
_OTHER_VERSIONS: Final = {PROVIDER: ("v1",), CLUSTER_PROVIDER: ("v1",)}

_OUR_GROUPS: Final = frozenset(kind.group for kind in KINDS)


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference with all defaults filled in."""

    kind: KindId
    name: str
    role: KindRole
    caller: ObjectRef

    def __str__(self) -> str:
        return f"{self.kind.kind} {self.name}"

    @property
    def subject(self) -> ObjectRef:
        """Return the object that the reference names; it may not exist."""
        return ObjectRef(api_version=self.kind.api_version, kind=self.kind.kind, name=self.name)


@dataclass(frozen=True, slots=True)
class Picked:
    """The form of the object that a reference names. `custom` is None for a kind of a provider."""

    form: Form
    scope: Scope
    kind: KindId
    custom: CustomKind[Any] | None


def key_of(kind: KindId, name: str) -> str:
    """Return the key of a store in `status.syncedPushSecrets`."""
    return f"{kind.kind}/{name}" if kind.group == CORE_GROUP else f"{kind.group}/{kind.kind}/{name}"


def normalise(ref: StoreRef | GeneratorRef, caller: ObjectRef) -> Reference:
    """Stage 1: fill in defaults. A store reference without apiVersion means our group; without kind, SecretStore."""
    match ref:
        case StoreRef():
            role, kind, api_version = KindRole.STORE, ref.kind or "SecretStore", ref.api_version
            group = CORE_GROUP
        case GeneratorRef():
            role, kind, api_version, group = KindRole.GENERATOR, ref.kind, ref.api_version, ""
    named = parse_kind(api_version, kind) if api_version else KindId(group, "", kind)
    reference = Reference(named, ref.name, role, caller)
    if not ref.name:
        raise ResolutionError(
            Reason.NOT_FOUND, f"the {role.lower()} reference has no name: set it", subject=reference.subject
        )
    return reference


def check_gate(reference: Reference, *, v2_stores: bool) -> None:
    """Raise ResolutionError if the reference names a v2 kind or a provider's own kind, and the gate is off."""
    if v2_stores or not _is_v2(reference):
        return
    raise ResolutionError(
        Reason.FEATURE_DISABLED,
        f"{reference} is not read because the feature gate V2Stores is off: start the operator with"
        " --feature-gates=V2Stores=true, or refer to a v1 kind",
        subject=reference.subject,
        retry=RetryClass.NEVER,
    )


def _is_v2(reference: Reference) -> bool:
    forms = {(custom.group, custom.name): form for custom, form in _FORMS[reference.role].items()}
    form = forms.get((reference.kind.group, reference.kind.kind))
    if form is not None:
        return form in (Form.STORE, Form.PROVIDER, Form.GENERATOR)
    return not is_ours(reference.kind) and not is_built_in(reference.kind)


def pick(reference: Reference, view: ClusterView) -> Picked:
    """Stage 2: return the form, which depends on group and kind only."""
    for custom, form in _FORMS[reference.role].items():
        if (custom.group, custom.name) == (reference.kind.group, reference.kind.kind):
            return _ours(reference, custom, form)
    if reference.kind.group in _OUR_GROUPS or is_built_in(reference.kind):
        raise _no_such_kind(reference)
    scope = view.objects.scope(reference.kind)
    if scope is None:
        raise ResolutionError(
            Reason.UNKNOWN_KIND,
            f"{reference}: {reference.kind} is no kind the operator knows: install the provider it belongs to with its"
            " CustomResourceDefinitions, or correct apiVersion and kind",
            subject=reference.subject,
            unwatched=reference.kind,
        )
    return Picked(Form.DIRECT, scope, reference.kind, None)


def parse_kind(api_version: str, kind: str) -> KindId:
    """Parse an apiVersion: `group/version` or, for the core group, `version`."""
    group, _, version = api_version.rpartition("/")
    return KindId(group, version, kind)


def is_built_in(kind: KindId) -> bool:
    """Return whether a kind belongs to Kubernetes. Such objects must not be sent to a provider as configuration."""
    group = kind.group
    return "." not in group or group.endswith((".k8s.io", ".kubernetes.io")) or group in ("k8s.io", "kubernetes.io")


def is_ours(kind: KindId) -> bool:
    """Return whether a kind belongs to our API groups, so that it cannot configure a provider."""
    return kind.group in _OUR_GROUPS


def namesakes(reference: Reference, picked: Picked) -> list[KindId]:
    """Return kinds of other API groups with the same name, which a reference without apiVersion may mean."""
    return [
        KindId(custom.group, custom.versions[0], custom.name)
        for custom in _FORMS[reference.role]
        if custom.name == picked.kind.kind and custom.group != picked.kind.group
    ]


def alternatives(reference: Reference, picked: Picked) -> list[KindId]:
    """Return the other kinds that a reference to a store may mean; only those of the same name for a generator."""
    if reference.role is KindRole.GENERATOR:
        return namesakes(reference, picked)
    kinds = [KindId(custom.group, custom.versions[0], custom.name) for custom in _STORES]
    return sorted((kind for kind in kinds if kind != picked.kind), key=lambda kind: kind.group != picked.kind.group)


def _ours(reference: Reference, custom: CustomKind[Any], form: Form) -> Picked:
    version = reference.kind.version
    if version and version not in (*custom.versions, *_OTHER_VERSIONS.get(custom, ())):
        raise ResolutionError(
            Reason.UNKNOWN_KIND,
            f"{reference}: {custom.group} has no {custom.name} of version {version}; use {', '.join(custom.versions)}",
            subject=reference.subject,
        )
    scope = Scope.NAMESPACED if custom.namespaced else Scope.CLUSTER
    return Picked(form, scope, KindId(custom.group, custom.versions[0], custom.name), custom)


def _no_such_kind(reference: Reference) -> ResolutionError:
    match reference.role:
        case KindRole.STORE:
            hint = f"a store is a {', '.join(STORE_KINDS)} or a provider's own kind with its apiVersion"
        case KindRole.GENERATOR:
            hint = "a generator is a kind of generators.external-secrets.io, a v2 Generator, or a provider's own kind"
    return ResolutionError(
        Reason.UNKNOWN_KIND, f"{reference}: {reference.kind} cannot be used here; {hint}", subject=reference.subject
    )


# --- objects ---------------------------------------------------------------------------------------------------------


class AuthScope(StrEnum):
    """The namespace that a cluster-scoped object takes credentials from."""

    PROVIDER_NAMESPACE = "ProviderNamespace"
    MANIFEST_NAMESPACE = "ManifestNamespace"
    REFERENT = "referent"
    """v1: the namespace that a reference names, else the caller's."""
    UNSET = "unsaid"
    """The class of the provider decides."""


class Gating(StrEnum):
    """The way in which a store that is not ready stops its users."""

    FLOOD_GATE = "flood gate"
    """v1: only Ready=True lets readers through."""
    POLICY = "policy"
    """v2: only Ready=False stops."""
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Bridged:
    """A v1 store: the block below `spec.provider.<key>` is sent to the provider of that key."""

    key: str
    block: dict[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Owned:
    """An object that is its own configuration: a kind of a provider, or a v1alpha1 generator."""

    kind: KindId
    ref: ObjectRef
    spec: dict[str, Any] = field(repr=False)


Source = ProviderConfig | Bridged | Owned
"""The source of the configuration, with the store's settings for reaching the provider."""


@dataclass(frozen=True, slots=True)
class Behaviour:
    """The common fields of stores, with defaults filled in."""

    controller: str
    conditions: tuple[NamespaceCondition, ...]
    auth_scope: AuthScope
    gating: Gating
    policy: CallPolicy


@dataclass(frozen=True, slots=True)
class LoadedStore:
    """The object that a reference names."""

    form: Form
    role: KindRole
    scope: Scope
    ref: ObjectRef
    behaviour: Behaviour
    source: Source
    ready: Condition | None
    deleted: bool

    def __str__(self) -> str:
        return f"{self.ref.kind} {self.ref.namespace}/{self.ref.name}".replace(" /", " ")

    @property
    def namespaced(self) -> bool:
        return self.scope is Scope.NAMESPACED


T = TypeVar("T")

PLUGIN_KEY = "plugin"


def load(reference: Reference, picked: Picked, view: ClusterView) -> LoadedStore:
    """Return the object that a reference names. Raises ResolutionError if it does not exist or is malformed."""
    namespace = reference.caller.namespace if picked.scope is Scope.NAMESPACED else ""
    obj = view.objects.get(picked.kind, ObjectKey(namespace, reference.name))
    if obj is None:
        where = f" in namespace {namespace}" if namespace else ""
        message = f"there is no {reference}{where}: create it, or correct the reference{sharing(picked.kind)}"
        for other in namesakes(reference, picked):
            if view.objects.get(other, ObjectKey(namespace, reference.name)) is not None:
                message = f"there is no {reference} of {picked.kind.group}{where}, but one of {other.group}: set"
                message += f" apiVersion {other.api_version} in the reference"
        if view.objects.scope(picked.kind) is None:
            message = f"{reference} is not known: this operator does not read objects of that kind; use another kind"
        raise ResolutionError(
            Reason.NOT_FOUND,
            message,
            subject=named(picked.kind, ObjectKey(namespace, reference.name)),
        )
    ref = identity(picked.kind, obj)
    match picked.form:
        case Form.V1 | Form.V1_PLUGIN:
            return _v1(reference, picked, ref, obj)
        case Form.STORE | Form.PROVIDER | Form.GENERATOR:
            return _v2(reference, picked, ref, obj)
        case Form.DIRECT:
            return _direct(reference, picked, ref, plain(obj, ref))
        case Form.V1_GENERATOR:
            return _v1_generator(reference, picked, ref, plain(obj, ref))
        case _:
            assert_never(picked.form)


def sharing(kind: KindId) -> str:
    """Return the hint for a missing SecretStore: one of another namespace is not found, whether it exists or not."""
    if kind.kind != SECRET_STORE.name:
        return ""
    return " (a SecretStore is only visible in its own namespace, use a ClusterSecretStore to share one)"


def identity(kind: KindId, obj: Any) -> ObjectRef:
    """Return the reference to an object, with its uid and generation."""
    return identified(kind, meta_of(obj))


def identified(kind: KindId, meta: ObjectMeta) -> ObjectRef:
    return ObjectRef(
        api_version=kind.api_version,
        kind=kind.kind,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        generation=meta.generation,
    )


def named(kind: KindId, key: ObjectKey) -> ObjectRef:
    """Return the reference to an object that may not exist, without uid and generation."""
    return ObjectRef(api_version=kind.api_version, kind=kind.kind, namespace=key.namespace, name=key.name)


def typed(obj: Any, type_: type[T], subject: ObjectRef) -> T:
    """Return the object as this type; convert it from JSON if necessary."""
    if isinstance(obj, type_):
        return obj
    try:
        return msgspec.convert(plain(obj, subject), type_)
    except msgspec.ValidationError as error:
        raise malformed(subject, error_text(error)) from None


def plain(obj: Any, subject: ObjectRef) -> JsonObject:
    """Return the object as plain JSON. Raises ResolutionError if it could not be decoded."""
    if isinstance(obj, Malformed):
        raise malformed(subject, obj.error)
    document: JsonObject = obj if isinstance(obj, dict) else msgspec.to_builtins(obj)
    return document


def controller_named(picked: Picked, obj: Any) -> str:
    """Return the controller class that an object of any form names; empty for none.

    It works on malformed objects too, so that this operator reports nothing on objects of another controller class.
    """
    spec = _member(obj, "spec")
    match picked.form:
        case Form.DIRECT:
            holder = _member(spec, "common")
        case Form.V1_GENERATOR if picked.custom is CLUSTER_GENERATOR:
            embedded = _member(spec, "generator")
            holder = next(iter(embedded.values()), None) if isinstance(embedded, dict) else None
        case _:
            holder = spec
    named = _member(holder, "controller")
    return named if isinstance(named, str) else ""


def malformed(subject: ObjectRef, problem: str) -> ResolutionError:
    return ResolutionError(
        Reason.MALFORMED, f"{subject.kind} {subject.name} cannot be used: {problem}", subject=subject
    )


# --- v1 stores -------------------------------------------------------------------------------------------------------


def _v1(reference: Reference, picked: Picked, ref: ObjectRef, obj: Any) -> LoadedStore:
    spec: SecretStoreSpec = _custom(picked, ref, obj).spec
    key = spec.provider_key
    if not key:
        raise malformed(ref, f"spec.provider must name exactly one provider, not {len(spec.provider)}")
    cluster = picked.scope is Scope.CLUSTER
    policy = _call_policy(ref, spec.refresh_interval, spec.retry_settings, gated=Gating.FLOOD_GATE)
    behaviour = Behaviour(
        controller=spec.controller,
        conditions=tuple(spec.conditions) if cluster else (),
        auth_scope=AuthScope.REFERENT,
        gating=Gating.FLOOD_GATE,
        policy=replace(policy, watch_allowed=spec.refresh_trigger != POLL),
    )
    source: Source
    if key == PLUGIN_KEY:
        source = typed(spec.provider[key], ProviderConfig, ref)
    else:
        source = Bridged(key, _block(spec.provider[key], key, ref))
    return LoadedStore(
        form=Form.V1_PLUGIN if key == PLUGIN_KEY else Form.V1,
        role=reference.role,
        scope=picked.scope,
        ref=ref,
        behaviour=behaviour,
        source=source,
        ready=ready_condition(obj),
        deleted=False,  # v1 stores serve until they are deleted
    )


def _block(block: Any, key: str, ref: ObjectRef) -> dict[str, Any]:
    if not isinstance(block, dict):
        raise malformed(ref, f"spec.provider.{key} must be an object")
    return block


# --- v2 stores, generators, providers --------------------------------------------------------------------------------


def _v2(reference: Reference, picked: Picked, ref: ObjectRef, obj: Any) -> LoadedStore:
    spec = _custom(picked, ref, obj).spec
    return LoadedStore(
        form=picked.form,
        role=reference.role,
        scope=picked.scope,
        ref=ref,
        behaviour=_behaviour(spec, ref, _scope_of(spec, ref)),
        source=spec.provider_config,
        ready=ready_condition(obj),
        deleted=meta_of(obj).deletion_timestamp is not None,
    )


def _scope_of(spec: Policy, ref: ObjectRef) -> AuthScope:
    """Return the scope that a cluster-scoped object sets; UNSAID for a namespaced one."""
    match spec:
        case ClusterGeneratorV2Spec():
            return auth_scope(spec.scope, ref)
        case ClusterPolicy():
            return auth_scope(spec.authentication_scope, ref)
        case _:
            return AuthScope.UNSET


def auth_scope(given: str, subject: ObjectRef) -> AuthScope:
    """Parse a scope. Raises ResolutionError if it is invalid."""
    if given not in (PROVIDER_NAMESPACE, MANIFEST_NAMESPACE):
        raise malformed(subject, f"authenticationScope must be {PROVIDER_NAMESPACE} or {MANIFEST_NAMESPACE}")
    return AuthScope(given)


def _direct(reference: Reference, picked: Picked, ref: ObjectRef, obj: JsonObject) -> LoadedStore:
    spec = _spec(obj, ref)
    given = spec.get("common")
    cluster = picked.scope is Scope.CLUSTER
    shape: type[Policy] = ClusterPolicy if cluster else Policy
    common = typed(given if given is not None else {}, shape, ref)
    has_scope = isinstance(given, dict) and "authenticationScope" in given
    return LoadedStore(
        form=Form.DIRECT,
        role=reference.role,
        scope=picked.scope,
        ref=ref,
        behaviour=_behaviour(common, ref, _scope_of(common, ref) if has_scope else AuthScope.UNSET),
        source=Owned(picked.kind, ref, spec),
        ready=ready_condition(obj),
        deleted=meta_of(obj).deletion_timestamp is not None,
    )


def _behaviour(spec: Policy, ref: ObjectRef, scope: AuthScope) -> Behaviour:
    gating = Gating.NONE if spec.gating_policy == DISABLED else Gating.POLICY
    policy = _call_policy(ref, spec.refresh_interval, spec.retry_settings, gated=gating)
    policy = replace(policy, watch_allowed=spec.refresh_trigger != POLL)
    if spec.timeouts is not None:
        policy = replace(
            policy,
            connect_timeout=seconds_of(spec.timeouts.connect, "spec.timeouts.connect", ref) or None,
            call_timeout=seconds_of(spec.timeouts.call, "spec.timeouts.call", ref) or None,
        )
    conditions = tuple(spec.conditions) if isinstance(spec, ClusterPolicy) else ()
    return Behaviour(spec.controller, conditions, scope, gating, policy)


# --- v1alpha1 generators ---------------------------------------------------------------------------------------------


def _v1_generator(reference: Reference, picked: Picked, ref: ObjectRef, obj: JsonObject) -> LoadedStore:
    if picked.custom is CLUSTER_GENERATOR:
        owned = _embedded(_spec(obj, ref), ref, reference.caller.namespace)
    else:
        owned = Owned(picked.kind, ref, _spec(obj, ref))
    controller = owned.spec.get("controller")
    behaviour = Behaviour(
        controller=controller if isinstance(controller, str) else "",
        conditions=(),
        auth_scope=AuthScope.MANIFEST_NAMESPACE,
        gating=Gating.NONE,
        policy=_call_policy(ref, 0, _retry_settings(owned.spec, ref), gated=Gating.NONE),
    )
    return LoadedStore(
        form=Form.V1_GENERATOR,
        role=reference.role,
        scope=picked.scope,
        ref=ref,
        behaviour=behaviour,
        source=owned,
        ready=None,
        deleted=False,
    )


def _embedded(spec: dict[str, Any], ref: ObjectRef, namespace: str) -> Owned:
    """Return the generator inside a ClusterGenerator, as if it existed in the caller's namespace."""
    kind, embedded = spec.get("kind"), spec.get("generator")
    field = SPEC_FIELDS.get(kind) if isinstance(kind, str) else None
    if field is None or not isinstance(embedded, dict):
        raise malformed(ref, f"spec.kind must be one of {', '.join(SPEC_FIELDS)}, with its spec below spec.generator")
    inner = embedded.get(field)
    if not isinstance(inner, dict) or len(embedded) != 1:
        raise malformed(ref, f"spec.generator must hold {field}, and nothing else, for spec.kind {kind}")
    virtual = ObjectRef(
        api_version=ref.api_version,
        kind=str(kind),
        namespace=namespace,
        name=ref.name,
        uid=ref.uid,
        generation=ref.generation,
    )
    group, _, version = ref.api_version.rpartition("/")
    return Owned(KindId(group, version, str(kind)), virtual, inner)


# --- parts -----------------------------------------------------------------------------------------------------------


def _custom(picked: Picked, ref: ObjectRef, obj: Any) -> Any:
    if picked.custom is None:
        raise AssertionError("only a provider's own kind has no type")
    return typed(obj, picked.custom.type, ref)


def ready_condition(obj: Any) -> Condition | None:
    """Return the Ready condition of an object of any form; None if it is absent or malformed."""
    if isinstance(obj, dict):
        status = obj.get("status")
        listed = status.get("conditions") if isinstance(status, dict) else None
        found = [entry for entry in listed or () if isinstance(entry, dict) and entry.get("type") == "Ready"]
        try:
            return msgspec.convert(found[0], Condition) if found else None
        except msgspec.ValidationError:
            return None
    status = getattr(obj, "status", None)
    conditions: list[Condition] = getattr(status, "conditions", [])
    return next((condition for condition in conditions if condition.type == "Ready"), None)


def _member(holder: Any, name: str) -> Any:
    """Return a member of JSON or of a typed object; None if it is absent."""
    return holder.get(name) if isinstance(holder, dict) else getattr(holder, name, None)


def _spec(obj: JsonObject, ref: ObjectRef) -> dict[str, Any]:
    spec = obj.get("spec", {})
    if not isinstance(spec, dict):
        raise malformed(ref, "spec must be an object")
    return spec


def _retry_settings(spec: dict[str, Any], ref: ObjectRef) -> RetrySettings | None:
    """Return the retry settings in the spec of a generator; few kinds have them."""
    try:
        return msgspec.convert(spec.get("retrySettings"), RetrySettings | None)
    except msgspec.ValidationError as error:
        raise malformed(ref, f"spec.retrySettings: {error_text(error)}") from None


def _call_policy(ref: ObjectRef, refresh: int | str, retry: RetrySettings | None, *, gated: Gating) -> CallPolicy:
    return CallPolicy(
        gated=gated is not Gating.NONE,
        max_retries=retry.max_retries if retry else None,
        retry_interval=seconds_of(retry.retry_interval, "spec.retrySettings.retryInterval", ref) if retry else None,
        refresh_interval=seconds_of(refresh, "spec.refreshInterval", ref) or None,
    )


def seconds_of(value: int | str | None, field: str, ref: ObjectRef) -> float | None:
    """Parse a duration into seconds; None stays None. Raises ResolutionError if it is invalid or negative."""
    if value is None:
        return None
    try:
        seconds = durations.seconds(value, field=field)
    except durations.DurationError as error:
        raise malformed(ref, str(error)) from None
    if seconds < 0:
        raise malformed(ref, f"{field} must not be negative")
    return seconds


_CONSIDERED: Final = 3
"""Similar names of each kind that are looked at."""


def load_or_suggest(reference: Reference, picked: Picked, view: ClusterView) -> LoadedStore:
    """Stage 3: return the object that a reference names. The error about a missing one suggests others."""
    try:
        return load(reference, picked, view)
    except ResolutionError as error:
        if error.reason is Reason.NOT_FOUND and (hint := _hint(reference, picked, view)):
            raise ResolutionError(error.reason, f"{error.message}; {hint}", subject=error.subject) from None
        raise


def _hint(reference: Reference, picked: Picked, view: ClusterView) -> str:
    """Return a question about one object: of the same name if there is one, else the most similar one of its kind."""
    scopes = {kind: view.objects.scope(kind) for kind in (picked.kind, *alternatives(reference, picked))}
    kinds = {kind: scope for kind, scope in scopes.items() if scope is not None}
    for kind, scope in kinds.items():
        # An object of the same kind and name in another group has its own remedy in the message.
        if kind.kind != picked.kind.kind and _may_be_meant(replace(reference, kind=kind), scope, view):
            return did_you_mean([_described(kind, reference.name, picked)])
    for kind, scope in kinds.items():
        namespace = reference.caller.namespace if scope is Scope.NAMESPACED else ""
        names = {meta_of(each).name for each in view.objects.list(kind, namespace)}
        for name in similar(reference.name, names, count=_CONSIDERED):
            if _may_be_meant(replace(reference, kind=kind, name=name), scope, view):
                return did_you_mean([_described(kind, name, picked)])
    return ""


def _may_be_meant(other: Reference, scope: Scope, view: ClusterView) -> bool:
    """Return whether the object exists and the caller's namespace may know of it.

    A cluster-scoped object is disclosed only to namespaces that it plainly admits.
    """
    namespace = other.caller.namespace
    if scope is Scope.NAMESPACED:
        return view.objects.get(other.kind, ObjectKey(namespace, other.name)) is not None
    try:
        conditions = load(other, pick(other, view), view).behaviour.conditions
    except ResolutionError:
        return False
    return not conditions or any(namespace in condition.namespaces for condition in conditions)


def _described(kind: KindId, name: str, picked: Picked) -> str:
    group = "" if kind.group == picked.kind.group else f" of {kind.api_version}"
    return f"{kind.kind} {name}{group}"
