"""A loaded store, generator or provider, as one type for all forms. Values only; `loading.py` makes them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from eso_api.policies import NamespaceCondition
from eso_api.v2.connection import ProviderConfig
from eso_operator.stores.resolved import CallPolicy, Form
from eso_operator.stores.view import Scope
from eso_wire.kinds import KindId, KindRole, ObjectRef
from kubebase.meta import Condition


class AuthScope(StrEnum):
    """The namespace that a cluster-scoped object takes credentials from."""

    PROVIDER_NAMESPACE = "ProviderNamespace"
    MANIFEST_NAMESPACE = "ManifestNamespace"
    REFERENT = "referent"
    """v1: the namespace that a reference names, else the caller's."""
    UNSAID = "unsaid"
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
