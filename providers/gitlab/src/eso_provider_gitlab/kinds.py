"""The kinds this provider owns; found through the entry point group `eso.kinds`."""

from __future__ import annotations

from typing import Final

from eso_api.generators.gitlab import GitlabDeployTokenSpec
from eso_api.stores.gitlab import GitlabProvider
from eso_api.v2.owned import fields_of, generator_config, store_kinds

STORES: Final = store_kinds(
    GitlabProvider,
    module=__name__,
    kind="GitLab",
    plural="gitlabs",
    cluster="ClusterGitLab",
    about="CI/CD variables of a GitLab project and of groups",
    spec=fields_of("gitlab"),
)
DEPLOY_TOKEN: Final = generator_config(
    GitlabDeployTokenSpec,
    module=__name__,
    kind="GitlabDeployToken",
    plural="gitlabdeploytokens",
    about="Deploy tokens of a GitLab project or group",
)

KINDS: Final = (*STORES, DEPLOY_TOKEN)
