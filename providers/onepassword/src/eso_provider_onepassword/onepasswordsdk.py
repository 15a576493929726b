"""OnePasswordSDK: 1Password with a service account, for one namespace."""

from __future__ import annotations

import msgspec

from eso_api.stores.onepasswordsdk import OnePasswordSDKProvider
from eso_api.v2.owned import STORE_CONFIG_GROUP, OwnedStatus, namespaced_config
from eso_api.v2.policy import Policy
from kubebase.meta import Object


class OnePasswordSDKSpec(OnePasswordSDKProvider, frozen=True, kw_only=True):
    """The fields of `spec.provider.onepasswordSDK` of a v1 store, and who may use them."""

    common: Policy | None = None
    """Behaviour when this object is named directly, without a store."""


class OnePasswordSDK(Object, kw_only=True):
    """1Password with a service account, for one namespace."""

    spec: OnePasswordSDKSpec
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


ONE_PASSWORD_SDK = namespaced_config(OnePasswordSDK, STORE_CONFIG_GROUP, "onepasswordsdks")
