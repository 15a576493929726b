"""ClusterSecretStore v2: a backend reached through a provider process, for many namespaces."""

from __future__ import annotations

import msgspec

from eso_api.crd import CustomKind
from eso_api.secretstore import STORE_COLUMNS
from eso_api.v2.connection import ProviderConfig
from eso_api.v2.policy import ClusterPolicy, ProviderStatus
from eso_api.v2.secretstore import STORE_GROUP
from kubebase.meta import Object


class ClusterSecretStoreSpec(ClusterPolicy, frozen=True, kw_only=True):
    """Which provider, how to reach it, and who may use it."""

    provider_config: ProviderConfig
    """How the provider is reached, and its configuration."""


class ClusterSecretStore(Object, kw_only=True):
    """A backend reached through a provider process, for many namespaces."""

    spec: ClusterSecretStoreSpec
    status: ProviderStatus = msgspec.field(default_factory=ProviderStatus)


CLUSTER_SECRET_STORE_V2 = CustomKind(
    ClusterSecretStore,
    group=STORE_GROUP,
    plural="clustersecretstores",
    versions=("v2alpha1",),
    short_names=("cssv2",),
    namespaced=False,
    columns=STORE_COLUMNS,
)
