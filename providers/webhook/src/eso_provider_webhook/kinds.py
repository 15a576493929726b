"""The kinds this provider owns; found through the entry point group `eso.kinds`."""

from eso_provider_webhook.clusterwebhook import CLUSTER_WEBHOOK
from eso_provider_webhook.generator import WEBHOOK as GENERATOR
from eso_provider_webhook.webhook import WEBHOOK

KINDS = (WEBHOOK, CLUSTER_WEBHOOK, GENERATOR)
