"""The Infisical provider as a whole."""

from __future__ import annotations

from typing import Final

from eso_provider_infisical.kinds import KINDS
from eso_provider_infisical.store import InfisicalStore
from eso_sdk.provider import Maturity, Provider, store_kind

Infisical = store_kind(objects=KINDS, v1_key="infisical")(InfisicalStore)

PROVIDER: Final = Provider(name="infisical", version="0.1.0", kinds=(Infisical,), maturity=Maturity.UNPROVEN)
