"""The fields that several kinds share: conditions and failures in `status`, access and retries of stores in `spec`."""

from __future__ import annotations

from typing import Annotated, Final

from eso_api.references import LabelSelector
from eso_api.shapes import Duration, Fragment, Int32, NamespaceName, Timestamp, one_of, shaped
from kubebase.meta import Condition

READY: Final = "Ready"
"""The condition that says whether an object can be used, or is synced."""
INVALID_PROVIDER_CONFIG: Final = "InvalidProviderConfig"
"""The reason of all v1 stores that are not ready; the message begins with the cause."""
CONTENDED: Final = "Contended"
"""The condition of an object whose work other objects undo, or that undoes it itself."""
SHARED_PLACE: Final = "SharedPlace"
"""Its reason if objects of several namespaces write to one place. Values are not compared: this may be intended."""

# Keyed by type, so that two writers with different condition types do not overwrite each other.
Conditions = Annotated[list[Condition], shaped(x_kubernetes_list_type="map", x_kubernetes_list_map_keys=["type"])]


class FailedNamespace(Fragment, frozen=True, kw_only=True):
    """A namespace that a fan-out did not reach."""

    namespace: str
    """Name of the namespace."""
    reason: str = ""
    """Why it failed."""


class KeyOutcome(Fragment, frozen=True, kw_only=True):
    """The failure of one entry or field of the spec; nothing is written for entries that work."""

    path: str
    """The entry or field, for example spec.data[2] or spec.target.template."""
    reason: str
    """Machine-readable cause, for example SecretNotFound or NamespaceDenied."""
    remote_key: str = ""
    """Remote key of the entry."""
    store: str = ""
    """Kind and name of the store."""
    message: str = ""
    """What failed and what to do next; never a value."""
    since: Timestamp = None
    """When the failures began."""
    step: str = ""
    """The step that failed, for example Validate, Fetch, Render or Write; ReadSource or Push for a PushSecret."""


class StoreStatus(Fragment, frozen=True, kw_only=True):
    """The state of a store, and its capabilities."""

    conditions: Conditions = []
    """Ready says whether the store can be used."""
    capabilities: str = ""
    """ReadOnly, WriteOnly or ReadWrite."""


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
