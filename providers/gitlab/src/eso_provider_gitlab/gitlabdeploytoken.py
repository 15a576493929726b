"""GitlabDeployToken: deploy tokens of a GitLab project or group, for v2 generators."""

from __future__ import annotations

import msgspec

from eso_api.generators.gitlabdeploytoken import GitlabDeployTokenSpec
from eso_api.v2.generator import GENERATOR_CATEGORIES
from eso_api.v2.owned import GENERATOR_CONFIG_GROUP, OwnedStatus, namespaced_config
from kubebase.meta import Object


class GitlabDeployToken(Object, kw_only=True):
    """Deploy tokens of a GitLab project or group, for v2 generators."""

    spec: GitlabDeployTokenSpec
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


GITLAB_DEPLOY_TOKEN = namespaced_config(
    GitlabDeployToken, GENERATOR_CONFIG_GROUP, "gitlabdeploytokens", GENERATOR_CATEGORIES
)
