"""UUID: random identifiers, version 4."""

from __future__ import annotations

import msgspec

from eso_api.generators.uuid import UUIDSpec
from eso_api.v2.generator import GENERATOR_CATEGORIES
from eso_api.v2.owned import GENERATOR_CONFIG_GROUP, OwnedStatus, namespaced_config
from kuberun.meta import Object


class UUID(Object, kw_only=True):
    """Random identifiers, version 4, for v2 generators."""

    spec: UUIDSpec = msgspec.field(default_factory=UUIDSpec)
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


UUID_KIND = namespaced_config(UUID, GENERATOR_CONFIG_GROUP, "uuids", GENERATOR_CATEGORIES)
