"""Cloud identities of the provider's own machine or pod: aws_iam and gcp, and what azure_ad shares with them.

The author of a store chooses the server that receives the proof, and others may accept the same proof. Therefore only
Akeyless itself and hosts that the administrator of the provider lists receive it.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec
from yarl import URL

from eso_api.stores.akeyless import AkeylessProvider
from eso_provider_akeyless.gateways import OWN_HOSTS, api_url
from eso_sdk.awsidentity import CALLER_IDENTITY, Sts, process_source, sts_url
from eso_sdk.backend import Backend
from eso_sdk.errors import credentials_not_found, invalid_config
from eso_sdk.http import HttpRequest, call_cloud, status_error
from eso_sdk.loginbodies import Body, MakeBody
from eso_sdk.sigv4 import Scope, SignableRequest, signed_headers
from kubebase.clock import Clock

Opened = Backend[AkeylessProvider]


@dataclass(frozen=True, slots=True)
class Form:
    """One configured login."""

    name: str
    """The form, for messages."""
    proof: tuple[str, ...] = field(repr=False)
    """Everything that determines the identity. Equal for all sessions that may share a token."""
    body: MakeBody = field(repr=False)
    advice: str
    """What to check when Akeyless rejects the login."""


SESSION_NAME: Final = "external-secrets-provider-akeyless"
DEFAULT_REGION: Final = "us-east-1"
DEFAULT_AUDIENCE: Final = "akeyless.io"

_POINTER: Final = "/authSecretRef/secretRef"
_GOOGLE: Final = "metadata.google.internal"
_IDENTITY: Final = "/computeMetadata/v1/instance/service-accounts/default/identity"


@dataclass(frozen=True, slots=True)
class Cloud:
    """What the forms of cloud identities begin with."""

    store: Opened = field(repr=False)
    access_id: str
    parameter: str = field(repr=False)
    """Content of accessTypeParam."""
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)

    def use_own_identity(self, own: str) -> None:
        """Refuse a proof of the provider's own identity, unless its administrator allows it for this gateway."""
        identity, url = self.store.process_identity, api_url(self.store.config.akeyless_gw_api_url)
        identity.use(own, field=_POINTER, instead="use an access key or kubernetesAuth")
        identity.prove(own, url, field="/akeylessGWApiURL", vendor=OWN_HOSTS)

    def body(self, access_type: str, cloud_id: bytes) -> Body:
        return {
            "access-id": self.access_id,
            "access-type": access_type,
            "cloud-id": base64.b64encode(cloud_id).decode(),
        }


def amazon(cloud: Cloud) -> Form:
    """Prove the AWS role of the provider's pod with a signed request that Akeyless sends to AWS itself."""
    cloud.use_own_identity("AWS role")
    environment, clock = cloud.environment, cloud.store.clock
    region = environment.get("AWS_REGION", "") or environment.get("AWS_DEFAULT_REGION", "") or DEFAULT_REGION
    if not region.replace("-", "").isalnum():
        raise invalid_config("AWS_REGION", "this environment variable of the provider does not name a region")
    source = process_source(environment, clock)
    if source is None:
        raise credentials_not_found(
            "aws_iam uses the AWS role of the provider, and it has none; bind a role to its ServiceAccount (IRSA or Pod"
            " Identity), or use another access type"
        )
    scope = Scope(region, "sts")
    sts = Sts(sts_url(region, environment), scope, clock, SESSION_NAME, "/authSecretRef/secretRef")
    suffix = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    url = URL(f"https://sts.{region}.{suffix}/")

    async def body() -> Body:
        credentials = await source.obtain(sts)
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        headers = signed_headers(SignableRequest("POST", url, form, CALLER_IDENTITY), credentials, scope, clock.now())
        # Akeyless sets the host from the address.
        lists = {name: [value] for name, value in headers.items() if name != "Host"}
        request = {
            "sts_request_method": "POST",
            "sts_request_url": base64.b64encode(str(url).encode()).decode(),
            "sts_request_body": base64.b64encode(CALLER_IDENTITY).decode(),
            "sts_request_headers": base64.b64encode(msgspec.json.encode(lists)).decode(),
        }
        return cloud.body("aws_iam", msgspec.json.encode(request))

    return Form(
        name="aws_iam",
        proof=("aws_iam", cloud.access_id, region, *source.who),
        body=body,
        advice="check the access id, and that the auth method allows the account and the role of the provider",
    )


def google(cloud: Cloud) -> Form:
    """Prove the Google service account of the provider's pod with an identity token of the metadata server."""
    cloud.use_own_identity("Google identity")
    audience = cloud.parameter or DEFAULT_AUDIENCE

    async def body() -> Body:
        host = cloud.environment.get("GCE_METADATA_HOST", "") or _GOOGLE
        url = URL(f"http://{host}{_IDENTITY}").with_query(audience=audience, format="full")
        token = await fetch(
            HttpRequest("GET", url, {"Metadata-Flavor": "Google"}), "Google's metadata server", cloud.store.clock
        )
        return cloud.body("gcp", token.strip())

    return Form(
        name="gcp",
        proof=("gcp", cloud.access_id, audience),
        body=body,
        advice="check the access id, the audience, and that the auth method allows the provider's service account",
    )


async def fetch(request: HttpRequest, subject: str, clock: Clock) -> bytes:
    """Return the response of a metadata server."""
    response = await call_cloud(request, subject, clock)
    if response.status in (400, 404):
        raise credentials_not_found(
            f"{subject} has no identity for the provider; assign one to its machine or pod, or use another access type"
        )
    if problem := status_error(response, subject, clock):
        raise problem
    return response.body
