"""ClusterSecretsManager: AWS Secrets Manager, for many namespaces."""

from __future__ import annotations

import msgspec

from eso_api.v2.owned import OwnedStatus, cluster_config
from eso_provider_aws.specs import AWS_GROUP, ClusterSecretsManagerSpec
from kubebase.meta import Object


class ClusterSecretsManager(Object, kw_only=True):
    """AWS Secrets Manager, for many namespaces."""

    spec: ClusterSecretsManagerSpec
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


CLUSTER_SECRETS_MANAGER = cluster_config(ClusterSecretsManager, AWS_GROUP, "clustersecretsmanagers")
