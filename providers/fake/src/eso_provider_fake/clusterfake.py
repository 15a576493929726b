"""ClusterFake: secrets written in the object itself, for many namespaces."""

from __future__ import annotations

import msgspec

from eso_api.stores.fake import FakeProvider
from eso_api.v2.owned import STORE_CONFIG_GROUP, OwnedStatus, cluster_config
from eso_api.v2.policy import ClusterPolicy
from kubebase.meta import Object


class ClusterFakeSpec(FakeProvider, frozen=True, kw_only=True):
    """The secrets, and who may use them."""

    common: ClusterPolicy | None = None
    """Behaviour when this object is named directly, without a store."""


class ClusterFake(Object, kw_only=True):
    """Secrets written in the object itself, for many namespaces."""

    spec: ClusterFakeSpec
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


CLUSTER_FAKE = cluster_config(ClusterFake, STORE_CONFIG_GROUP, "clusterfakes")
