"""A store, generator or provider as the later stages see it: one shape, whatever form the object has.

Values only; `loading.py` makes them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from eso_api.policies import NamespaceCondition
from eso_api.v2.connection import ProviderConfig
from eso_operator.stores.snapshot import Scope
from eso_operator.stores.target import CallPolicy, Form
from eso_wire.values import KindId, KindRole, ObjectRef
from kuberun.meta import Condition


class AuthScope(StrEnum):
    """Whose namespace a cluster-scoped object takes credentials from."""

    PROVIDER_NAMESPACE = "ProviderNamespace"
    MANIFEST_NAMESPACE = "ManifestNamespace"
    REFERENT = "referent"
    """v1: each reference says so itself, else the caller's."""
    UNSAID = "unsaid"
    """The class of the provider decides."""


class Gating(StrEnum):
    """What a store that is not ready does to its users."""

    FLOOD_GATE = "flood gate"
    """v1: only Ready=True lets readers through."""
    POLICY = "policy"
    """v2: only Ready=False stops."""
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Bridged:
    """A v1 store: the provider that knows the key `spec.provider.<key>` gets the block below it."""

    key: str
    block: dict[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Owned:
    """The object is itself the configuration: a provider's own kind, or a v1alpha1 generator."""

    kind: KindId
    ref: ObjectRef
    spec: dict[str, Any] = field(repr=False)


Source = ProviderConfig | Bridged | Owned
"""Where the configuration comes from, and what is said about how to reach the provider."""


@dataclass(frozen=True, slots=True)
class Behaviour:
    """The common fields, with their defaults."""

    controller: str
    conditions: tuple[NamespaceCondition, ...]
    auth_scope: AuthScope
    gating: Gating
    policy: CallPolicy


@dataclass(frozen=True, slots=True)
class Store:
    """What a reference points at."""

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
