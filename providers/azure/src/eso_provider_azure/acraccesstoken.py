"""ACRAccessToken: logins for Azure's container registry, for v2 generators."""

from __future__ import annotations

import msgspec

from eso_api.generators.acraccesstoken import ACRAccessTokenSpec
from eso_api.v2.generator import GENERATOR_CATEGORIES
from eso_api.v2.owned import GENERATOR_CONFIG_GROUP, OwnedStatus, namespaced_config
from kubebase.meta import Object


class ACRAccessToken(Object, kw_only=True):
    """Logins for Azure's container registry, for v2 generators."""

    spec: ACRAccessTokenSpec
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


ACR_ACCESS_TOKEN = namespaced_config(ACRAccessToken, GENERATOR_CONFIG_GROUP, "acraccesstokens", GENERATOR_CATEGORIES)
