"""The kinds this provider owns; found through the entry point group `eso.kinds`."""

from __future__ import annotations

from typing import Final

from eso_api.stores.bitwarden import BitwardenProvider
from eso_api.v2.owned import fields_of, store_kinds

KINDS: Final = store_kinds(
    BitwardenProvider,
    module=__name__,
    kind="BitwardenSecretsManager",
    plural="bitwardensecretsmanagers",
    cluster="ClusterBitwardenSecretsManager",
    about="Bitwarden Secrets Manager",
    spec=fields_of("bitwardensecretsmanager"),
)
