"""Provider and ClusterProvider: short forms of v2 stores; a store reference names them by kind alone."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from eso_api.crd import CustomKind
from eso_api.references import CORE_GROUP
from eso_api.secretstore import STORE_COLUMNS
from eso_api.shapes import Rule
from eso_api.v2.connection import Address, ChannelAuth, ClassRef, ProviderConfig, ProviderRef
from eso_api.v2.policy import ClusterPolicy, Policy, ProviderStatus
from kubebase.meta import Object

CONNECTION_RULES = (
    Rule(
        "has(self.providerRef) != has(self.config)",
        "set providerRef with address or classRef, or all of them below config",
    ),
    Rule(
        "!has(self.config) || (!has(self.address) && !has(self.classRef) && !has(self.auth))",
        "address, classRef and auth belong below config when config is set",
    ),
    Rule("!has(self.address) || !has(self.classRef)", "at most one of address, classRef may be set"),
)


class ProviderSpec(Policy, frozen=True, kw_only=True):
    """Which provider, and how to reach it."""

    RULES: ClassVar = CONNECTION_RULES

    address: Address = ""
    """Where the provider listens, for example grpc://provider-aws.eso.svc:8080."""
    class_ref: ClassRef | None = None
    """The class that names the address of the provider."""
    auth: ChannelAuth | None = None
    """How we authenticate to the provider."""
    provider_ref: ProviderRef | None = None
    """The provider's own object with the configuration of the backend."""
    config: ProviderConfig | None = None
    """All of the above in one object, as in earlier drafts."""

    @property
    def provider_config(self) -> ProviderConfig:
        """Return the connection from either spelling."""
        return self.config or ProviderConfig(
            address=self.address, class_ref=self.class_ref, auth=self.auth, provider_ref=self.provider_ref
        )


class Provider(Object, kw_only=True):
    """A backend reached through a provider process, for the namespace it lives in."""

    spec: ProviderSpec
    status: ProviderStatus = msgspec.field(default_factory=ProviderStatus)


PROVIDER = CustomKind(
    Provider,
    group=CORE_GROUP,
    plural="providers",
    versions=("v1alpha1",),
    short_names=("prov",),
    columns=STORE_COLUMNS,
)


class ClusterProviderSpec(ClusterPolicy, frozen=True, kw_only=True):
    """Which provider, how to reach it, and who may use it."""

    RULES: ClassVar = CONNECTION_RULES

    address: Address = ""
    """Where the provider listens, for example grpc://provider-aws.eso.svc:8080."""
    class_ref: ClassRef | None = None
    """The class that names the address of the provider."""
    auth: ChannelAuth | None = None
    """How we authenticate to the provider."""
    provider_ref: ProviderRef | None = None
    """The provider's own object with the configuration of the backend."""
    config: ProviderConfig | None = None
    """All of the above in one object, as in earlier drafts."""

    @property
    def provider_config(self) -> ProviderConfig:
        """Return the connection from either spelling."""
        return self.config or ProviderConfig(
            address=self.address, class_ref=self.class_ref, auth=self.auth, provider_ref=self.provider_ref
        )


class ClusterProvider(Object, kw_only=True):
    """A backend reached through a provider process, for many namespaces."""

    spec: ClusterProviderSpec
    status: ProviderStatus = msgspec.field(default_factory=ProviderStatus)


CLUSTER_PROVIDER = CustomKind(
    ClusterProvider,
    group=CORE_GROUP,
    plural="clusterproviders",
    versions=("v1alpha1",),
    short_names=("cprov",),
    namespaced=False,
    columns=STORE_COLUMNS,
)
