"""The kinds this provider owns; found through the entry point group `eso.kinds`."""

from eso_provider_bitwarden.bitwardensecretsmanager import BITWARDEN_SECRETS_MANAGER
from eso_provider_bitwarden.clusterbitwardensecretsmanager import CLUSTER_BITWARDEN_SECRETS_MANAGER

KINDS = (BITWARDEN_SECRETS_MANAGER, CLUSTER_BITWARDEN_SECRETS_MANAGER)
