"""STSSessionToken: Temporary AWS keys, for v2 generators."""

from __future__ import annotations

import msgspec

from eso_api.generators.stssessiontoken import STSSessionTokenSpec
from eso_api.v2.generator import GENERATOR_CATEGORIES
from eso_api.v2.owned import GENERATOR_CONFIG_GROUP, OwnedStatus, namespaced_config
from kubebase.meta import Object


class STSSessionToken(Object, kw_only=True):
    """Temporary AWS keys, for v2 generators."""

    spec: STSSessionTokenSpec
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


STS_SESSION_TOKEN = namespaced_config(STSSessionToken, GENERATOR_CONFIG_GROUP, "stssessiontokens", GENERATOR_CATEGORIES)
