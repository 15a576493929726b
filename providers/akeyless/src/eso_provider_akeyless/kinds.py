"""The kinds this provider owns; found through the entry point group `eso.kinds`."""

from eso_provider_akeyless.akeyless import AKEYLESS
from eso_provider_akeyless.clusterakeyless import CLUSTER_AKEYLESS

KINDS = (AKEYLESS, CLUSTER_AKEYLESS)
