"""`spec.provider.github`: secrets of GitHub Actions, which can be written and never read."""

from __future__ import annotations

from typing import Annotated

import msgspec

from eso_api.references import SecretKeySelector
from eso_api.shapes import Fragment, one_of


class GithubAppAuth(Fragment, frozen=True, kw_only=True):
    """Credentials of a GitHub App."""

    private_key: SecretKeySelector
    """Private key of the App, in PEM."""


class GithubProvider(Fragment, frozen=True, kw_only=True):
    """Secrets of GitHub Actions: of an organization, a repository, or an environment of a repository."""

    auth: GithubAppAuth
    """Credentials of a GitHub App."""
    app_id: int = msgspec.field(name="appID")
    """Id of the App."""
    installation_id: int = msgspec.field(name="installationID")
    """Id of the installation."""
    organization: str
    """The organization, or the user who owns the repository."""
    url: str = ""
    """URL of GitHub; absent means https://github.com/."""
    upload_url: str = msgspec.field(default="", name="uploadURL")
    """Accepted and not used: pushes upload no files."""
    repository: str = ""
    """Name of a repository; absent writes secrets of the organization."""
    environment: str = ""
    """Name of an environment of the repository; absent writes secrets of the repository."""
    org_secret_visibility: Annotated[str, one_of("all", "private")] = ""
    """Visibility of secrets of the organization; absent keeps that of existing ones, and makes new ones for all."""
