"""OnePassword: 1Password through a Connect server, for one namespace."""

from __future__ import annotations

import msgspec

from eso_api.stores.onepassword import OnePasswordProvider
from eso_api.v2.owned import STORE_CONFIG_GROUP, OwnedStatus, namespaced_config
from eso_api.v2.policy import Policy
from kubebase.meta import Object


class OnePasswordSpec(OnePasswordProvider, frozen=True, kw_only=True):
    """The fields of `spec.provider.onepassword` of a v1 store, and who may use them."""

    common: Policy | None = None
    """Behaviour when this object is named directly, without a store."""


class OnePassword(Object, kw_only=True):
    """1Password through a Connect server, for one namespace."""

    spec: OnePasswordSpec
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


ONE_PASSWORD = namespaced_config(OnePassword, STORE_CONFIG_GROUP, "onepasswords")
