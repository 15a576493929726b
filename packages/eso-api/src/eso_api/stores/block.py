"""`spec.provider` of v1 stores: exactly one provider, named by its key.

Every key that existing manifests may use is accepted. The API server checks the blocks below `typed`; the other blocks
are kept unchanged and checked by their provider.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from eso_api.shapes import Fragment, JsonMap, exactly_one
from eso_api.stores.aws import AwsProvider
from eso_api.stores.azurekv import AzureProvider
from eso_api.stores.bitwardensecretsmanager import BitwardenProvider
from eso_api.stores.crd import CrdProvider
from eso_api.stores.doppler import DopplerProvider
from eso_api.stores.fake import FakeProvider
from eso_api.stores.gcpsm import GcpProvider
from eso_api.stores.github import GithubProvider
from eso_api.stores.gitlab import GitlabProvider
from eso_api.stores.kubernetes import KubernetesProvider
from eso_api.stores.onepassword import OnePasswordProvider
from eso_api.stores.onepasswordsdk import OnePasswordSDKProvider
from eso_api.stores.openbao import OpenBaoProvider
from eso_api.stores.vault import VaultProvider
from eso_api.stores.webhook import WebhookProvider
from eso_api.v2.connection import ProviderConfig


class ProviderBlock(Fragment, frozen=True, kw_only=True):
    """The provider of a store; exactly one."""

    SHAPE: ClassVar = exactly_one()

    # typed
    aws: AwsProvider | None = None
    azurekv: AzureProvider | None = None
    bitwardensecretsmanager: BitwardenProvider | None = None
    crd: CrdProvider | None = None
    doppler: DopplerProvider | None = None
    fake: FakeProvider | None = None
    gcpsm: GcpProvider | None = None
    github: GithubProvider | None = None
    gitlab: GitlabProvider | None = None
    kubernetes: KubernetesProvider | None = None
    onepassword: OnePasswordProvider | None = None
    onepassword_sdk: OnePasswordSDKProvider | None = msgspec.field(default=None, name="onepasswordSDK")
    open_bao: OpenBaoProvider | None = None
    plugin: ProviderConfig | None = None
    """A provider process of your own, reached by address."""
    vault: VaultProvider | None = None
    webhook: WebhookProvider | None = None

    # kept unchanged
    akeyless: JsonMap | None = None
    alibaba: JsonMap | None = None
    barbican: JsonMap | None = None
    beyondtrust: JsonMap | None = None
    beyondtrustworkloadcredentials: JsonMap | None = None
    chef: JsonMap | None = None
    cloudrusm: JsonMap | None = None
    conjur: JsonMap | None = None
    delinea: JsonMap | None = None
    device42: JsonMap | None = None
    dvls: JsonMap | None = None
    fortanix: JsonMap | None = None
    ibm: JsonMap | None = None
    infisical: JsonMap | None = None
    keepersecurity: JsonMap | None = None
    nebiusmysterybox: JsonMap | None = None
    ngrok: JsonMap | None = None
    onboardbase: JsonMap | None = None
    oracle: JsonMap | None = None
    ovh: JsonMap | None = None
    passbolt: JsonMap | None = None
    passworddepot: JsonMap | None = None
    previder: JsonMap | None = None
    pulumi: JsonMap | None = None
    scaleway: JsonMap | None = None
    secretserver: JsonMap | None = None
    senhasegura: JsonMap | None = None
    volcengine: JsonMap | None = None
    yandexcertificatemanager: JsonMap | None = None
    yandexlockbox: JsonMap | None = None


PROVIDER_KEYS = frozenset(ProviderBlock.__struct_encode_fields__)
