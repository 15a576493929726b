"""The webhook provider as a whole."""

from __future__ import annotations

from typing import Final

from eso_provider_webhook.generator import WebhookGenerator
from eso_provider_webhook.store import WebhookStore
from eso_sdk.main import run
from eso_sdk.provider import Maturity, Provider

PROVIDER: Final = Provider(
    name="webhook", version="0.1.0", maturity=Maturity.STABLE, kinds=(WebhookStore, WebhookGenerator)
)


def main() -> None:
    """Run the console script `eso-provider-webhook`."""
    raise SystemExit(run(PROVIDER))
