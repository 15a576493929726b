"""ClusterWebhook: values behind an HTTP endpoint, for many namespaces."""

from __future__ import annotations

import msgspec

from eso_api.stores.webhook import WebhookProvider
from eso_api.v2.owned import STORE_CONFIG_GROUP, OwnedStatus, cluster_config
from eso_api.v2.policy import ClusterPolicy
from kubebase.meta import Object


class ClusterWebhookSpec(WebhookProvider, frozen=True, kw_only=True):
    """The requests, and who may use them."""

    common: ClusterPolicy | None = None
    """Behaviour when this object is named directly, without a store."""


class ClusterWebhook(Object, kw_only=True):
    """Values behind an HTTP endpoint, for many namespaces."""

    spec: ClusterWebhookSpec
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


CLUSTER_WEBHOOK = cluster_config(ClusterWebhook, STORE_CONFIG_GROUP, "clusterwebhooks")
