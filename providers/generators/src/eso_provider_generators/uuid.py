"""UUID: random identifiers of version 4."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

import msgspec

from eso_api.generators.uuid import UUID_KIND as V1_UUID
from eso_api.generators.uuid import UUIDSpec
from eso_api.v2.generator import GENERATOR_CATEGORIES
from eso_api.v2.owned import GENERATOR_CONFIG_GROUP, OwnedStatus, namespaced_config
from eso_sdk.provider import Generator, generator_kind
from eso_wire.values import GenerateRequest
from kubebase.meta import Object


class UUID(Object, kw_only=True):
    """Random identifiers, version 4, for v2 generators."""

    spec: UUIDSpec = msgspec.field(default_factory=UUIDSpec)
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


UUID_KIND = namespaced_config(UUID, GENERATOR_CONFIG_GROUP, "uuids", GENERATOR_CATEGORIES)


@generator_kind(objects=(UUID_KIND,), bridged=(V1_UUID,))
class UUIDGenerator(Generator[UUIDSpec]):
    """One identifier, under `uuid`."""

    async def generate(self, request: GenerateRequest) -> Mapping[str, bytes]:
        del request
        return {"uuid": str(uuid.uuid4()).encode()}
