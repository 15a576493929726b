"""The kinds this provider owns; found through the entry point group `eso.kinds`."""

from eso_provider_onepassword.clusteronepassword import CLUSTER_ONE_PASSWORD
from eso_provider_onepassword.clusteronepasswordsdk import CLUSTER_ONE_PASSWORD_SDK
from eso_provider_onepassword.onepassword import ONE_PASSWORD
from eso_provider_onepassword.onepasswordsdk import ONE_PASSWORD_SDK

KINDS = (ONE_PASSWORD, CLUSTER_ONE_PASSWORD, ONE_PASSWORD_SDK, CLUSTER_ONE_PASSWORD_SDK)
