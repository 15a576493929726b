"""Vault: Key/value engines of HashiCorp Vault, for one namespace."""

from __future__ import annotations

import msgspec

from eso_api.stores.vault import VaultProvider
from eso_api.v2.owned import STORE_CONFIG_GROUP, OwnedStatus, namespaced_config
from eso_api.v2.policy import Policy
from kubebase.meta import Object


class VaultSpec(VaultProvider, frozen=True, kw_only=True):
    """The fields of `spec.provider.vault` of a v1 store, and who may use them."""

    common: Policy | None = None
    """Behaviour when this object is named directly, without a store."""


class Vault(Object, kw_only=True):
    """Key/value engines of HashiCorp Vault, for one namespace."""

    spec: VaultSpec
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


VAULT = namespaced_config(Vault, STORE_CONFIG_GROUP, "vaults")
