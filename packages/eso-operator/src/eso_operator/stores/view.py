"""The inputs of the resolver: cached objects and the handshakes of providers.

They are read-only, and the resolver has no other input, so equal views give equal results.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from eso_api.v2.clusterproviderclass import CLUSTER_PROVIDER_CLASS
from eso_api.v2.providerclass import PROVIDER_CLASS
from eso_wire.kinds import Handshake, KindId
from kubebase.meta import ObjectKey

NAMESPACE = KindId("", "v1", "Namespace")
SERVICE = KindId("", "v1", "Service")
CLASS = KindId(PROVIDER_CLASS.group, PROVIDER_CLASS.versions[0], PROVIDER_CLASS.name)
CLUSTER_CLASS = KindId(CLUSTER_PROVIDER_CLASS.group, CLUSTER_PROVIDER_CLASS.versions[0], CLUSTER_PROVIDER_CLASS.name)


class Scope(StrEnum):
    NAMESPACED = "namespaced"
    CLUSTER = "cluster-scoped"


class Objects(Protocol):
    """The objects of the cluster, each typed, as a plain dict, or as `Malformed`.

    Generators and kinds of providers must be plain dicts, because their specs are sent unchanged. Namespaces and
    Services may be either. Of Services, the labelled ones are enough.
    """

    def get(self, kind: KindId, key: ObjectKey) -> Any | None:
        """Return one object; None if it does not exist."""
        ...

    def list(self, kind: KindId, namespace: str = "") -> Iterable[Any]:
        """Return all objects of a kind, or those of one namespace."""
        ...

    def scope(self, kind: KindId) -> Scope | None:
        """Return the scope of a kind; None if it is not watched or does not exist."""
        ...


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The inputs of one resolution. `handshakes` maps `Connection.key` to a handshake or the reason for none."""

    objects: Objects
    handshakes: Mapping[str, Handshake | str] = field(default_factory=dict)
