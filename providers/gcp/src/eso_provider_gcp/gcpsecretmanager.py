"""GCPSecretManager: Google Secret Manager, for one namespace."""

from __future__ import annotations

import msgspec

from eso_api.v2.owned import STORE_CONFIG_GROUP, OwnedStatus, namespaced_config
from eso_api.v2.policy import Policy
from eso_provider_gcp.specs import SecretManagerConfig
from kubebase.meta import Object


class GCPSecretManagerSpec(SecretManagerConfig, frozen=True, kw_only=True):
    """The fields of `spec.provider.gcpsm` of a v1 store, where changes are announced, and who may use them."""

    common: Policy | None = None
    """Behaviour when this object is named directly, without a store."""


class GCPSecretManager(Object, kw_only=True):
    """Google Secret Manager, for one namespace."""

    spec: GCPSecretManagerSpec
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


GCP_SECRET_MANAGER = namespaced_config(GCPSecretManager, STORE_CONFIG_GROUP, "gcpsecretmanagers")
