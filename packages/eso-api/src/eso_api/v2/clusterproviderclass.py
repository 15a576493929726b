"""ClusterProviderClass: one provider process, for many namespaces."""

from __future__ import annotations

import msgspec

from eso_api.crd import CustomKind
from eso_api.references import CORE_GROUP
from eso_api.v2.providerclass import CLASS_COLUMNS, ProviderClassSpec, ProviderClassStatus
from kubebase.meta import Object


class ClusterProviderClass(Object, kw_only=True):
    """One provider process, for many namespaces."""

    spec: ProviderClassSpec
    status: ProviderClassStatus = msgspec.field(default_factory=ProviderClassStatus)


CLUSTER_PROVIDER_CLASS = CustomKind(
    ClusterProviderClass,
    group=CORE_GROUP,
    plural="clusterproviderclasses",
    versions=("v1alpha1",),
    short_names=("cprovclass",),
    namespaced=False,
    columns=CLASS_COLUMNS,
)
