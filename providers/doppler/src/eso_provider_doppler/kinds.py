"""The kinds this provider owns; found through the entry point group `eso.kinds`."""

from __future__ import annotations

from typing import Final

from eso_api.stores.doppler import DopplerProvider
from eso_api.v2.owned import fields_of, store_kinds

KINDS: Final = store_kinds(
    DopplerProvider,
    module=__name__,
    kind="Doppler",
    plural="dopplers",
    cluster="ClusterDoppler",
    about="One config of Doppler",
    spec=fields_of("doppler"),
)
