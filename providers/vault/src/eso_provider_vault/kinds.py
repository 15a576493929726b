"""The kinds this provider owns; found through the entry point group `eso.kinds`."""

from eso_provider_vault.clusteropenbao import CLUSTER_OPEN_BAO
from eso_provider_vault.clustervault import CLUSTER_VAULT
from eso_provider_vault.openbao import OPEN_BAO
from eso_provider_vault.vault import VAULT
from eso_provider_vault.vaultdynamicsecret import VAULT_DYNAMIC_SECRET

KINDS = (VAULT, CLUSTER_VAULT, OPEN_BAO, CLUSTER_OPEN_BAO, VAULT_DYNAMIC_SECRET)
