"""The Bitwarden Secrets Manager provider as a whole."""

from __future__ import annotations

from typing import Final

from eso_provider_bitwarden.kinds import KINDS
from eso_provider_bitwarden.store import BitwardenStore
from eso_sdk.provider import Maturity, Provider, store_kind

BitwardenSecretsManager = store_kind(objects=KINDS, v1_key="bitwardensecretsmanager")(BitwardenStore)

PROVIDER: Final = Provider(
    name="bitwarden", version="0.1.0", kinds=(BitwardenSecretsManager,), maturity=Maturity.UNPROVEN
)
