"""The access type azure_ad: an access token for Azure's resource manager proves an identity.

| configuration | identity |
|---|---|
| `serviceAccountRef` | the application of the service account's workload identity |
| otherwise, accessTypeParam | the managed identity of the provider's machine with this object id |
| otherwise, a workload identity of the provider's pod | its application |
| otherwise | the managed identity of the provider's machine |
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
from yarl import URL

from eso_api.references import ServiceAccountSelector
from eso_provider_akeyless.auth.cloud import Cloud, Form, fetch
from eso_sdk.errors import backend_error, credentials_not_found, invalid_config, rejected
from eso_sdk.http import HttpRequest, call_cloud, status_error
from eso_sdk.loginbodies import Body
from kubebase.clock import Clock

CLIENT_ANNOTATION: Final = "azure.workload.identity/client-id"
TENANT_ANNOTATION: Final = "azure.workload.identity/tenant-id"
_ACCOUNT: Final = "/authSecretRef/serviceAccountRef"
_METADATA: Final = "http://169.254.169.254"
_ASSERTION: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_TENANT: Final = re.compile(r"[A-Za-z0-9.-]+")
_ADVICE: Final = "check the access id, and that the auth method allows the tenant and the identity"


@dataclass(frozen=True, slots=True)
class AzureCloud:
    """The authority and the resource of one of Azure's clouds."""

    authority: str
    resource: str


PUBLIC: Final = AzureCloud("https://login.microsoftonline.com", "https://management.azure.com/")
_GOVERNMENT: Final = AzureCloud("https://login.microsoftonline.us", "https://management.usgovcloudapi.net/")
_CHINA: Final = AzureCloud("https://login.chinacloudapi.cn", "https://management.chinacloudapi.cn/")
CLOUDS: Final = {
    "": PUBLIC,
    "azurecloud": PUBLIC,
    "azurepubliccloud": PUBLIC,
    "azureusgovernment": _GOVERNMENT,
    "azureusgovernmentcloud": _GOVERNMENT,
    "azurechinacloud": _CHINA,
    "azurechinacloud21vianet": _CHINA,
}


class _Issued(msgspec.Struct, frozen=True):
    access_token: str


@dataclass(frozen=True, slots=True)
class _Federated:
    """An application of Entra ID that trusts tokens of service accounts."""

    client: str
    tenant: str
    authority: URL
    resource: str
    pointer: str

    async def token(self, assertion: str, clock: Clock) -> bytes:
        form = {
            "client_id": self.client,
            "client_assertion": assertion,
            "client_assertion_type": _ASSERTION,
            "grant_type": "client_credentials",
            "scope": f"{self.resource}.default",
        }
        url = self.authority / self.tenant / "oauth2/v2.0/token"
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        body = str(URL().with_query(form).raw_query_string).encode()
        response = await call_cloud(HttpRequest("POST", url, headers, body), "Entra ID", clock)
        if response.status in (400, 401, 403):
            raise rejected(
                f"Entra ID refuses the token of {self.pointer}: HTTP {response.status}; check client id, tenant id and"
                " the federated credential of the application",
                backend_code=str(response.status),
            )
        if problem := status_error(response, "Entra ID", clock):
            raise problem
        return _access_token(response.body, "Entra ID")


def azure(cloud: Cloud) -> Form:
    """Prove an identity of Azure."""
    account = cloud.store.config.auth_secret_ref.service_account_ref
    if account is not None:
        return _of_account(cloud, account)
    cloud.use_own_identity("managed identity")
    path = cloud.environment.get("AZURE_FEDERATED_TOKEN_FILE", "")
    if path and not cloud.parameter:
        return _of_pod(cloud, path)
    return _of_machine(cloud)


