"""SecretStore v2: a backend reached through a provider process, for the namespace it lives in."""

from __future__ import annotations

import msgspec

from eso_api.crd import CustomKind
from eso_api.secretstore import STORE_COLUMNS
from eso_api.v2.connection import ProviderConfig
from eso_api.v2.policy import Policy, ProviderStatus
from kubebase.meta import Object

STORE_GROUP = "secretstore.external-secrets.io"


class SecretStoreSpec(Policy, frozen=True, kw_only=True):
    """Which provider, and how to reach it."""

    provider_config: ProviderConfig
    """How the provider is reached, and its configuration."""


class SecretStore(Object, kw_only=True):
    """A backend reached through a provider process, for the namespace it lives in."""

    spec: SecretStoreSpec
    status: ProviderStatus = msgspec.field(default_factory=ProviderStatus)


SECRET_STORE_V2 = CustomKind(
    SecretStore,
    group=STORE_GROUP,
    plural="secretstores",
    versions=("v2alpha1",),
    short_names=("ssv2",),
    columns=STORE_COLUMNS,
)
