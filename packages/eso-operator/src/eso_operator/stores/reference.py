"""Stages 1 and 2: fill in the defaults of a reference, and find the form of the object that it names.

No object is loaded here, so the object may not exist.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from eso_api.crd import CustomKind
from eso_api.generators.clustergenerator import CLUSTER_GENERATOR
from eso_api.kinds import GENERATOR_KINDS, KINDS
from eso_api.references import CORE_GROUP, STORE_KINDS, GeneratorRef, StoreRef
from eso_api.secretstore import CLUSTER_SECRET_STORE, SECRET_STORE
from eso_api.v2.generator import CLUSTER_GENERATOR_V2, GENERATOR
from eso_api.v2.provider import CLUSTER_PROVIDER, PROVIDER
from eso_api.v2.secretstore import CLUSTER_SECRET_STORE_V2, SECRET_STORE_V2
from eso_operator.stores.inputs import ClusterView, Scope
from eso_operator.stores.resolved import Form, Reason, ResolutionError
from eso_wire.errors import RetryClass
from eso_wire.kinds import KindId, KindRole, ObjectRef

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
