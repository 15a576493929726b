"""The configuration of a store, and the kinds this provider owns; found through the entry point group `eso.kinds`."""

from __future__ import annotations

from typing import Final

import msgspec

from eso_api.generators.azure import ACRAccessTokenSpec
from eso_api.shapes import Fragment
from eso_api.stores.azure import AzureProvider
from eso_api.v2.owned import generator_config, store_kinds

AZURE_GROUP: Final = "azure.provider.external-secrets.io"


class AzureChanges(Fragment, frozen=True, kw_only=True):
    """Settings of the change detection."""

    queue_url: str = msgspec.field(default="", name="queueURL")
    """URL of a storage queue that receives the Event Grid events of the vault; absent means to list the vault."""


class KeyVaultConfig(AzureProvider, frozen=True, kw_only=True):
    """The configuration of a store: a v1 block, or the spec of a kind."""

    changes: AzureChanges | None = None
    """Settings of the change detection."""

    @property
    def queue_url(self) -> str:
        return self.changes.queue_url if self.changes is not None else ""


STORES: Final = store_kinds(
    KeyVaultConfig,
    module=__name__,
    kind="KeyVault",
    plural="keyvaults",
    cluster="ClusterKeyVault",
    about="Azure Key Vault",
    spec="Which vault, as whom.",
    group=AZURE_GROUP,
    cluster_spec="Which vault, as whom, and who may use it.",
)
ACCESS_TOKEN: Final = generator_config(
    ACRAccessTokenSpec,
    module=__name__,
    kind="ACRAccessToken",
    plural="acraccesstokens",
    about="Logins for Azure's container registry",
)

KINDS: Final = (*STORES, ACCESS_TOKEN)
