"""Generator and ClusterGenerator v2: values made by a provider process."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from eso_api.crd import GENERATOR_CATEGORIES, CustomKind, age_column, ready_reason, ready_status
from eso_api.shapes import at_most_one, one_of
from eso_api.v2.connection import ProviderConfig
from eso_api.v2.policy import MANIFEST_NAMESPACE, PROVIDER_NAMESPACE, ClusterPolicy, Policy, ProviderStatus
from kubebase.meta import Object

GENERATOR_GROUP = "generator.external-secrets.io"
GENERATOR_COLUMNS = (age_column("AGE"), ready_reason("Status"), ready_status("Ready"))


class GeneratorSpec(Policy, frozen=True, kw_only=True):
    """Which provider, and how to reach it."""

    provider_config: ProviderConfig
    """How the provider is reached, and its configuration."""


class Generator(Object, kw_only=True):
    """Values made by a provider process, for the namespace it lives in."""

    spec: GeneratorSpec
    status: ProviderStatus = msgspec.field(default_factory=ProviderStatus)


GENERATOR = CustomKind(
    Generator,
    group=GENERATOR_GROUP,
    plural="generators",
    versions=("v2alpha1",),
    short_names=("genv2",),
    categories=GENERATOR_CATEGORIES,
    columns=GENERATOR_COLUMNS,
)


_SCOPE_OF = {"ProviderReference": PROVIDER_NAMESPACE, "ManifestReference": MANIFEST_NAMESPACE}


class ClusterGeneratorV2Spec(ClusterPolicy, frozen=True, kw_only=True):
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


class ClusterGeneratorV2(Object, kw_only=True):
    """Values made by a provider process, for many namespaces."""

    spec: ClusterGeneratorV2Spec
    status: ProviderStatus = msgspec.field(default_factory=ProviderStatus)


CLUSTER_GENERATOR_V2 = CustomKind(
    ClusterGeneratorV2,
    name="ClusterGenerator",
    group=GENERATOR_GROUP,
    plural="clustergenerators",
    versions=("v2alpha1",),
    short_names=("cgenv2",),
    namespaced=False,
    categories=GENERATOR_CATEGORIES,
    columns=GENERATOR_COLUMNS,
)
