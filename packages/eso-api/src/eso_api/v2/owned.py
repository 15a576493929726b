"""Kinds owned by a provider: its configuration as an object, referenced directly or through a store.

    KINDS = store_kinds(VaultProvider, module=__name__, kind="Vault", plural="vaults", cluster="ClusterVault")

A provider names the type once; the namespaced kind and, where useful, its cluster-scoped twin are derived from it. The
`spec` of a store's kind is the configuration plus `common`, the behaviour that every kind of store shares.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeVar

import msgspec

from eso_api.common import Conditions
from eso_api.crd import CATEGORY, GENERATOR_CATEGORIES, CustomKind, age_column, ready_reason, ready_status
from eso_api.shapes import Fragment, shaped
from eso_api.v2.policy import ClusterPolicy, Policy
from kubebase.meta import Object

AnyKind = CustomKind[Any]

T = TypeVar("T", bound=Object)

STORE_CONFIG_GROUP = "provider.secretstore.external-secrets.io"
GENERATOR_CONFIG_GROUP = "provider.generator.external-secrets.io"
OWNED_COLUMNS = (age_column("AGE"), ready_reason("Status"), ready_status("Ready"))


class OwnedStatus(Fragment, frozen=True, kw_only=True):
    """The provider's verdict on its configuration."""

    conditions: Conditions = []
    """Ready says whether the configuration can be used."""
    observed_generation: int = 0
    """Generation to which the conditions refer."""


def namespaced_config(
    type_: type[T], group: str, plural: str, categories: tuple[str, ...] = (CATEGORY,)
) -> CustomKind[T]:
    """Define a provider's configuration inside one namespace."""
    return CustomKind(
        type_, group=group, plural=plural, versions=("v2alpha1",), categories=categories, columns=OWNED_COLUMNS
    )


def cluster_config(type_: type[T], group: str, plural: str) -> CustomKind[T]:
    """Define a provider's configuration for many namespaces."""
    return CustomKind(
        type_, group=group, plural=plural, versions=("v2alpha1",), namespaced=False, columns=OWNED_COLUMNS
    )


def store_kinds(
    config: type[msgspec.Struct],
    *,
    module: str,
    kind: str,
    plural: str,
    cluster: str = "",
    group: str = STORE_CONFIG_GROUP,
    about: str = "",
    scope: str = "for one namespace",
    spec: str = "",
    cluster_spec: str = "",
) -> tuple[AnyKind, ...]:
    """Return the kind of a store and, if `cluster` names one, its cluster-scoped twin.

    Args:
        config: the fields of `spec`; its docstring describes what the arguments below do not.
        module: name of the module that defines the kinds; pass `__name__`.
        kind: name of the namespaced kind.
        plural: lower-case plural of `kind`; that of the twin is `cluster` plus this one.
        cluster: name of the twin; empty for none.
        group: API group of both.
        about: what the objects are, without a full stop.
        scope: completes `about` for the namespaced kind.
        spec: description of `spec`.
        cluster_spec: description of `spec` of the twin; if empty, it is `spec`.
    """
    text = (f"{about}, {scope}." if scope else f"{about}.") if about else ""
    own = _object(config, kind, module, text, _spec(config, kind, Policy, spec))
    kinds: tuple[AnyKind, ...] = (namespaced_config(own, group, plural),)
    if cluster:
        text = f"{about}, for many namespaces." if about else ""
        twin = _object(config, cluster, module, text, _spec(config, cluster, ClusterPolicy, cluster_spec or spec))
        kinds += (cluster_config(twin, group, f"cluster{plural}"),)
    return kinds


def generator_config(
    config: type[msgspec.Struct],
    *,
    module: str,
    kind: str,
    plural: str,
    group: str = GENERATOR_CONFIG_GROUP,
    about: str = "",
    spec_required: bool = True,
) -> AnyKind:
    """Return the kind of a generator. Its `spec` is the configuration alone; `store_kinds` explains the arguments."""
    text = f"{about}, for v2 generators." if about else ""
    own = _object(config, kind, module, text, config, spec_required=spec_required)
    return namespaced_config(own, group, plural, GENERATOR_CATEGORIES)


def fields_of(v1_key: str) -> str:
    """Describe the `spec` of a kind whose fields are those of a v1 block."""
    return f"The fields of `spec.provider.{v1_key}` of a v1 store, and who may use them."


_COMMON: Final = shaped(description="Behaviour when this object is named directly, without a store.")


def _spec(config: type[msgspec.Struct], kind: str, policy: type[Policy], text: str) -> type[msgspec.Struct]:
    if "common" in config.__struct_fields__:
        return config
    return msgspec.defstruct(
        f"{kind}Spec",
        [("common", Annotated[policy | None, _COMMON], None)],
        bases=(config,),
        module=config.__module__,
        namespace={"__doc__": text or config.__doc__},
        frozen=True,
        kw_only=True,
        omit_defaults=True,
        rename="camel",
    )


def _object(
    config: type[msgspec.Struct],
    kind: str,
    module: str,
    text: str,
    spec: type[msgspec.Struct],
    *,
    spec_required: bool = True,
) -> type[Object]:
    made = msgspec.defstruct(
        kind,
        [
            ("spec", spec) if spec_required else ("spec", spec, msgspec.field(default_factory=spec)),
            ("status", OwnedStatus, msgspec.field(default_factory=OwnedStatus)),
        ],
        bases=(Object,),
        module=module,
        namespace={"__doc__": text or config.__doc__},
        kw_only=True,
    )
    assert issubclass(made, Object)  # noqa: S101 - its base
    return made
