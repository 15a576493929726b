"""GitlabDeployToken: deploy tokens of a GitLab project or group."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from eso_api.crd import generator_kind
from eso_api.references import SecretKeySelector
from eso_api.shapes import Fragment, NonEmpty, Timestamp, exactly_one_of, one_of, shaped
from kubebase.meta import Object

GitlabScope = Annotated[
    str,
    one_of(
        "read_repository",
        "read_registry",
        "write_registry",
        "read_package_registry",
        "write_package_registry",
        "read_virtual_registry",
        "write_virtual_registry",
    ),
]


class GitlabToken(Fragment, frozen=True, kw_only=True):
    """A token that may create deploy tokens."""

    secret_ref: SecretKeySelector
    """Where it is kept."""


class GitlabAuth(Fragment, frozen=True, kw_only=True):
    """Credentials."""

    token: GitlabToken
    """A token that may create deploy tokens."""


class GitlabDeployTokenSpec(Fragment, frozen=True, kw_only=True):
    """Where the token is made, and what it may do."""

    RULES: ClassVar = (exactly_one_of("projectID", "groupID"),)

    name: NonEmpty
    """Name of the deploy token."""
    scopes: Annotated[list[GitlabScope], shaped(minItems=1)]
    """The rights of the token."""
    auth: GitlabAuth
    """Credentials."""
    url: str = ""
    """URL of GitLab; absent means https://gitlab.com."""
    project_id: NonEmpty = msgspec.field(default="", name="projectID")
    """Id or path of the project."""
    group_id: NonEmpty = msgspec.field(default="", name="groupID")
    """Id or path of the group."""
    username: str = ""
    """User name of the token; absent lets GitLab choose."""
    expires_at: Timestamp = None
    """When the token expires; absent means never."""


class GitlabDeployToken(Object, kw_only=True):
    """Deploy tokens of a GitLab project or group."""

    spec: GitlabDeployTokenSpec


GITLAB_DEPLOY_TOKEN = generator_kind(GitlabDeployToken, "gitlabdeploytokens")
