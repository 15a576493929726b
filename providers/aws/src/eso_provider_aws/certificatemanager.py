"""CertificateManager: Certificates of AWS Certificate Manager, for one namespace."""

from __future__ import annotations

import msgspec

from eso_api.v2.owned import OwnedStatus, namespaced_config
from eso_provider_aws.specs import AWS_GROUP, CertificateManagerSpec
from kubebase.meta import Object


class CertificateManager(Object, kw_only=True):
    """Certificates of AWS Certificate Manager, for one namespace."""

    spec: CertificateManagerSpec
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


CERTIFICATE_MANAGER = namespaced_config(CertificateManager, AWS_GROUP, "certificatemanagers")
