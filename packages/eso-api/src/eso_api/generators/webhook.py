"""Webhook: what an HTTP endpoint answers."""

from __future__ import annotations

from eso_api.crd import generator_kind
from eso_api.stores.webhook import WebhookCall, WebhookResult
from kubebase.meta import Object


class WebhookSpec(WebhookCall, frozen=True, kw_only=True):
    """Which request, and what to take from the answer."""

    result: WebhookResult
    """Where the values are in the answer."""


class Webhook(Object, kw_only=True):
    """Generates values from the response of an HTTP endpoint."""

    spec: WebhookSpec


WEBHOOK = generator_kind(Webhook, "webhooks")
