"""The kinds this provider owns; found through the entry point group `eso.kinds`."""

from eso_provider_gcp.clustergcpsecretmanager import CLUSTER_GCP_SECRET_MANAGER
from eso_provider_gcp.gcpsecretmanager import GCP_SECRET_MANAGER
from eso_provider_gcp.gcraccesstoken import GCR_ACCESS_TOKEN

KINDS = (GCP_SECRET_MANAGER, CLUSTER_GCP_SECRET_MANAGER, GCR_ACCESS_TOKEN)
