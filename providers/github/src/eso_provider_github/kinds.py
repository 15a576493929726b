"""The kinds this provider owns; found through the entry point group `eso.kinds`."""

from eso_provider_github.clustergithub import CLUSTER_GITHUB
from eso_provider_github.github import GITHUB
from eso_provider_github.githubaccesstoken import GITHUB_ACCESS_TOKEN

KINDS = (GITHUB, CLUSTER_GITHUB, GITHUB_ACCESS_TOKEN)
