"""`spec.provider.onepassword`: 1Password through a Connect server."""

from __future__ import annotations

from typing import Annotated

from eso_api.references import SecretKeySelector
from eso_api.shapes import Fragment, NonEmpty, shaped


class OnePasswordSecretRef(Fragment, frozen=True, kw_only=True):
    """A token kept in a Secret."""

    connect_token_secret_ref: SecretKeySelector
    """Access token of the Connect server."""


class OnePasswordAuth(Fragment, frozen=True, kw_only=True):
    """Credentials for the Connect server."""

    secret_ref: OnePasswordSecretRef
    """A token kept in a Secret."""


class OnePasswordProvider(Fragment, frozen=True, kw_only=True):
    """1Password, through a Connect server of your own."""

    auth: OnePasswordAuth
    """Credentials for the Connect server."""
    connect_host: NonEmpty
    """Address of the Connect server, such as http://connect:8080."""
    vaults: Annotated[dict[str, int], shaped(minProperties=1)]
    """Vaults by name or id, each with its place in the search order; the lowest number is searched first."""
