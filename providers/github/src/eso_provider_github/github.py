"""GitHub: Secrets of GitHub Actions, for one namespace."""

from __future__ import annotations

import msgspec

from eso_api.stores.github import GithubProvider
from eso_api.v2.owned import STORE_CONFIG_GROUP, OwnedStatus, namespaced_config
from eso_api.v2.policy import Policy
from kubebase.meta import Object


class GitHubSpec(GithubProvider, frozen=True, kw_only=True):
    """The fields of `spec.provider.github` of a v1 store, and who may use them."""

    common: Policy | None = None
    """Behaviour when this object is named directly, without a store."""


class GitHub(Object, kw_only=True):
    """Secrets of GitHub Actions, for one namespace."""

    spec: GitHubSpec
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


GITHUB = namespaced_config(GitHub, STORE_CONFIG_GROUP, "githubs")
