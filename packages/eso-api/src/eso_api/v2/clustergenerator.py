"""ClusterGenerator v2: values made by a provider process, for many namespaces."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from eso_api.crd import CustomKind
from eso_api.shapes import at_most_one, one_of
from eso_api.v2.connection import ProviderConfig
from eso_api.v2.generator import GENERATOR_CATEGORIES, GENERATOR_COLUMNS, GENERATOR_GROUP
from eso_api.v2.policy import MANIFEST_NAMESPACE, PROVIDER_NAMESPACE, ClusterPolicy, ProviderStatus
from kubebase.meta import Object

_SCOPE_OF = {"ProviderReference": PROVIDER_NAMESPACE, "ManifestReference": MANIFEST_NAMESPACE}


class ClusterGeneratorSpec(ClusterPolicy, frozen=True, kw_only=True):
    """Which provider, how to reach it, and who may use it."""

    RULES: ClassVar = (at_most_one("authenticationScope", "authenticationNamespace"),)

    provider_config: ProviderConfig
    """How the provider is reached, and its configuration."""
    authentication_namespace: Annotated[str, one_of(*_SCOPE_OF)] = ""
    """Another spelling of authenticationScope: ProviderReference or ManifestReference."""

    @property
    def scope(self) -> str:
        """Return the authentication scope from either spelling."""
        return _SCOPE_OF.get(self.authentication_namespace, self.authentication_scope)


class ClusterGenerator(Object, kw_only=True):
    """Values made by a provider process, for many namespaces."""

    spec: ClusterGeneratorSpec
    status: ProviderStatus = msgspec.field(default_factory=ProviderStatus)


CLUSTER_GENERATOR_V2 = CustomKind(
    ClusterGenerator,
    group=GENERATOR_GROUP,
    plural="clustergenerators",
    versions=("v2alpha1",),
    short_names=("cgenv2",),
    namespaced=False,
    categories=GENERATOR_CATEGORIES,
    columns=GENERATOR_COLUMNS,
)
