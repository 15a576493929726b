"""The kinds this provider owns; found through the entry point group `eso.kinds`."""

from __future__ import annotations

from typing import Final

from eso_api.generators.vault import VaultDynamicSecretSpec
from eso_api.stores.vault import OpenBaoProvider, VaultProvider
from eso_api.v2.owned import fields_of, generator_config, store_kinds

VAULT: Final = store_kinds(
    VaultProvider,
    module=__name__,
    kind="Vault",
    plural="vaults",
    cluster="ClusterVault",
    about="Key/value engines of HashiCorp Vault",
    spec=fields_of("vault"),
)
OPEN_BAO: Final = store_kinds(
    OpenBaoProvider,
    module=__name__,
    kind="OpenBao",
    plural="openbaos",
    cluster="ClusterOpenBao",
    about="Key/value engines of OpenBao",
    spec=fields_of("openBao"),
)
DYNAMIC_SECRET: Final = generator_config(
    VaultDynamicSecretSpec,
    module=__name__,
    kind="VaultDynamicSecret",
    plural="vaultdynamicsecrets",
    about="Generates values from the response of any path of Vault",
)

KINDS: Final = (*VAULT, *OPEN_BAO, DYNAMIC_SECRET)
