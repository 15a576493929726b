"""The requirement of a store on its provider, and whether a handshake or declaration meets it.

A v1 store needs the provider of its key; every other form needs a kind of configuration. A provider that serves a
namespaced kind `X` also serves its cluster-scoped twin `ClusterX`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from eso_operator.stores.view import Scope
from eso_wire.kinds import Handshake, KindId, KindInfo, KindRole
from eso_wire.pointers import stands_for

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
