"""Fake: secrets written in the object itself, for one namespace."""

from __future__ import annotations

import msgspec

from eso_api.stores.fake import FakeProvider
from eso_api.v2.owned import STORE_CONFIG_GROUP, OwnedStatus, namespaced_config
from eso_api.v2.policy import Policy
from kubebase.meta import Object


class FakeSpec(FakeProvider, frozen=True, kw_only=True):
    """The secrets, as in `spec.provider.fake` of a v1 store."""

    common: Policy | None = None
    """Behaviour when this object is named directly, without a store."""


class Fake(Object, kw_only=True):
    """Secrets written in the object itself, for tests and demonstrations."""

    spec: FakeSpec
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


FAKE = namespaced_config(Fake, STORE_CONFIG_GROUP, "fakes")
