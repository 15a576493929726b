"""SecretStore and ClusterSecretStore: a backend, for its own namespace or for many.

v1 and v1beta1 have the same schema. `spec.provider` contains exactly one provider, named by its key. Every key that
existing manifests may use is accepted. The API server checks the blocks below `typed`; the other blocks are kept
unchanged and checked by their provider.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec

from eso_api.common import AUTO, NamespaceCondition, RefreshTrigger, RetrySettings, StoreStatus
from eso_api.crd import CustomKind, age_column, ready_reason, ready_status, string_column
from eso_api.references import CORE_GROUP
from eso_api.shapes import Fragment, JsonMap, PositiveInterval, exactly_one, shaped_as
from eso_api.stores.aws import AwsProvider
from eso_api.stores.azure import AzureProvider
from eso_api.stores.bitwarden import BitwardenProvider
from eso_api.stores.doppler import DopplerProvider
from eso_api.stores.fake import FakeProvider
from eso_api.stores.gcp import GcpProvider
from eso_api.stores.github import GithubProvider
from eso_api.stores.gitlab import GitlabProvider
from eso_api.stores.kubernetes import CrdProvider, KubernetesProvider
from eso_api.stores.onepassword import OnePasswordProvider, OnePasswordSDKProvider
from eso_api.stores.vault import OpenBaoProvider, VaultProvider
from eso_api.stores.webhook import WebhookProvider
from eso_api.v2.connection import ProviderConfig
from kubebase.meta import Object


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


class SecretStoreSpec(Fragment, frozen=True, kw_only=True):
    """Which backend, and how to reach it."""

    provider: Annotated[dict[str, Any], shaped_as(ProviderBlock)]
    """The provider; exactly one."""
    controller: str = ""
    """Class of the operator that handles this store; absent means any."""
    retry_settings: RetrySettings | None = None
    """How calls to the backend are retried."""
    refresh_interval: PositiveInterval = 0
    """Time between validations: a Go duration or seconds, at least 1 s; absent or 0 means the operator's setting."""
    refresh_trigger: RefreshTrigger = AUTO
    """Auto (default) also refreshes users when the provider reports a change; Poll only at their interval."""
    conditions: list[NamespaceCondition] = []
    """Namespaces that may use a ClusterSecretStore; absent means all. Ignored in a SecretStore."""

    @property
    def provider_key(self) -> str:
        """Return the key of the provider, for example `aws`; empty unless there is exactly one."""
        return next(iter(self.provider)) if len(self.provider) == 1 else ""


class SecretStore(Object, kw_only=True):
    """A backend, for the namespace it lives in."""

    spec: SecretStoreSpec
    status: StoreStatus = msgspec.field(default_factory=StoreStatus)


STORE_COLUMNS = (
    age_column("AGE"),
    ready_reason("Status"),
    string_column("Capabilities", ".status.capabilities"),
    ready_status("Ready"),
)

SECRET_STORE = CustomKind(
    SecretStore,
    group=CORE_GROUP,
    plural="secretstores",
    versions=("v1", "v1beta1"),
    short_names=("ss",),
    columns=STORE_COLUMNS,
)


class ClusterSecretStore(Object, kw_only=True):
    """A backend for many namespaces."""

    spec: SecretStoreSpec
    status: StoreStatus = msgspec.field(default_factory=StoreStatus)


CLUSTER_SECRET_STORE = CustomKind(
    ClusterSecretStore,
    group=CORE_GROUP,
    plural="clustersecretstores",
    versions=("v1", "v1beta1"),
    namespaced=False,
    short_names=("css",),
    columns=STORE_COLUMNS,
)
