"""GithubAccessToken: tokens of a GitHub App, for v2 generators."""

from __future__ import annotations

import msgspec

from eso_api.generators.githubaccesstoken import GithubAccessTokenSpec
from eso_api.v2.generator import GENERATOR_CATEGORIES
from eso_api.v2.owned import GENERATOR_CONFIG_GROUP, OwnedStatus, namespaced_config
from kubebase.meta import Object


class GithubAccessToken(Object, kw_only=True):
    """Tokens of a GitHub App, for v2 generators."""

    spec: GithubAccessTokenSpec
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


GITHUB_ACCESS_TOKEN = namespaced_config(
    GithubAccessToken, GENERATOR_CONFIG_GROUP, "githubaccesstokens", GENERATOR_CATEGORIES
)
