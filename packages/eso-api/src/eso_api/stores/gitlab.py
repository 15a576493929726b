"""`spec.provider.gitlab`: CI/CD variables of a GitLab project and of groups."""

from __future__ import annotations

import msgspec

from eso_api.references import CaProvider, SecretKeySelector
from eso_api.shapes import Base64, Fragment


class GitlabSecretRef(Fragment, frozen=True, kw_only=True):
    """An access token kept in a Secret."""

    access_token: SecretKeySelector = msgspec.field(default_factory=SecretKeySelector)
    """An access token that may read variables."""


class GitlabStoreAuth(Fragment, frozen=True, kw_only=True):
    """Credentials."""

    secret_ref: GitlabSecretRef = msgspec.field(name="SecretRef")
    """An access token kept in a Secret. The name of this field begins with a capital letter."""


class GitlabProvider(Fragment, frozen=True, kw_only=True):
    """CI/CD variables of a GitLab project and of groups."""

    auth: GitlabStoreAuth
    """Credentials."""
    url: str = ""
    """URL of GitLab; absent means https://gitlab.com."""
    project_id: str = msgspec.field(default="", name="projectID")
    """Id or path of the project."""
    group_ids: list[str] = msgspec.field(default_factory=list, name="groupIDs")
    """Ids or paths of groups, whose variables are used if the project has none of that key; the last group wins."""
    inherit_from_groups: bool = False
    """Use the variables of the groups above the project too; not with groupIDs."""
    environment: str = ""
    """Environment scope of the variables; those of scope * are used if there is none of this scope."""
    ca_bundle: Base64 = ""
    """CA certificates, PEM in base64."""
    ca_provider: CaProvider | None = None
    """CA certificates kept in a Secret or ConfigMap."""
