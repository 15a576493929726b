"""ClusterSecretStore: a backend for many namespaces."""

from __future__ import annotations

import msgspec

from eso_api.conditions import StoreStatus
from eso_api.crd import CustomKind
from eso_api.references import CORE_GROUP
from eso_api.secretstore import STORE_COLUMNS, SecretStoreSpec
from kubebase.meta import Object


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
