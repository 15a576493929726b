"""ClusterParameterStore: AWS Parameter Store, for many namespaces."""

from __future__ import annotations

import msgspec

from eso_api.v2.owned import OwnedStatus, cluster_config
from eso_provider_aws.specs import AWS_GROUP, ClusterParameterStoreSpec
from kubebase.meta import Object


class ClusterParameterStore(Object, kw_only=True):
    """AWS Parameter Store, for many namespaces."""

    spec: ClusterParameterStoreSpec
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


CLUSTER_PARAMETER_STORE = cluster_config(ClusterParameterStore, AWS_GROUP, "clusterparameterstores")
