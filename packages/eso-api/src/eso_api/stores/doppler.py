"""`spec.provider.doppler`: one config of Doppler."""

from __future__ import annotations

from typing import Annotated

from eso_api.marks import STORE, audiences, default_key, lifetime
from eso_api.references import SecretKeySelector, ServiceAccountSelector
from eso_api.shapes import Fragment, Int64, one_of


class DopplerSecretRef(Fragment, frozen=True, kw_only=True):
    """A token kept in a Secret."""

    doppler_token: Annotated[SecretKeySelector, default_key("dopplerToken")]
    """The token; the key of the Secret is dopplerToken if none is named."""


class DopplerOidc(Fragment, frozen=True, kw_only=True):
    """A service account that Doppler trusts."""

    identity: str
    """Id of the identity at Doppler."""
    service_account_ref: Annotated[
        ServiceAccountSelector,
        audiences("https://api.doppler.com", STORE),
        lifetime(600, sibling="1/expirationSeconds"),
    ]
    """The service account."""
    expiration_seconds: Int64 = 600
    """Lifetime of its tokens in seconds."""


class DopplerAuth(Fragment, frozen=True, kw_only=True):
    """Credentials; exactly one form."""

    secret_ref: DopplerSecretRef | None = None
    """A token kept in a Secret."""
    oidc_config: DopplerOidc | None = None
    """A service account that Doppler trusts."""


class DopplerProvider(Fragment, frozen=True, kw_only=True):
    """One config of Doppler."""

    auth: DopplerAuth
    """Credentials."""
    project: str = ""
    """Project; may be absent with a token of one config."""
    config: str = ""
    """Config; may be absent with a token of one config."""
    name_transformer: Annotated[
        str, one_of("upper-camel", "camel", "lower-snake", "tf-var", "dotnet-env", "lower-kebab")
    ] = ""
    """How a find spells names: upper-camel, camel, lower-snake, tf-var, dotnet-env or lower-kebab."""
    format: Annotated[str, one_of("json", "dotnet-json", "env", "yaml", "docker")] = ""
    """Return the whole config as one file in this format: json, dotnet-json, env, yaml or docker."""
