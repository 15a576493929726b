"""`spec.provider.onepassword` and `onepasswordSDK`: 1Password through a Connect server, or with a service account."""

from __future__ import annotations

from typing import Annotated

from eso_api.references import SecretKeySelector
from eso_api.shapes import Duration, Fragment, NonEmpty, shaped


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


class OnePasswordSDKAuth(Fragment, frozen=True, kw_only=True):
    """Credentials for 1Password."""

    service_account_secret_ref: SecretKeySelector
    """Token of a service account."""


class OnePasswordIntegration(Fragment, frozen=True, kw_only=True):
    """The name under which calls appear in the activity log of the account."""

    name: str = "1Password SDK"
    """Name of the integration."""
    version: str = "v1.0.0"
    """Version of the integration."""


class OnePasswordCache(Fragment, frozen=True, kw_only=True):
    """How long values are kept without a call."""

    ttl: Duration = "5m"
    """How long a value is served without asking 1Password."""
    max_size: Annotated[int, shaped(minimum=1)] = 100
    """How many values are kept."""


class OnePasswordSDKProvider(Fragment, frozen=True, kw_only=True):
    """1Password, with a service account."""

    auth: OnePasswordSDKAuth
    """Credentials for 1Password."""
    vault: str = ""
    """Name or id of the vault; set this or environment."""
    environment: str = ""
    """Id of a 1Password Environment, whose variables can be read; set this or vault."""
    integration_info: OnePasswordIntegration | None = None
    """The name under which calls appear in the activity log of the account."""
    cache: OnePasswordCache | None = None
    """Keeps values for a while without a call; absent asks at every refresh whether the vault changed."""
