"""VaultDynamicSecret: the response of any path of Vault, for v2 generators."""

from __future__ import annotations

import msgspec

from eso_api.generators.vaultdynamicsecret import VaultDynamicSecretSpec
from eso_api.v2.generator import GENERATOR_CATEGORIES
from eso_api.v2.owned import GENERATOR_CONFIG_GROUP, OwnedStatus, namespaced_config
from kubebase.meta import Object


class VaultDynamicSecret(Object, kw_only=True):
    """Generates values from the response of any path of Vault, for v2 generators."""

    spec: VaultDynamicSecretSpec
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


VAULT_DYNAMIC_SECRET = namespaced_config(
    VaultDynamicSecret, GENERATOR_CONFIG_GROUP, "vaultdynamicsecrets", GENERATOR_CATEGORIES
)
