"""The kinds this provider owns; found through the entry point group `eso.kinds`."""

from __future__ import annotations

from typing import Final

from eso_api.stores.onepassword import OnePasswordProvider, OnePasswordSDKProvider
from eso_api.v2.owned import fields_of, store_kinds

CONNECT: Final = store_kinds(
    OnePasswordProvider,
    module=__name__,
    kind="OnePassword",
    plural="onepasswords",
    cluster="ClusterOnePassword",
    about="1Password through a Connect server",
    spec=fields_of("onepassword"),
)
SERVICE_ACCOUNT: Final = store_kinds(
    OnePasswordSDKProvider,
    module=__name__,
    kind="OnePasswordSDK",
    plural="onepasswordsdks",
    cluster="ClusterOnePasswordSDK",
    about="1Password with a service account",
    spec=fields_of("onepasswordSDK"),
)

KINDS: Final = (*CONNECT, *SERVICE_ACCOUNT)
