"""The kinds this provider owns; found through the entry point group `eso.kinds`."""

from eso_provider_azure.acraccesstoken import ACR_ACCESS_TOKEN
from eso_provider_azure.clusterkeyvault import CLUSTER_KEY_VAULT
from eso_provider_azure.keyvault import KEY_VAULT

KINDS = (KEY_VAULT, CLUSTER_KEY_VAULT, ACR_ACCESS_TOKEN)
