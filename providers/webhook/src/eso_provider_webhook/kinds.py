"""The kinds this provider owns; found through the entry point group `eso.kinds`."""

from eso_provider_webhook.generator import WEBHOOK

KINDS = (WEBHOOK,)
