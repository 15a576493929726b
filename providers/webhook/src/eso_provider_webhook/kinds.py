"""The kinds this provider owns; found through the entry point group `eso.kinds`."""

from __future__ import annotations

from typing import Final

from eso_api.generators.webhook import WebhookSpec
from eso_api.stores.webhook import WebhookProvider
from eso_api.v2.owned import generator_config, store_kinds

STORES: Final = store_kinds(
    WebhookProvider,
    module=__name__,
    kind="Webhook",
    plural="webhooks",
    cluster="ClusterWebhook",
    about="Values behind an HTTP endpoint",
    spec="The requests, as in `spec.provider.webhook` of a v1 store.",
    scope="",
    cluster_spec="The requests, and who may use them.",
)
GENERATOR: Final = generator_config(
    WebhookSpec,
    module=__name__,
    kind="Webhook",
    plural="webhooks",
    about="Generates values from the response of an HTTP endpoint",
)

KINDS: Final = (*STORES, GENERATOR)
