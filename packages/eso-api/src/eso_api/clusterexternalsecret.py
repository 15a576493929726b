"""ClusterExternalSecret: one ExternalSecret in every matching namespace.

Copy the child's spec from the stored JSON, not from `ExternalSecretSpec`: a decoded spec cannot tell explicit defaults
from absent fields, and the child should show what the parent says.
"""

from __future__ import annotations

import msgspec

from eso_api.conditions import Conditions, FailedNamespace
from eso_api.crd import CustomKind, ready_status, spec_column
from eso_api.externalsecret import DEFAULT_INTERVAL, ExternalSecretSpec, SourceNames
from eso_api.references import CORE_GROUP, LabelSelector
from eso_api.shapes import Fragment, Interval, NamespaceName, ObjectName
from kubebase.meta import Object


class ChildMetadata(Fragment, frozen=True, kw_only=True):
    """Labels and annotations of every child; it gets no others."""

    labels: dict[str, str] = {}
    """Labels."""
    annotations: dict[str, str] = {}
    """Annotations."""


class ClusterExternalSecretSpec(Fragment, frozen=True, kw_only=True):
    """Which ExternalSecret goes into which namespaces."""

    external_secret_spec: ExternalSecretSpec
    """Spec of every ExternalSecret."""
    external_secret_name: ObjectName = ""
    """Name of every ExternalSecret; absent means the name of this object."""
    external_secret_metadata: ChildMetadata | None = None
    """Labels and annotations of every ExternalSecret."""
    namespace_selector: LabelSelector | None = None
    """Namespaces by label. Prefer namespaceSelectors."""
    namespace_selectors: list[LabelSelector] = []
    """Namespaces by label; one matching selector is enough."""
    namespaces: list[NamespaceName] = []
    """Namespaces by name, added to the selected ones. Prefer namespaceSelectors."""
    refresh_time: Interval = DEFAULT_INTERVAL
    """Time between checks of the namespaces; absent means 1h, 0 disables them."""


class ChildSources(Fragment, frozen=True, kw_only=True):
    """The sources of the ExternalSecrets, as far as their secretStoreRef does not name them."""

    secret_store_ref: SourceNames | None = None
    """What `kubectl get` shows as store."""


class ClusterExternalSecretStatus(Fragment, frozen=True, kw_only=True):
    """Where the ExternalSecret exists."""

    external_secret_name: str = ""
    """Name of the ExternalSecrets."""
    failed_namespaces: list[FailedNamespace] = []
    """Namespaces where it could not be written."""
    provisioned_namespaces: list[str] = []
    """Namespaces where it exists."""
    conditions: Conditions = []
    """Ready says whether all namespaces have it."""
    external_secret_spec: ChildSources | None = None
    """The sources that `kubectl get` shows if the spec's secretStoreRef does not name a store."""
    refresh_time: str = ""
    """The default interval, which `kubectl get` shows if the spec has none."""


class ClusterExternalSecret(Object, kw_only=True):
    """Keeps one ExternalSecret in every matching namespace."""

    spec: ClusterExternalSecretSpec
    status: ClusterExternalSecretStatus = msgspec.field(default_factory=ClusterExternalSecretStatus)


CLUSTER_EXTERNAL_SECRET = CustomKind(
    ClusterExternalSecret,
    group=CORE_GROUP,
    plural="clusterexternalsecrets",
    versions=("v1", "v1beta1"),
    namespaced=False,
    short_names=("ces",),
    columns=(
        spec_column("Store", "externalSecretSpec.secretStoreRef.name"),
        spec_column("Refresh Interval", "refreshTime"),
        ready_status("Ready"),
    ),
)
