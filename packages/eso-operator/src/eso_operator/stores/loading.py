"""Stage 3: load the object that a reference names, as a `Referent`, the same type for all forms.

A namespaced object is looked up in the caller's namespace only: a reference cannot name another one. The error about a
missing object suggests another kind or generation of that name, or a similar name.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, TypeVar, assert_never

import msgspec

from eso_api.common import POLL, NamespaceCondition, RetrySettings
from eso_api.generators.clustergenerator import CLUSTER_GENERATOR, SPEC_FIELDS
from eso_api.secretstore import SECRET_STORE, SecretStoreSpec
from eso_api.v2.connection import ProviderConfig
from eso_api.v2.generator import ClusterGeneratorV2Spec
from eso_api.v2.policy import DISABLED, MANIFEST_NAMESPACE, PROVIDER_NAMESPACE, ClusterPolicy, Policy
from eso_operator.stores.inputs import ClusterView, Scope
from eso_operator.stores.reference import Picked, Reference, alternatives, namesakes, pick
from eso_operator.stores.resolved import CallPolicy, Form, Reason, ResolutionError
from eso_wire.kinds import KindId, KindRole, ObjectRef
from kubebase import durations
from kubebase.hints import did_you_mean, similar
from kubebase.meta import Condition, JsonObject, Malformed, ObjectKey, ObjectMeta, meta_of
from kuberun.decoding import error_text


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
class Referent:
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


def load(reference: Reference, picked: Picked, view: ClusterView) -> Referent:
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


def _v1(reference: Reference, picked: Picked, ref: ObjectRef, obj: Any) -> Referent:
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
    return Referent(
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


def _v2(reference: Reference, picked: Picked, ref: ObjectRef, obj: Any) -> Referent:
    spec = _custom(picked, ref, obj).spec
    return Referent(
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


def _direct(reference: Reference, picked: Picked, ref: ObjectRef, obj: JsonObject) -> Referent:
    spec = _spec(obj, ref)
    given = spec.get("common")
    cluster = picked.scope is Scope.CLUSTER
    shape: type[Policy] = ClusterPolicy if cluster else Policy
    common = typed(given if given is not None else {}, shape, ref)
    has_scope = isinstance(given, dict) and "authenticationScope" in given
    return Referent(
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


def _v1_generator(reference: Reference, picked: Picked, ref: ObjectRef, obj: JsonObject) -> Referent:
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
    return Referent(
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


def load_or_suggest(reference: Reference, picked: Picked, view: ClusterView) -> Referent:
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
