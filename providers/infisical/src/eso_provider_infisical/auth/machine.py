"""Forms that prove the provider's own machine with a token of its metadata server: azure, gcpIdToken.

The author of a store chooses the server that receives the token and what the token is valid for. Therefore it is sent
only to hosts that the administrator lists.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

import msgspec
from yarl import URL

from eso_api.stores.infisical import InfisicalAzureAuth, InfisicalGcpIdTokenAuth
from eso_provider_infisical.auth.form import Form, Opened, prove_own_identity
from eso_sdk.errors import backend_error, credentials_not_found
from eso_sdk.http import HttpRequest, call_cloud, status_error
from eso_sdk.loginbodies import Body, optional_text, text
from kubebase.clock import Clock

RESOURCE: Final = "https://management.azure.com/"

_AZURE: Final = "http://169.254.169.254"
_GOOGLE: Final = "metadata.google.internal"
_IDENTITY: Final = "/computeMetadata/v1/instance/service-accounts/default/identity"


def azure(config: InfisicalAzureAuth, store: Opened, environment: Mapping[str, str] = os.environ) -> Form:
    place = "/auth/azureAuthCredentials"
    identity = text(store, config.identity_id, f"{place}/identityId")
    resource = optional_text(store, config.resource, f"{place}/resource") or RESOURCE
    prove_own_identity(store, "managed identity", place)

    async def body() -> Body:
        base = environment.get("AZURE_POD_IDENTITY_AUTHORITY_HOST", "") or _AZURE
        url = (URL(base) / "metadata/identity/oauth2/token").with_query(
            {"api-version": "2018-02-01", "resource": resource}
        )
        answer = await _asked(url, {"Metadata": "true"}, "Azure's instance metadata", store.clock)
        return {"identityId": identity, "jwt": _access_token(answer)}

    return Form(
        name="azureAuthCredentials",
        method="azure-auth",
        call="MachineIdentityLoginViaAzureAuth",
        proof=(identity, resource),
        body=body,
        advice="check the identity id, the resource, and that its Azure auth allows the provider's managed identity",
    )


def gcp_id_token(config: InfisicalGcpIdTokenAuth, store: Opened, environment: Mapping[str, str] = os.environ) -> Form:
    place = "/auth/gcpIdTokenAuthCredentials"
    identity = text(store, config.identity_id, f"{place}/identityId")
    prove_own_identity(store, "Google identity", place)

    async def body() -> Body:
        host = environment.get("GCE_METADATA_HOST", "") or _GOOGLE
        url = URL(f"http://{host}{_IDENTITY}").with_query(audience=identity, format="full")
        token = await _asked(url, {"Metadata-Flavor": "Google"}, "Google's metadata server", store.clock)
        return {"identityId": identity, "jwt": token.decode("ascii", "replace").strip()}

    return Form(
        name="gcpIdTokenAuthCredentials",
        method="gcp-auth",
        call="MachineIdentityLoginViaGcpIdTokenAuth",
        proof=(identity,),
        body=body,
        advice="check the identity id, and that its GCP auth is of type gce and allows the provider's service account",
    )


async def _asked(url: URL, headers: Mapping[str, str], subject: str, clock: Clock) -> bytes:
    answer = await call_cloud(HttpRequest("GET", url, headers), subject, clock)
    if answer.status in (400, 404):
        raise credentials_not_found(
            f"{subject} has no identity for the provider; assign one to its machine, or use another form of auth"
        )
    if problem := status_error(answer, subject, clock):
        raise problem
    return answer.body


class _Azure(msgspec.Struct, frozen=True):
    access_token: str


def _access_token(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=_Azure).access_token
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise backend_error("Azure's instance metadata answers without a token") from None
