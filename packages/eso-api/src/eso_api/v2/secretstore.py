"""SecretStore and ClusterSecretStore v2: a backend reached through a provider process."""

from __future__ import annotations

import msgspec

from eso_api.crd import CustomKind
from eso_api.secretstore import STORE_COLUMNS
from eso_api.v2.connection import ProviderConfig
from eso_api.v2.policy import ClusterPolicy, Policy, ProviderStatus
from kubebase.meta import Object

STORE_GROUP = "secretstore.external-secrets.io"


class SecretStoreV2Spec(Policy, frozen=True, kw_only=True):
    """Which provider, and how to reach it."""

    provider_config: ProviderConfig
    """How the provider is reached, and its configuration."""


class SecretStoreV2(Object, kw_only=True):
    """A backend reached through a provider process, for the namespace it lives in."""

    spec: SecretStoreV2Spec
    status: ProviderStatus = msgspec.field(default_factory=ProviderStatus)


SECRET_STORE_V2 = CustomKind(
    SecretStoreV2,
    name="SecretStore",
    group=STORE_GROUP,
    plural="secretstores",
    versions=("v2alpha1",),
    short_names=("ssv2",),
    columns=STORE_COLUMNS,
)


class ClusterSecretStoreV2Spec(ClusterPolicy, frozen=True, kw_only=True):
    """Which provider, how to reach it, and who may use it."""

    provider_config: ProviderConfig
    """How the provider is reached, and its configuration."""


class ClusterSecretStoreV2(Object, kw_only=True):
    """A backend reached through a provider process, for many namespaces."""

    spec: ClusterSecretStoreV2Spec
    status: ProviderStatus = msgspec.field(default_factory=ProviderStatus)


CLUSTER_SECRET_STORE_V2 = CustomKind(
    ClusterSecretStoreV2,
    name="ClusterSecretStore",
    group=STORE_GROUP,
    plural="clustersecretstores",
    versions=("v2alpha1",),
    short_names=("cssv2",),
    namespaced=False,
    columns=STORE_COLUMNS,
)
