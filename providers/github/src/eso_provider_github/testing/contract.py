"""What GitHub's API description says about the operations that this provider uses.

| | |
|---|---|
| source | `github/rest-api-description`, commit 5c88ff6bc3c36a12ccd69b8e0fee479b7202188a, `descriptions/ghes-3.6` |
| its licence | MIT |
| environments | the paths of API version 2022-11-28; their bodies are those of repositories |

The facts are written anew as types, with the members that the description requires; no text of it is here.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from eso_sdk.testing.apicontract import ApiContract, Operation

Base64 = Annotated[str, Meta(pattern=r"^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$")]
Visibility = Literal["all", "private", "selected"]
Selection = Literal["all", "selected"]


class Secret(msgspec.Struct):
    """A secret of a repository or an environment."""

    name: str
    created_at: datetime
    updated_at: datetime


class OrganizationSecret(Secret):
    """A secret of an organization."""

    visibility: Visibility
    selected_repositories_url: str | UnsetType = UNSET


class Secrets(msgspec.Struct):
    """A page of secrets."""

    total_count: int
    secrets: list[Secret]


class OrganizationSecrets(msgspec.Struct):
    """A page of secrets of an organization."""

    total_count: int
    secrets: list[OrganizationSecret]


class PublicKey(msgspec.Struct):
    """The key that seals values."""

    key_id: str
    key: str


class NewSecret(msgspec.Struct, forbid_unknown_fields=True):
    """A value for a repository or an environment."""

    encrypted_value: Base64
    key_id: str


class NewOrganizationSecret(msgspec.Struct, forbid_unknown_fields=True):
    """A value for an organization."""

    encrypted_value: Base64
    key_id: str
    visibility: Visibility
    selected_repository_ids: list[int] | UnsetType = UNSET


class User(msgspec.Struct):
    """The owner of a repository."""

    login: str
    id: int
    node_id: str
    gravatar_id: str | None
    type: str
    site_admin: bool
    avatar_url: str
    url: str
    html_url: str
    followers_url: str
    following_url: str
    gists_url: str
    starred_url: str
    subscriptions_url: str
    organizations_url: str
    repos_url: str
    events_url: str
    received_events_url: str


LINKS: Final = (
    "archive", "assignees", "blobs", "branches", "collaborators", "comments", "commits", "compare", "contents",
    "contributors", "deployments", "downloads", "events", "forks", "git_commits", "git_refs", "git_tags", "hooks",
    "html", "issue_comment", "issue_events", "issues", "keys", "labels", "languages", "merges", "milestones",
    "notifications", "pulls", "releases", "stargazers", "statuses", "subscribers", "subscription", "tags",
    "teams", "trees",
)  # fmt: skip
"""The links that a repository has, each as a member NAME_url."""

Repository = msgspec.defstruct(
    "Repository",
    [
        ("id", int),
        ("node_id", str),
        ("name", str),
        ("full_name", str),
        ("private", bool),
        ("fork", bool),
        ("description", str | None),
        ("url", str),
        ("owner", User),
        *((f"{link}_url", str) for link in LINKS),
    ],
)


class SelectedRepositories(msgspec.Struct):
    """A page of repositories that may use a secret."""

    total_count: int
    repositories: list[Repository]  # type: ignore[valid-type] # made of the list of its links


class TokenLimits(msgspec.Struct, forbid_unknown_fields=True):
    """To what a token is limited."""

    repositories: list[str] | UnsetType = UNSET
    repository_ids: list[int] | UnsetType = UNSET
    permissions: dict[str, str] | UnsetType = UNSET


class Token(msgspec.Struct):
    """A token of an installation."""

    token: str
    expires_at: str
    permissions: dict[str, str] | UnsetType = UNSET
    repository_selection: Selection | UnsetType = UNSET


class Installation(msgspec.Struct):
    """An installation of an App."""

    id: int
    app_id: int
    app_slug: str
    target_id: int
    target_type: str
    account: Any
    repository_selection: Selection
    permissions: dict[str, str]
    events: list[str]
    single_file_name: str | None
    access_tokens_url: str
    repositories_url: str
    html_url: str
    created_at: datetime
    updated_at: datetime
    suspended_by: Any
    suspended_at: datetime | None


class Failure(msgspec.Struct):
    """An error."""

    message: str | UnsetType = UNSET
    documentation_url: str | UnsetType = UNSET
    status: str | UnsetType = UNSET


PAGES: Final = frozenset({"per_page", "page"})


def _secrets(place: str, listed: Any, shown: Any, new: Any) -> tuple[Operation, ...]:
    return (
        Operation("GET", place, {200: listed}, query=PAGES),
        Operation("GET", f"{place}/public-key", {200: PublicKey}),
        Operation("GET", f"{place}/{{secret_name}}", {200: shown}),
        Operation("PUT", f"{place}/{{secret_name}}", {201: dict[str, Any], 204: None}, body=new),
        Operation("DELETE", f"{place}/{{secret_name}}", {204: None}),
    )


API: Final = ApiContract(
    "/api/v3",
    Operation("GET", "/app/installations/{installation_id}", {200: Installation}),
    Operation(
        "POST",
        "/app/installations/{installation_id}/access_tokens",
        {201: Token},
        body=TokenLimits,
        is_body_optional=True,
    ),
    Operation("DELETE", "/installation/token", {204: None}),
    *_secrets("/orgs/{org}/actions/secrets", OrganizationSecrets, OrganizationSecret, NewOrganizationSecret),
    Operation(
        "GET", "/orgs/{org}/actions/secrets/{secret_name}/repositories", {200: SelectedRepositories}, query=PAGES
    ),
    *_secrets("/repos/{owner}/{repo}/actions/secrets", Secrets, Secret, NewSecret),
    *_secrets("/repos/{owner}/{repo}/environments/{environment_name}/secrets", Secrets, Secret, NewSecret),
    errors=Failure,
)
