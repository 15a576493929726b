"""Webhook: values behind an HTTP endpoint, for one namespace."""

from __future__ import annotations

import msgspec

from eso_api.stores.webhook import WebhookProvider
from eso_api.v2.owned import STORE_CONFIG_GROUP, OwnedStatus, namespaced_config
from eso_api.v2.policy import Policy
from kubebase.meta import Object


class WebhookSpec(WebhookProvider, frozen=True, kw_only=True):
    """The requests, as in `spec.provider.webhook` of a v1 store."""

    common: Policy | None = None
    """Behaviour when this object is named directly, without a store."""


class Webhook(Object, kw_only=True):
    """Values behind an HTTP endpoint."""

    spec: WebhookSpec
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


WEBHOOK = namespaced_config(Webhook, STORE_CONFIG_GROUP, "webhooks")
