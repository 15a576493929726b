"""The kinds made from a configuration type: a namespaced object and, on request, its cluster-scoped twin.

`spec` is the configuration plus `common`, the behaviour that every kind of store shares.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from eso_api.crd import CustomKind
from eso_api.shapes import shaped
from eso_api.v2.generator import GENERATOR_CATEGORIES
from eso_api.v2.owned import OwnedStatus, cluster_config, namespaced_config
from eso_api.v2.policy import ClusterPolicy, Policy
from kubebase.meta import Object

AnyKind = CustomKind[Any]


_DESCRIBED = shaped(description="Behaviour when this object is named directly, without a store.")


def namespaced(config: type[msgspec.Struct], kind: str, *, group: str, plural: str) -> AnyKind:
    return namespaced_config(_object(config, kind, Policy), group, plural)


def cluster_twin(config: type[msgspec.Struct], kind: str, *, group: str, plural: str) -> AnyKind:
    return cluster_config(_object(config, kind, ClusterPolicy), group, plural)


def generator_object(config: type[msgspec.Struct], kind: str, *, group: str, plural: str) -> AnyKind:
    """Make a generator's kind: its configuration alone."""
    return namespaced_config(_object(config, kind, None), group, plural, GENERATOR_CATEGORIES)


def _object(config: type[msgspec.Struct], kind: str, policy: type[Policy] | None) -> type[Object]:
    spec: type[msgspec.Struct] = config
    if policy is not None and "common" not in config.__struct_fields__:
        spec = msgspec.defstruct(
            f"{kind}Spec",
            [("common", Annotated[policy | None, _DESCRIBED], None)],
            bases=(config,),
            module=config.__module__,
            namespace={"__doc__": config.__doc__},
            frozen=True,
            kw_only=True,
            omit_defaults=True,
            rename="camel",
        )
    made = msgspec.defstruct(
        kind,
        [("spec", spec), ("status", OwnedStatus, msgspec.field(default_factory=OwnedStatus))],
        bases=(Object,),
        module=config.__module__,
        namespace={"__doc__": config.__doc__},
        kw_only=True,
    )
    assert issubclass(made, Object)  # noqa: S101 - its base
    return made
