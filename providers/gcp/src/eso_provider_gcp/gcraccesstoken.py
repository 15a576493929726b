"""GCRAccessToken: Logins for Google's container registries, for v2 generators."""

from __future__ import annotations

import msgspec

from eso_api.generators.gcraccesstoken import GCRAccessTokenSpec
from eso_api.v2.generator import GENERATOR_CATEGORIES
from eso_api.v2.owned import GENERATOR_CONFIG_GROUP, OwnedStatus, namespaced_config
from kubebase.meta import Object


class GCRAccessToken(Object, kw_only=True):
    """Logins for Google's container registries, for v2 generators."""

    spec: GCRAccessTokenSpec
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


GCR_ACCESS_TOKEN = namespaced_config(GCRAccessToken, GENERATOR_CONFIG_GROUP, "gcraccesstokens", GENERATOR_CATEGORIES)
