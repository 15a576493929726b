"""What the resolver looks at: the objects as the informers know them, and what providers said in their handshakes.

Read-only. The resolver asks nothing else, so equal snapshots give equal answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from eso_api.v2.clusterproviderclass import CLUSTER_PROVIDER_CLASS
from eso_api.v2.providerclass import PROVIDER_CLASS
from eso_wire.values import Handshake, KindId
from kuberun.meta import ObjectKey

NAMESPACE = KindId("", "v1", "Namespace")
SERVICE = KindId("", "v1", "Service")
CLASS = KindId(PROVIDER_CLASS.group, PROVIDER_CLASS.versions[0], PROVIDER_CLASS.name)
CLUSTER_CLASS = KindId(CLUSTER_PROVIDER_CLASS.group, CLUSTER_PROVIDER_CLASS.versions[0], CLUSTER_PROVIDER_CLASS.name)


class Scope(StrEnum):
    NAMESPACED = "namespaced"
    CLUSTER = "cluster-scoped"


class Objects(Protocol):
    """The objects of the cluster, each as its typed form, as a plain dict, or as `Malformed`.

    Generators and the providers' own kinds must be plain dicts: their specs go to the provider as they are.
    Namespaces and Services may be either; of Services, the labelled ones are enough.
    """

    def get(self, kind: KindId, key: ObjectKey) -> Any | None:
        """One object, or None."""
        ...

    def list(self, kind: KindId, namespace: str = "") -> Iterable[Any]:
        """All objects of a kind, or those of one namespace."""
        ...

    def scope(self, kind: KindId) -> Scope | None:
        """Where objects of that kind live; None when they are not watched (or there is no such kind)."""
        ...


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`handshakes` has, under `Connection.key`, what the provider said, or why there was no handshake."""

    objects: Objects
    handshakes: Mapping[str, Handshake | str] = field(default_factory=dict)
