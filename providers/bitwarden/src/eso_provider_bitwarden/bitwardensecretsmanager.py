"""BitwardenSecretsManager: Bitwarden Secrets Manager, for one namespace."""

from __future__ import annotations

import msgspec

from eso_api.stores.bitwardensecretsmanager import BitwardenProvider
from eso_api.v2.owned import STORE_CONFIG_GROUP, OwnedStatus, namespaced_config
from eso_api.v2.policy import Policy
from kubebase.meta import Object


class BitwardenSecretsManagerSpec(BitwardenProvider, frozen=True, kw_only=True):
    """The fields of `spec.provider.bitwardensecretsmanager` of a v1 store, and who may use them."""

    common: Policy | None = None
    """Behaviour when this object is named directly, without a store."""


class BitwardenSecretsManager(Object, kw_only=True):
    """Bitwarden Secrets Manager, for one namespace."""

    spec: BitwardenSecretsManagerSpec
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


BITWARDEN_SECRETS_MANAGER = namespaced_config(BitwardenSecretsManager, STORE_CONFIG_GROUP, "bitwardensecretsmanagers")
