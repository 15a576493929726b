"""Settings shared by stores of both generations: retries, change detection, and access to cluster-scoped stores."""

from __future__ import annotations

from typing import Annotated

from eso_api.references import LabelSelector
from eso_api.shapes import Duration, Fragment, Int32, NamespaceName, one_of

AUTO, POLL = "Auto", "Poll"

RefreshTrigger = Annotated[str, one_of(AUTO, POLL)]
"""Auto: also when a provider reports a change. Poll: by time only."""


class RetrySettings(Fragment, frozen=True, kw_only=True):
    """How calls to the backend are retried."""

    max_retries: Int32 | None = None
    """How often a call is retried if waiting can help; absent means 3."""
    retry_interval: Duration | None = None
    """Time before the first retry, then doubled up to 30 s; all delays of a call together last at most 60 s."""


class NamespaceCondition(Fragment, frozen=True, kw_only=True):
    """Namespaces that may use a cluster-scoped store. One match is enough; the empty condition matches none."""

    namespace_selector: LabelSelector | None = None
    """Namespaces by label; the empty selector matches all."""
    namespaces: list[NamespaceName] = []
    """Namespaces by name."""
    namespace_regexes: list[str] = []
    """Namespaces by expression (RE2) that must match somewhere in the name."""
