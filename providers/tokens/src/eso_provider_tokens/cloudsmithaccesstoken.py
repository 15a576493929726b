"""CloudsmithAccessToken: logins for Cloudsmith registries, for v2 generators."""

from __future__ import annotations

import msgspec

from eso_api.generators.cloudsmithaccesstoken import CloudsmithAccessTokenSpec
from eso_api.v2.generator import GENERATOR_CATEGORIES
from eso_api.v2.owned import GENERATOR_CONFIG_GROUP, OwnedStatus, namespaced_config
from kubebase.meta import Object


class CloudsmithAccessToken(Object, kw_only=True):
    """Logins for Cloudsmith registries, for v2 generators."""

    spec: CloudsmithAccessTokenSpec
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


CLOUDSMITH_ACCESS_TOKEN = namespaced_config(
    CloudsmithAccessToken, GENERATOR_CONFIG_GROUP, "cloudsmithaccesstokens", GENERATOR_CATEGORIES
)
