"""The kinds this provider owns; found through the entry point group `eso.kinds`."""

from eso_provider_kubernetes.provider import PROVIDER

KINDS = PROVIDER.kinds_for_crds
