"""Fake: fixed values, for tests and demonstrations."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from eso_api.generators.fake import FAKE as V1_FAKE
from eso_api.generators.fake import FakeSpec
from eso_api.v2.generator import GENERATOR_CATEGORIES
from eso_api.v2.owned import GENERATOR_CONFIG_GROUP, OwnedStatus, namespaced_config
from eso_sdk.provider import Generator, generator_kind
from eso_wire.values import GenerateRequest
from kubebase.meta import Object


class Fake(Object, kw_only=True):
    """Fixed values, for tests and demonstrations, for v2 generators."""

    spec: FakeSpec = msgspec.field(default_factory=FakeSpec)
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


FAKE = namespaced_config(Fake, GENERATOR_CONFIG_GROUP, "fakes", GENERATOR_CATEGORIES)


@generator_kind(objects=(FAKE,), bridged=(V1_FAKE,))
class FakeGenerator(Generator[FakeSpec]):
    """A generator that returns the values of its configuration."""

    async def generate(self, request: GenerateRequest) -> Mapping[str, bytes]:
        del request
        return {key: value.encode() for key, value in self.config.data.items()}
