"""SecretStore: a backend for its own namespace. v1 and v1beta1 have the same schema."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from eso_api.conditions import StoreStatus
from eso_api.crd import CustomKind, age_column, ready_reason, ready_status, string_column
from eso_api.policies import AUTO, NamespaceCondition, RefreshTrigger, RetrySettings
from eso_api.references import CORE_GROUP
from eso_api.shapes import Fragment, PositiveInterval, shaped_as
from eso_api.stores.block import ProviderBlock
from kubebase.meta import Object


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
