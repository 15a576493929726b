"""GithubAccessToken: tokens of a GitHub App."""

from __future__ import annotations

import msgspec

from eso_api.crd import generator_kind
from eso_api.references import SecretKeySelector
from eso_api.shapes import Fragment
from kubebase.meta import Object


class GithubPrivateKey(Fragment, frozen=True, kw_only=True):
    """Private key of the App."""

    secret_ref: SecretKeySelector
    """Where it is kept."""


class GithubAuth(Fragment, frozen=True, kw_only=True):
    """Credentials of the App."""

    private_key: GithubPrivateKey
    """Private key of the App."""


class GithubAccessTokenSpec(Fragment, frozen=True, kw_only=True):
    """Which App, and what the token may do."""

    auth: GithubAuth
    """Credentials of the App."""
    app_id: str = msgspec.field(name="appID")
    """Id of the App."""
    install_id: str = msgspec.field(name="installID")
    """Id of the installation."""
    url: str = ""
    """Base URL of the API; absent means https://api.github.com."""
    repositories: list[str] = []
    """Repositories the token is for; absent means all of the installation."""
    permissions: dict[str, str] = {}
    """Permissions of the token; absent means all of the installation."""


class GithubAccessToken(Object, kw_only=True):
    """Tokens of a GitHub App."""

    spec: GithubAccessTokenSpec


GITHUB_ACCESS_TOKEN = generator_kind(GithubAccessToken, "githubaccesstokens")
