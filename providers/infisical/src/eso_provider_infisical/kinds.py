"""The kinds this provider owns; found through the entry point group `eso.kinds`."""

from __future__ import annotations

from typing import Final

from eso_api.stores.infisical import InfisicalProvider
from eso_api.v2.owned import fields_of, store_kinds

KINDS: Final = store_kinds(
    InfisicalProvider,
    module=__name__,
    kind="Infisical",
    plural="infisicals",
    cluster="ClusterInfisical",
    about="Infisical",
    spec=fields_of("infisical"),
)
