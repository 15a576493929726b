"""The 1Password provider as a whole."""

from __future__ import annotations

from typing import Final

from eso_provider_onepassword.clusteronepassword import CLUSTER_ONE_PASSWORD
from eso_provider_onepassword.clusteronepasswordsdk import CLUSTER_ONE_PASSWORD_SDK
from eso_provider_onepassword.connectstore import ConnectStore
from eso_provider_onepassword.onepassword import ONE_PASSWORD
from eso_provider_onepassword.onepasswordsdk import ONE_PASSWORD_SDK
from eso_provider_onepassword.sdkstore import SDKStore
from eso_sdk.provider import Maturity, Provider, store_kind

NAME: Final = "onepassword"
VERSION: Final = "0.1.0"

OnePassword = store_kind(objects=(ONE_PASSWORD, CLUSTER_ONE_PASSWORD), v1_key="onepassword")(ConnectStore)
OnePasswordSDK = store_kind(objects=(ONE_PASSWORD_SDK, CLUSTER_ONE_PASSWORD_SDK), v1_key="onepasswordSDK")(SDKStore)

PROVIDER: Final = Provider(name=NAME, version=VERSION, kinds=(OnePassword, OnePasswordSDK), maturity=Maturity.UNPROVEN)
