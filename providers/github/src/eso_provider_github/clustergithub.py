"""ClusterGitHub: Secrets of GitHub Actions, for many namespaces."""

from __future__ import annotations

import msgspec

from eso_api.stores.github import GithubProvider
from eso_api.v2.owned import STORE_CONFIG_GROUP, OwnedStatus, cluster_config
from eso_api.v2.policy import ClusterPolicy
from kubebase.meta import Object


class ClusterGitHubSpec(GithubProvider, frozen=True, kw_only=True):
    """The fields of `spec.provider.github` of a v1 store, and who may use them."""

    common: ClusterPolicy | None = None
    """Behaviour when this object is named directly, without a store."""


class ClusterGitHub(Object, kw_only=True):
    """Secrets of GitHub Actions, for many namespaces."""

    spec: ClusterGitHubSpec
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


CLUSTER_GITHUB = cluster_config(ClusterGitHub, STORE_CONFIG_GROUP, "clustergithubs")
