"""The common fields of every v2 store, generator and provider.

A provider's own kinds may embed `Policy` (or `ClusterPolicy` in a cluster-scoped kind) as `spec.common`.
"""

from __future__ import annotations

from typing import Annotated

from eso_api.common import AUTO, Conditions, NamespaceCondition, RefreshTrigger, RetrySettings
from eso_api.shapes import Duration, Fragment, PositiveInterval, one_of

ENABLED, DISABLED = "Enabled", "Disabled"
PROVIDER_NAMESPACE, MANIFEST_NAMESPACE = "ProviderNamespace", "ManifestNamespace"


class Timeouts(Fragment, frozen=True, kw_only=True):
    """Time limits of single steps."""

    connect: Duration | None = None
    """Time to connect to the provider, within that of the call; absent means 10 s."""
    call: Duration | None = None
    """Time for one call to the provider, at most 300 s; absent means 30 s."""


class Policy(Fragment, frozen=True, kw_only=True):
    """Behaviour that does not depend on the backend."""

    controller: str = ""
    """Class of the operator that handles this object; absent means any."""
    refresh_interval: PositiveInterval = 0
    """Time between validations: a Go duration or seconds, at least 1 s; absent or 0 means the operator's setting."""
    refresh_trigger: RefreshTrigger = AUTO
    """Auto (default) also refreshes users when the provider reports a change; Poll only at their interval."""
    gating_policy: Annotated[str, one_of(ENABLED, DISABLED)] = ENABLED
    """Enabled (default) calls the provider only while this object is ready or unknown; Disabled always calls it."""
    retry_settings: RetrySettings | None = None
    """How calls are retried."""
    timeouts: Timeouts | None = None
    """Time limits of single steps."""


class ClusterPolicy(Policy, frozen=True, kw_only=True):
    """Behaviour of a cluster-scoped object: also who may use it, and which namespace's credentials it uses."""

    authentication_scope: Annotated[str, one_of(PROVIDER_NAMESPACE, MANIFEST_NAMESPACE)] = PROVIDER_NAMESPACE
    """Namespace of the credentials: that of the provider's object (default), or that of the user of the store."""
    conditions: list[NamespaceCondition] = []
    """Namespaces that may use this object; absent means all."""


class ProviderStatus(Fragment, frozen=True, kw_only=True):
    """The state of the provider, and its capabilities."""

    conditions: Conditions = []
    """Ready says whether the provider can be used."""
    capabilities: str = ""
    """ReadOnly, WriteOnly or ReadWrite, derived from operations."""
    operations: list[str] = []
    """The operations that the provider supports with this configuration."""
    observed_generation: int = 0
    """Generation to which the conditions refer."""
