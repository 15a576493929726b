"""The kinds this provider owns; found through the entry point group `eso.kinds`."""

from eso_provider_infisical.clusterinfisical import CLUSTER_INFISICAL
from eso_provider_infisical.infisical import INFISICAL

KINDS = (INFISICAL, CLUSTER_INFISICAL)
