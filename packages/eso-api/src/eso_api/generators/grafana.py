"""Grafana: tokens of Grafana service accounts."""

from __future__ import annotations

from typing import Annotated

from eso_api.generators.definition import generator_kind
from eso_api.references import SecretKeySelector
from eso_api.shapes import Fragment, shaped
from kubebase.meta import Object


class GrafanaBasic(Fragment, frozen=True, kw_only=True):
    """User name and password."""

    username: str
    """The user."""
    password: SecretKeySelector
    """The password."""


class GrafanaAuth(Fragment, frozen=True, kw_only=True):
    """Credentials; the token is preferred."""

    token: SecretKeySelector | None = None
    """A token."""
    basic: GrafanaBasic | None = None
    """User name and password."""


class GrafanaServiceAccount(Fragment, frozen=True, kw_only=True):
    """The service account that tokens belong to."""

    name: str
    """Its name; it is created when absent."""
    role: str
    """Its role when it is created."""
    seconds_to_live: Annotated[int | None, shaped(format="int64", minimum=1)] = None
    """Lifetime of a token; absent means forever."""


class GrafanaSpec(Fragment, frozen=True, kw_only=True):
    """Which Grafana, as whom, and for which service account."""

    url: str
    """URL of Grafana."""
    auth: GrafanaAuth
    """Credentials."""
    service_account: GrafanaServiceAccount
    """The service account that tokens belong to."""


class Grafana(Object, kw_only=True):
    """Tokens of Grafana service accounts."""

    spec: GrafanaSpec


GRAFANA = generator_kind(Grafana, "grafanas")
