"""QuayAccessToken: logins of a Quay robot account, for v2 generators."""

from __future__ import annotations

import msgspec

from eso_api.generators.quayaccesstoken import QuayAccessTokenSpec
from eso_api.v2.generator import GENERATOR_CATEGORIES
from eso_api.v2.owned import GENERATOR_CONFIG_GROUP, OwnedStatus, namespaced_config
from kubebase.meta import Object


class QuayAccessToken(Object, kw_only=True):
    """Logins of a Quay robot account, for v2 generators."""

    spec: QuayAccessTokenSpec
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


QUAY_ACCESS_TOKEN = namespaced_config(QuayAccessToken, GENERATOR_CONFIG_GROUP, "quayaccesstokens", GENERATOR_CATEGORIES)
