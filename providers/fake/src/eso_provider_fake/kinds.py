"""The kinds this provider owns; found through the entry point group `eso.kinds`."""

from eso_provider_fake.clusterfake import CLUSTER_FAKE
from eso_provider_fake.fake import FAKE

KINDS = (FAKE, CLUSTER_FAKE)
