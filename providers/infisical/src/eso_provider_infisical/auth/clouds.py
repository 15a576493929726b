"""Forms that prove an identity that a cloud gave to the provider: azure, gcpIdToken and aws.

The author of a store chooses the server that receives the token and what the token is valid for. Therefore it is sent
only to hosts that the administrator lists. The form aws is a signed GetCallerIdentity request, which Infisical sends to
AWS itself; AWS accepts it for 15 minutes.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from typing import Final

import msgspec
from yarl import URL

from eso_api.stores.infisical import InfisicalAwsAuth, InfisicalAzureAuth, InfisicalGcpIdTokenAuth
from eso_provider_infisical.auth.form import Form, Opened, prove_own_identity
from eso_sdk.awsidentity import CALLER_IDENTITY, Sts, process_source, sts_url
from eso_sdk.errors import backend_error, credentials_not_found, invalid_config
from eso_sdk.http import HttpRequest, call_cloud, status_error
from eso_sdk.loginbodies import Body, optional_text, text
from eso_sdk.sigv4 import Scope, SignableRequest, signed_headers
from kubebase.clock import Clock

RESOURCE: Final = "https://management.azure.com/"

_AZURE: Final = "http://169.254.169.254"
_GOOGLE: Final = "metadata.google.internal"
_IDENTITY: Final = "/computeMetadata/v1/instance/service-accounts/default/identity"


def azure(config: InfisicalAzureAuth, store: Opened, environment: Mapping[str, str] = os.environ) -> Form:
    pointer = "/auth/azureAuthCredentials"
    identity = text(store, config.identity_id, f"{pointer}/identityId")
    resource = optional_text(store, config.resource, f"{pointer}/resource") or RESOURCE
    prove_own_identity(store, "managed identity", pointer)

    async def body() -> Body:
        base = environment.get("AZURE_POD_IDENTITY_AUTHORITY_HOST", "") or _AZURE
        url = (URL(base) / "metadata/identity/oauth2/token").with_query(
            {"api-version": "2018-02-01", "resource": resource}
        )
        response = await _fetch(url, {"Metadata": "true"}, "Azure's instance metadata", store.clock)
        return {"identityId": identity, "jwt": _access_token(response)}

    return Form(
        name="azureAuthCredentials",
        method="azure-auth",
        call="MachineIdentityLoginViaAzureAuth",
        proof=(identity, resource),
        body=body,
        advice="check the identity id, the resource, and that its Azure auth allows the provider's managed identity",
    )


def gcp_id_token(config: InfisicalGcpIdTokenAuth, store: Opened, environment: Mapping[str, str] = os.environ) -> Form:
    pointer = "/auth/gcpIdTokenAuthCredentials"
    identity = text(store, config.identity_id, f"{pointer}/identityId")
    prove_own_identity(store, "Google identity", pointer)

    async def body() -> Body:
        host = environment.get("GCE_METADATA_HOST", "") or _GOOGLE
        url = URL(f"http://{host}{_IDENTITY}").with_query(audience=identity, format="full")
        token = await _fetch(url, {"Metadata-Flavor": "Google"}, "Google's metadata server", store.clock)
        return {"identityId": identity, "jwt": token.decode("ascii", "replace").strip()}

    return Form(
        name="gcpIdTokenAuthCredentials",
        method="gcp-auth",
        call="MachineIdentityLoginViaGcpIdTokenAuth",
        proof=(identity,),
        body=body,
        advice="check the identity id, and that its GCP auth is of type gce and allows the provider's service account",
    )


async def _fetch(url: URL, headers: Mapping[str, str], subject: str, clock: Clock) -> bytes:
    response = await call_cloud(HttpRequest("GET", url, headers), subject, clock)
    if response.status in (400, 404):
        raise credentials_not_found(
            f"{subject} has no identity for the provider; assign one to its machine, or use another form of auth"
        )
    if problem := status_error(response, subject, clock):
        raise problem
    return response.body


class _Azure(msgspec.Struct, frozen=True):
    access_token: str


def _access_token(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=_Azure).access_token
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise backend_error("Azure's instance metadata sends no token") from None


SESSION_NAME: Final = "external-secrets-provider-infisical"
_FORM: Final = "application/x-www-form-urlencoded; charset=utf-8"


def amazon(config: InfisicalAwsAuth, store: Opened, environment: Mapping[str, str] = os.environ) -> Form:
    pointer = "/auth/awsAuthCredentials"
    identity = text(store, config.identity_id, f"{pointer}/identityId")
    prove_own_identity(store, "AWS role", pointer)
    region = environment.get("AWS_REGION", "") or environment.get("AWS_DEFAULT_REGION", "")
    if not region.replace("-", "").isalnum():
        raise invalid_config(pointer, "needs the region in the environment variable AWS_REGION of the provider")
    source = process_source(environment, store.clock)
    if source is None:
        raise credentials_not_found(
            f"{pointer} uses the AWS role of the provider, and it has none; bind a role to its ServiceAccount (IRSA or"
            " Pod Identity), or use another form of auth"
        )
    sts = Sts(sts_url(region, environment), Scope(region, "sts"), store.clock, SESSION_NAME, pointer)
    # Infisical sends the request to this host, whatever address the provider itself uses.
    url = URL(f"https://sts.{region}.amazonaws.com/")

    async def body() -> Body:
        credentials = await source.obtain(sts)
        request = SignableRequest("POST", url, {"Content-Type": _FORM}, CALLER_IDENTITY)
        headers = signed_headers(request, credentials, sts.scope, store.clock.now())
        headers["Content-Length"] = str(len(CALLER_IDENTITY))
        return {
            "identityId": identity,
            "iamHttpRequestMethod": "POST",
            "iamRequestBody": base64.b64encode(CALLER_IDENTITY).decode(),
            "iamRequestHeaders": base64.b64encode(msgspec.json.encode(headers)).decode(),
        }

    return Form(
        name="awsAuthCredentials",
        method="aws-auth",
        call="MachineIdentityLoginViaAwsAuth",
        proof=(identity, region, *source.who),
        body=body,
        advice="check the identity id, and that its AWS auth allows the account and the role of the provider",
    )
