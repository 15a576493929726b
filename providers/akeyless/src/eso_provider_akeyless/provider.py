"""The Akeyless provider as a whole."""

from __future__ import annotations

from typing import Final

from eso_provider_akeyless.akeyless import AKEYLESS
from eso_provider_akeyless.clusterakeyless import CLUSTER_AKEYLESS
from eso_provider_akeyless.store import AkeylessStore
from eso_sdk.provider import Maturity, Provider, store_kind

NAME: Final = "akeyless"
VERSION: Final = "0.1.0"
API_NAME: Final = "AKEYLESSLESS/SecretsManager"
"""The label that metrics of the operator in Go have: dashboards select by it."""

Akeyless = store_kind(objects=(AKEYLESS, CLUSTER_AKEYLESS), v1_key="akeyless")(AkeylessStore)

PROVIDER: Final = Provider(name=NAME, version=VERSION, kinds=(Akeyless,), api_name=API_NAME, maturity=Maturity.UNPROVEN)
