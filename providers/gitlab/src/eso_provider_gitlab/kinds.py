"""The kinds this provider owns; found through the entry point group `eso.kinds`."""

from eso_provider_gitlab.clustergitlab import CLUSTER_GITLAB
from eso_provider_gitlab.gitlab import GITLAB
from eso_provider_gitlab.gitlabdeploytoken import GITLAB_DEPLOY_TOKEN

KINDS = (GITLAB, CLUSTER_GITLAB, GITLAB_DEPLOY_TOKEN)
