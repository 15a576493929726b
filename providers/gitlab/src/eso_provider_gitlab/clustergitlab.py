"""ClusterGitLab: CI/CD variables of a GitLab project and of groups, for many namespaces."""

from __future__ import annotations

import msgspec

from eso_api.stores.gitlab import GitlabProvider
from eso_api.v2.owned import STORE_CONFIG_GROUP, OwnedStatus, cluster_config
from eso_api.v2.policy import ClusterPolicy
from kubebase.meta import Object


class ClusterGitLabSpec(GitlabProvider, frozen=True, kw_only=True):
    """The fields of `spec.provider.gitlab` of a v1 store, and who may use them."""

    common: ClusterPolicy | None = None
    """Behaviour when this object is named directly, without a store."""


class ClusterGitLab(Object, kw_only=True):
    """CI/CD variables of a GitLab project and of groups, for many namespaces."""

    spec: ClusterGitLabSpec
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


CLUSTER_GITLAB = cluster_config(ClusterGitLab, STORE_CONFIG_GROUP, "clustergitlabs")
