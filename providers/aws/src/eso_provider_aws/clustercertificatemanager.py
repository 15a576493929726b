"""ClusterCertificateManager: Certificates of AWS Certificate Manager, for many namespaces."""

from __future__ import annotations

import msgspec

from eso_api.v2.owned import OwnedStatus, cluster_config
from eso_provider_aws.specs import AWS_GROUP, ClusterCertificateManagerSpec
from kubebase.meta import Object


class ClusterCertificateManager(Object, kw_only=True):
    """Certificates of AWS Certificate Manager, for many namespaces."""

    spec: ClusterCertificateManagerSpec
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


CLUSTER_CERTIFICATE_MANAGER = cluster_config(ClusterCertificateManager, AWS_GROUP, "clustercertificatemanagers")
