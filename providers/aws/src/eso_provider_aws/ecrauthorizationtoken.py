"""ECRAuthorizationToken: Logins for Amazon's container registry, for v2 generators."""

from __future__ import annotations

import msgspec

from eso_api.generators.ecrauthorizationtoken import ECRAuthorizationTokenSpec
from eso_api.v2.generator import GENERATOR_CATEGORIES
from eso_api.v2.owned import GENERATOR_CONFIG_GROUP, OwnedStatus, namespaced_config
from kubebase.meta import Object


class ECRAuthorizationToken(Object, kw_only=True):
    """Logins for Amazon's container registry, for v2 generators."""

    spec: ECRAuthorizationTokenSpec
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


ECR_AUTHORIZATION_TOKEN = namespaced_config(
    ECRAuthorizationToken, GENERATOR_CONFIG_GROUP, "ecrauthorizationtokens", GENERATOR_CATEGORIES
)
