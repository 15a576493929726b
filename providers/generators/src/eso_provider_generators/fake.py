"""Fake: fixed values, for tests and demonstrations."""

from __future__ import annotations

import msgspec

from eso_api.generators.fake import FakeSpec
from eso_api.v2.generator import GENERATOR_CATEGORIES
from eso_api.v2.owned import GENERATOR_CONFIG_GROUP, OwnedStatus, namespaced_config
from kuberun.meta import Object


class Fake(Object, kw_only=True):
    """Fixed values, for tests and demonstrations, for v2 generators."""

    spec: FakeSpec = msgspec.field(default_factory=FakeSpec)
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


FAKE = namespaced_config(Fake, GENERATOR_CONFIG_GROUP, "fakes", GENERATOR_CATEGORIES)
