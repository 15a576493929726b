"""The specs of the kinds of Azure, shared by the namespaced kind and its cluster-scoped twin."""

from __future__ import annotations

import msgspec

from eso_api.shapes import Fragment
from eso_api.stores.azurekv import AzureProvider
from eso_api.v2.policy import ClusterPolicy, Policy

AZURE_GROUP = "azure.provider.external-secrets.io"


class AzureChanges(Fragment, frozen=True, kw_only=True):
    """Settings of the change detection."""

    queue_url: str = msgspec.field(default="", name="queueURL")
    """URL of a storage queue that receives the Event Grid events of the vault; absent means to list the vault."""


class KeyVaultConfig(AzureProvider, frozen=True, kw_only=True):
    """The configuration of a store: a v1 block, or the spec of a kind."""

    changes: AzureChanges | None = None

    @property
    def queue_url(self) -> str:
        return self.changes.queue_url if self.changes is not None else ""


class KeyVaultSpec(AzureProvider, frozen=True, kw_only=True):
    """Which vault, as whom."""

    changes: AzureChanges | None = None
    """Settings of the change detection."""
    common: Policy | None = None
    """Behaviour when this object is named directly, without a store."""


class ClusterKeyVaultSpec(AzureProvider, frozen=True, kw_only=True):
    """Which vault, as whom, and who may use it."""

    changes: AzureChanges | None = None
    """Settings of the change detection."""
    common: ClusterPolicy | None = None
    """Behaviour when this object is named directly, without a store."""
