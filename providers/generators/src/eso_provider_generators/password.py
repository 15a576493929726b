"""Password: random passwords."""

from __future__ import annotations

import msgspec

from eso_api.generators.password import PasswordSpec
from eso_api.v2.generator import GENERATOR_CATEGORIES
from eso_api.v2.owned import GENERATOR_CONFIG_GROUP, OwnedStatus, namespaced_config
from kuberun.meta import Object


class Password(Object, kw_only=True):
    """Random passwords, for v2 generators."""

    spec: PasswordSpec = msgspec.field(default_factory=PasswordSpec)
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


PASSWORD = namespaced_config(Password, GENERATOR_CONFIG_GROUP, "passwords", GENERATOR_CATEGORIES)
