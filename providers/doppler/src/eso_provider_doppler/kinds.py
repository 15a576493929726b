"""The kinds this provider owns; found through the entry point group `eso.kinds`."""

from eso_provider_doppler.clusterdoppler import CLUSTER_DOPPLER
from eso_provider_doppler.doppler import DOPPLER

KINDS = (DOPPLER, CLUSTER_DOPPLER)
