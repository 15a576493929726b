"""UUID: random identifiers of version 4."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from eso_api.generators.local import UUID_KIND as V1_UUID
from eso_api.generators.local import UUIDSpec
from eso_provider_generators.kinds import UUID
from eso_sdk.provider import Generator, generator_kind
from eso_wire.values import GenerateRequest


@generator_kind(objects=(UUID,), bridged=(V1_UUID,))
class UUIDGenerator(Generator[UUIDSpec]):
    """One identifier, under `uuid`."""

    async def generate(self, request: GenerateRequest) -> Mapping[str, bytes]:
        del request
        return {"uuid": str(uuid.uuid4()).encode()}
