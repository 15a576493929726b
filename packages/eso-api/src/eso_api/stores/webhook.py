"""`spec.provider.webhook`: any HTTP endpoint. The Webhook generator has the same parts."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from eso_api.marks import WholeSecret
from eso_api.references import CaProvider, SecretKeySelector
from eso_api.shapes import Base64, Duration, Fragment, exactly_one


class Ntlm(Fragment, frozen=True, kw_only=True):
    """User name and password for NTLM."""

    username_secret: SecretKeySelector
    """User name."""
    password_secret: SecretKeySelector
    """Password."""


class WebhookAuth(Fragment, frozen=True, kw_only=True):
    """How we authenticate to the endpoint."""

    SHAPE: ClassVar = exactly_one()

    ntlm: Ntlm | None = None
    """NTLM."""


class WebhookResult(Fragment, frozen=True, kw_only=True):
    """Where the value is in the answer."""

    json_path: str = ""
    """JSONPath into the answer; absent takes all of it."""


class WebhookSecret(Fragment, frozen=True, kw_only=True):
    """A Secret whose keys templates may use."""

    name: str
    """Name in templates: .name.key."""
    secret_ref: WholeSecret
    """The Secret; it must carry the label external-secrets.io/type: webhook."""


class WebhookCall(Fragment, frozen=True, kw_only=True):
    """The request to make."""

    url: str
    """URL; a template."""
    method: str = ""
    """HTTP method."""
    headers: dict[str, str] = {}
    """Headers; the values are templates."""
    body: str = ""
    """Body; a template."""
    auth: WebhookAuth | None = None
    """How we authenticate to the endpoint."""
    timeout: Duration = ""
    """Time limit of a request."""
    secrets: list[WebhookSecret] = []
    """Secrets that templates may use."""
    ca_bundle: Base64 = ""
    """CA certificates, PEM in base64."""
    ca_provider: CaProvider | None = None
    """CA certificates kept in a Secret or ConfigMap."""


class WebhookProvider(WebhookCall, frozen=True, kw_only=True):
    """Any HTTP endpoint."""

    result: WebhookResult = msgspec.field(default_factory=WebhookResult)
    """Where the value is in the answer."""
