"""`spec.provider.openBao`: key/value engines of OpenBao."""

from __future__ import annotations

from typing import Annotated, ClassVar

from eso_api.references import CaProvider, SecretKeySelector
from eso_api.shapes import Base64, Fragment, at_most_one, exactly_one_of, one_of


class OpenBaoAppRole(Fragment, frozen=True, kw_only=True):
    """AppRole login."""

    RULES: ClassVar = (exactly_one_of("roleId", "roleRef"),)

    secret_ref: SecretKeySelector
    """The secret id."""
    path: str = "approle"
    """Mount path; absent means approle."""
    role_id: str = ""
    """The role id."""
    role_ref: SecretKeySelector | None = None
    """The role id, kept in a Secret."""


class OpenBaoUserPass(Fragment, frozen=True, kw_only=True):
    """User name and password."""

    username: str
    """The user."""
    path: str = "userpass"
    """Mount path; absent means userpass."""
    secret_ref: SecretKeySelector | None = None
    """The password."""


class OpenBaoAuth(Fragment, frozen=True, kw_only=True):
    """How to log in."""

    RULES: ClassVar = (exactly_one_of("appRole", "tokenSecretRef", "userPass"),)

    app_role: OpenBaoAppRole | None = None
    """AppRole."""
    token_secret_ref: SecretKeySelector | None = None
    """A token."""
    user_pass: OpenBaoUserPass | None = None
    """User name and password."""
    namespace: str = ""
    """OpenBao namespace of the login."""


class OpenBaoProvider(Fragment, frozen=True, kw_only=True):
    """Key/value engines of OpenBao."""

    RULES: ClassVar = (at_most_one("caBundle", "caProvider"),)

    server: str
    """URL of the server."""
    auth: OpenBaoAuth | None = None
    """How to log in."""
    path: str = "kv"
    """Mount path of the engine; absent means kv."""
    version: Annotated[str, one_of("v1", "v2")] = "v2"
    """Version of the engine; absent means v2."""
    namespace: str = ""
    """OpenBao namespace."""
    ca_bundle: Base64 = ""
    """CA certificates, PEM in base64."""
    ca_provider: CaProvider | None = None
    """CA certificates kept in a Secret or ConfigMap."""
