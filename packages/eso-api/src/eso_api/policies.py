"""Parts that stores of both generations share: retries, and which namespaces may use a cluster-scoped store."""

from __future__ import annotations

from eso_api.references import LabelSelector
from eso_api.shapes import Duration, Fragment, Int32, NamespaceName


class RetrySettings(Fragment, frozen=True, kw_only=True):
    """How calls to the backend are retried."""

    max_retries: Int32 | None = None
    """How often; its exact meaning depends on the provider."""
    retry_interval: Duration | None = None
    """Time between retries."""


class NamespaceCondition(Fragment, frozen=True, kw_only=True):
    """Namespaces that may use a cluster-scoped store. One match is enough; the empty condition matches none."""

    namespace_selector: LabelSelector | None = None
    """Namespaces by label; the empty selector matches all."""
    namespaces: list[NamespaceName] = []
    """Namespaces by name."""
    namespace_regexes: list[str] = []
    """Namespaces by expression (RE2) that must match somewhere in the name."""
