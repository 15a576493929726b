"""The Doppler provider as a whole."""

from __future__ import annotations

from typing import Final

from eso_provider_doppler.clusterdoppler import CLUSTER_DOPPLER
from eso_provider_doppler.doppler import DOPPLER
from eso_provider_doppler.store import DopplerStore
from eso_sdk.provider import Provider, store_kind

NAME: Final = "doppler"
VERSION: Final = "0.1.0"

Doppler = store_kind(objects=(DOPPLER, CLUSTER_DOPPLER), v1_key="doppler")(DopplerStore)

PROVIDER: Final = Provider(name=NAME, version=VERSION, kinds=(Doppler,), api_name="Doppler")
