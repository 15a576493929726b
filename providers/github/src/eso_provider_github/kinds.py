"""The kinds this provider owns; found through the entry point group `eso.kinds`."""

from __future__ import annotations

from typing import Final

from eso_api.generators.github import GithubAccessTokenSpec
from eso_api.stores.github import GithubProvider
from eso_api.v2.owned import fields_of, generator_config, store_kinds

STORES: Final = store_kinds(
    GithubProvider,
    module=__name__,
    kind="GitHub",
    plural="githubs",
    cluster="ClusterGitHub",
    about="Secrets of GitHub Actions",
    spec=fields_of("github"),
)
ACCESS_TOKEN: Final = generator_config(
    GithubAccessTokenSpec,
    module=__name__,
    kind="GithubAccessToken",
    plural="githubaccesstokens",
    about="Tokens of a GitHub App",
)

KINDS: Final = (*STORES, ACCESS_TOKEN)
