"""BeyondtrustWorkloadCredentialsDynamicSecret: short-lived credentials of BeyondTrust, for v2 generators."""

from __future__ import annotations

import msgspec

from eso_api.generators.beyondtrustworkloadcredentialsdynamicsecret import (
    BeyondtrustWorkloadCredentialsDynamicSecretSpec,
)
from eso_api.v2.generator import GENERATOR_CATEGORIES
from eso_api.v2.owned import GENERATOR_CONFIG_GROUP, OwnedStatus, namespaced_config
from kubebase.meta import Object


class BeyondtrustWorkloadCredentialsDynamicSecret(Object, kw_only=True):
    """Short-lived credentials of BeyondTrust, for v2 generators."""

    spec: BeyondtrustWorkloadCredentialsDynamicSecretSpec
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


BEYONDTRUST_DYNAMIC_SECRET = namespaced_config(
    BeyondtrustWorkloadCredentialsDynamicSecret,
    GENERATOR_CONFIG_GROUP,
    "beyondtrustworkloadcredentialsdynamicsecrets",
    GENERATOR_CATEGORIES,
)
