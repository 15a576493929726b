"""Fake: fixed values, for tests and demonstrations."""

from __future__ import annotations

from collections.abc import Mapping

from eso_api.generators.local import FAKE as V1_FAKE
from eso_api.generators.local import FakeSpec
from eso_provider_generators.kinds import FAKE
from eso_sdk.provider import Generator, generator_kind
from eso_wire.values import GenerateRequest


@generator_kind(objects=(FAKE,), bridged=(V1_FAKE,))
class FakeGenerator(Generator[FakeSpec]):
    """A generator that returns the values of its configuration."""

    async def generate(self, request: GenerateRequest) -> Mapping[str, bytes]:
        del request
        return {key: value.encode() for key, value in self.config.data.items()}