def _of_account(cloud: Cloud, account: ServiceAccountSelector) -> Form:
    token = cloud.store.token(account)
    client = token.annotations.get(CLIENT_ANNOTATION) or cloud.parameter
    tenant = token.annotations.get(TENANT_ANNOTATION) or cloud.environment.get("AZURE_TENANT_ID", "")
    for found, annotation, other in (
        (client, CLIENT_ANNOTATION, "set accessTypeParam"),
        (tenant, TENANT_ANNOTATION, "let AZURE_TENANT_ID of the provider name it"),
    ):
        if not found:
            raise invalid_config(_ACCOUNT, f"needs the annotation {annotation} at the service account, or {other}")
    federated = _federated(cloud, client, tenant, _ACCOUNT)

    async def make() -> bytes:
        return await federated.token(cloud.store.token(account).token.reveal().decode(), cloud.store.clock)

    who = (client, tenant, token.namespace, token.name, token.uid, *token.audiences)
    return _form(cloud, ("account", *who), make)


def _of_pod(cloud: Cloud, path: str) -> Form:
    client, tenant = (cloud.environment.get(name, "") for name in ("AZURE_CLIENT_ID", "AZURE_TENANT_ID"))
    if not client or not tenant:
        raise credentials_not_found(
            "the provider has AZURE_FEDERATED_TOKEN_FILE without AZURE_CLIENT_ID and AZURE_TENANT_ID; annotate its"
            " ServiceAccount with the client id, or set serviceAccountRef"
        )
    federated = _federated(cloud, client, tenant, "the provider's workload identity")

    async def make() -> bytes:
        return await federated.token(await asyncio.to_thread(_content, path), cloud.store.clock)

    return _form(cloud, ("pod", client, tenant), make)


def _of_machine(cloud: Cloud) -> Form:
    base = cloud.environment.get("AZURE_POD_IDENTITY_AUTHORITY_HOST", "") or _METADATA
    query = {"api-version": "2018-02-01", "resource": _azure_cloud(cloud.environment).resource}
    query |= {"object_id": cloud.parameter} if cloud.parameter else {}
    url = (URL(base) / "metadata/identity/oauth2/token").with_query(query)
    subject = "Azure's instance metadata"

    async def make() -> bytes:
        return _access_token(
            await fetch(HttpRequest("GET", url, {"Metadata": "true"}), subject, cloud.store.clock), subject
        )

    return _form(cloud, ("machine", cloud.parameter), make)


def _form(cloud: Cloud, who: tuple[str, ...], make: Callable[[], Awaitable[bytes]]) -> Form:
    async def body() -> Body:
        return cloud.body("azure_ad", await make())

    resource = _azure_cloud(cloud.environment).resource
    return Form("azure_ad", ("azure_ad", cloud.access_id, resource, *who), body, _ADVICE)


def _federated(cloud: Cloud, client: str, tenant: str, pointer: str) -> _Federated:
    if not _TENANT.fullmatch(tenant):
        raise invalid_config(_ACCOUNT, f"the annotation {TENANT_ANNOTATION} does not name a tenant")
    azure_cloud = _azure_cloud(cloud.environment)
    authority = cloud.environment.get("AZURE_AUTHORITY_HOST", "") or azure_cloud.authority
    return _Federated(client, tenant, URL(authority), azure_cloud.resource, pointer)


def _azure_cloud(environment: Mapping[str, str]) -> AzureCloud:
    """Return the cloud that the environment of the provider names."""
    name = environment.get("AZURE_ENVIRONMENT", "") or environment.get("AZURE_CLOUD", "")
    found = CLOUDS.get(name.strip().lower())
    if found is None:
        raise invalid_config("AZURE_ENVIRONMENT", "this environment variable of the provider does not name a cloud")
    return found


def _content(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except (OSError, ValueError):
        raise credentials_not_found("the provider's own Azure token file cannot be read; check its pod") from None


def _access_token(body: bytes, subject: str) -> bytes:
    try:
        return msgspec.json.decode(body, type=_Issued).access_token.encode()
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise backend_error(f"{subject} sends no token") from None
