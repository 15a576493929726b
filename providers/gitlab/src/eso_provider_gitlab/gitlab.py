"""GitLab: CI/CD variables of a GitLab project and of groups, for one namespace."""

from __future__ import annotations

import msgspec

from eso_api.stores.gitlab import GitlabProvider
from eso_api.v2.owned import STORE_CONFIG_GROUP, OwnedStatus, namespaced_config
from eso_api.v2.policy import Policy
from kubebase.meta import Object


class GitLabSpec(GitlabProvider, frozen=True, kw_only=True):
    """The fields of `spec.provider.gitlab` of a v1 store, and who may use them."""

    common: Policy | None = None
    """Behaviour when this object is named directly, without a store."""


class GitLab(Object, kw_only=True):
    """CI/CD variables of a GitLab project and of groups, for one namespace."""

    spec: GitLabSpec
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


GITLAB = namespaced_config(GitLab, STORE_CONFIG_GROUP, "gitlabs")
