"""ClusterPushSecret: one PushSecret in every matching namespace."""

from __future__ import annotations

import msgspec

from eso_api.clusterexternalsecret import ChildMetadata
from eso_api.conditions import Conditions, FailedNamespace
from eso_api.crd import CustomKind, age_column, ready_reason
from eso_api.pushsecret import PushSecretSpec
from eso_api.references import CORE_GROUP, LabelSelector
from eso_api.shapes import Fragment, Interval, ObjectName
from kubebase.meta import Object


class ClusterPushSecretSpec(Fragment, frozen=True, kw_only=True):
    """Which PushSecret goes into which namespaces."""

    push_secret_spec: PushSecretSpec
    """Spec of every PushSecret."""
    push_secret_name: ObjectName = ""
    """Name of every PushSecret; absent means the name of this object."""
    push_secret_metadata: ChildMetadata | None = None
    """Labels and annotations of every PushSecret."""
    namespace_selectors: list[LabelSelector] = []
    """Namespaces by label; one matching selector is enough."""
    refresh_time: Interval = "1h0m0s"
    """Time between checks of the namespaces; absent means 1h, 0 disables them."""


class ClusterPushSecretStatus(Fragment, frozen=True, kw_only=True):
    """Where the PushSecret exists."""

    push_secret_name: str = ""
    """Name of the PushSecrets."""
    failed_namespaces: list[FailedNamespace] = []
    """Namespaces where it could not be written."""
    provisioned_namespaces: list[str] = []
    """Namespaces where it exists."""
    conditions: Conditions = []
    """Ready says whether all namespaces have it."""


class ClusterPushSecret(Object, kw_only=True):
    """Keeps one PushSecret in every matching namespace."""

    spec: ClusterPushSecretSpec
    status: ClusterPushSecretStatus = msgspec.field(default_factory=ClusterPushSecretStatus)


CLUSTER_PUSH_SECRET = CustomKind(
    ClusterPushSecret,
    group=CORE_GROUP,
    plural="clusterpushsecrets",
    versions=("v1alpha1",),
    namespaced=False,
    columns=(age_column("AGE"), ready_reason("Status")),
)
