"""How a store logs in: the address of the API, the form of login, and one login for all sessions of an identity.

A cloud identity of the provider itself is only proven to Akeyless and to gateways that the administrator lists.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
from yarl import URL

from eso_api.references import ServiceAccountSelector
from eso_api.stores.akeyless import AkeylessAuth, AkeylessKubernetesAuth, AkeylessProvider
from eso_api.values import SecretBytes
from eso_sdk.awsidentity import CALLER_IDENTITY, Scope, SignableRequest, Sts, process_source, signed_headers, sts_url
from eso_sdk.backend import Backend
from eso_sdk.errors import backend_error, credentials_not_found, invalid_config, rejected
from eso_sdk.http import HttpRequest, HttpResponse, call_cloud, status_error
from eso_sdk.logins import (
    Authorization,
    Body,
    FixedHeaders,
    Grant,
    LoginHeaders,
    MakeBody,
    digest,
    fixed,
    join_login,
    optional_text,
    text,
)
from eso_sdk.processwide import shared_table
from eso_sdk.rest import Rest, RestRequest, RestResponse, RestSettings
from kubebase.bounded import BoundedDict
from kubebase.clock import Clock

# --- Addresses of the API: Akeyless itself, or a gateway -------------------------------------------------------------
#
# | address | the API is at |
# |---|---|
# | absent | https://api.akeyless.io |
# | a host of akeyless.io, port 8081, a path that ends with /v2 | the address itself |
# | any other | the address and /v2; if a login finds no API there, the address itself |

DEFAULT_URL: Final = "https://api.akeyless.io"
FIELD: Final = "/akeylessGWApiURL"
OWN_HOSTS: Final = ("akeyless.io", ".akeyless.io")
"""Hosts of Akeyless; an entry that begins with a dot means all hosts below it."""
UNKNOWN_PATH: Final = "unknown command"
"""Responses of the API to paths that it does not have."""
_V2_PORT: Final = 8081
"""Gateways serve the API without a prefix at this port."""


def api_url(text: str) -> URL:
    """Return the address of a store."""
    try:
        url = URL(text or DEFAULT_URL)
    except ValueError:
        url = URL()
    if url.scheme not in ("http", "https") or not url.host or url.query_string or url.user or url.fragment:
        raise invalid_config(FIELD, f"must be a URL such as {DEFAULT_URL} or https://gateway.example.com:8000/api/v2")
    return url


def is_own(url: URL) -> bool:
    """Return whether Akeyless itself serves an address."""
    host = url.host or ""
    return host == OWN_HOSTS[0] or host.endswith(OWN_HOSTS[1])


def prefixes(url: URL) -> tuple[str, ...]:
    """Return the prefixes of paths below an address, in the order in which a login tries them."""
    if is_own(url) or url.explicit_port == _V2_PORT or url.path.rstrip("/").endswith("/v2"):
        return ("",)
    return ("v2/", "")


class _Refusal(msgspec.Struct, frozen=True):
    error: str


def status_of(subject: str) -> Callable[[HttpResponse], int]:
    """Return the check that a 404 is Akeyless's own: one of a proxy must never be taken for a missing item."""

    def check(response: HttpResponse) -> int:
        if response.status == 404 and not _is_of_an_item(response.body):
            raise backend_error(
                f"{subject} responds with a status 404 that does not come from Akeyless's API; check {FIELD} and the"
                " proxies before it",
                backend_code="404",
            )
        return response.status

    return check


def _is_of_an_item(body: bytes) -> bool:
    try:
        return UNKNOWN_PATH not in msgspec.json.decode(body, type=_Refusal).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False


# ---------------------------------------------------------------------------------------------------------------------
# Cloud identities of the provider's own machine or pod: aws_iam and gcp, and what azure_ad shares with them.
#
# The author of a store chooses the server that receives the proof, and others may accept the same proof. Therefore only
# Akeyless itself and hosts that the administrator of the provider lists receive it.


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


# --- The access type azure_ad: an access token for Azure's resource manager proves an identity -----------------------
#
# | configuration | identity |
# |---|---|
# | `serviceAccountRef` | the application of the service account's workload identity |
# | otherwise, accessTypeParam | the managed identity of the provider's machine with this object id |
# | otherwise, a workload identity of the provider's pod | its application |
# | otherwise | the managed identity of the provider's machine |


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


# --- Choose the form of login of a store -----------------------------------------------------------------------------
#
# | form | fields |
# |---|---|
# | a service account of the cluster | `kubernetesAuth` |
# | an access key | `secretRef` with the access type `api_key` or `access_key` |
# | a cloud identity | `secretRef` with the access type `aws_iam`, `gcp` or `azure_ad` |


_PLACE: Final = "/authSecretRef/secretRef"
_KUBERNETES: Final = "/authSecretRef/kubernetesAuth"
_CLOUDS: Final[dict[str, Callable[[Cloud], Form]]] = {"aws_iam": amazon, "gcp": google, "azure_ad": azure}


def check_auth(auth: AkeylessAuth) -> tuple[str, ...]:
    """Check the fields alone: return warnings, or raise `invalid_config`."""
    secret, cluster = auth.secret_ref, auth.kubernetes_auth
    if cluster is not None:
        for name, given in (("accessID", cluster.access_id), ("k8sConfName", cluster.k8s_conf_name)):
            if not given:
                raise invalid_config(f"{_KUBERNETES}/{name}", "is needed")
        if cluster.service_account_ref is None and cluster.secret_ref is None:
            raise invalid_config(_KUBERNETES, "needs serviceAccountRef or secretRef")
        named = secret is not None and secret.access_id is not None
        return ("authSecretRef configures kubernetesAuth and secretRef; only kubernetesAuth is used",) if named else ()
    if secret is None:
        raise invalid_config("/authSecretRef", "needs secretRef or kubernetesAuth")
    for name, reference in (("accessID", secret.access_id), ("accessType", secret.access_type)):
        if reference is None or not reference.name or not reference.key:
            raise invalid_config(f"{_PLACE}/{name}", "is needed: name the Secret and the key")
    return ()


def chosen_form(store: Opened) -> Form:
    """Return the login of a store."""
    auth = store.config.auth_secret_ref
    if auth.kubernetes_auth is not None:
        return _kubernetes(store, auth.kubernetes_auth)
    if auth.secret_ref is None:
        raise invalid_config("/authSecretRef", "needs secretRef or kubernetesAuth")
    access_id = text(store, auth.secret_ref.access_id, f"{_PLACE}/accessID")
    access_type = text(store, auth.secret_ref.access_type, f"{_PLACE}/accessType")
    if access_type in ("api_key", "access_key"):
        key = text(store, auth.secret_ref.access_type_param, f"{_PLACE}/accessTypeParam")
        return Form(
            name="the access key",
            proof=("key", access_id, key),
            body=fixed({"access-id": access_id, "access-key": key}),
            advice="check access id and access key",
        )
    if access_type in _CLOUDS:
        parameter = optional_text(store, auth.secret_ref.access_type_param, f"{_PLACE}/accessTypeParam")
        return _CLOUDS[access_type](Cloud(store, access_id, parameter))
    if access_type == "k8s":
        raise invalid_config(f"{_PLACE}/accessType", "k8s needs the field kubernetesAuth instead of secretRef")
    known = ", ".join(("api_key", "access_key", *_CLOUDS))
    raise invalid_config(f"{_PLACE}/accessType", f"names a value that is none of {known}")


def _kubernetes(store: Opened, config: AkeylessKubernetesAuth) -> Form:
    account = config.service_account_ref
    if account is not None:
        token = store.token(account)
        who = ("account", token.namespace, token.name, token.uid, *token.audiences)
    else:
        who = ("token", text(store, config.secret_ref, f"{_KUBERNETES}/secretRef"))

    async def body() -> Body:
        raw = who[1].encode() if account is None else store.token(account).token.reveal()
        return {
            "access-id": config.access_id,
            "access-type": "k8s",
            "k8s-auth-config-name": config.k8s_conf_name,
            "k8s-service-account-token": base64.b64encode(raw).decode(),
        }

    return Form(
        name="kubernetesAuth",
        proof=("k8s", config.access_id, config.k8s_conf_name, *who),
        body=body,
        advice="check accessID, k8sConfName, and that the auth method allows the service account",
    )


# --- One login for all sessions of an identity, and the path of the API below its address ----------------------------


UNKNOWN_LIFE: Final = 15 * 60.0
"""Life of a token whose expiration is absent or not a moment; Akeyless's own default is an hour."""
MAX_ADDRESSES: Final = 1024
_REFUSED: Final = (400, 401, 403, 404, 405)
_ABSENT: Final = (404, 405)


class _Granted(msgspec.Struct, frozen=True):
    token: str = ""
    expiration: str | int | None = None


class Session:
    """The login of one store."""

    def __init__(self, store: Opened, settings: RestSettings, form: Form) -> None:
        self.proof = digest("akeyless", str(settings.base), settings.ca, *form.proof)
        self._form = form
        self._settings = settings
        self._clock = store.clock
        # Logins have connections of their own: a rejected login must not stop those of other identities.
        anonymous = FixedHeaders()
        anonymous.proof = digest("login", self.proof)
        self._rest = Rest(store, replace(settings, credentials_in_body=False, status_of=None), anonymous)
        self._found: BoundedDict[str, str] = shared_table(
            "eso_provider_akeyless.prefixes", store.clock, lambda: BoundedDict(MAX_ADDRESSES)
        )
        self._login = join_login(self.proof, store.clock, self._log_in)

    def authorization(self) -> Authorization:
        return LoginHeaders(self._login, self.proof, token_members)

    async def check(self) -> None:
        """Log in, unless a token is at hand."""
        await self._login.token()

    async def prefix(self) -> str:
        """Return the prefix of paths. The first login finds it."""
        known = prefixes(self._settings.base)
        if len(known) > 1 and self._address not in self._found:
            await self._login.token()
        return self._found.get(self._address, known[0])

    async def close(self) -> None:
        self._login.leave(self._log_in)
        await self._rest.close()

    @property
    def _address(self) -> str:
        return str(self._settings.base)

    async def _log_in(self) -> Grant:
        body = dict(await self._form.body())
        for prefix in prefixes(self._settings.base):
            response = await self._rest.send(RestRequest("POST", f"{prefix}auth", "Auth", json=body, allowed=_REFUSED))
            if not _is_absent(response):
                self._found[self._address] = prefix
                break
        if response.status in _REFUSED:
            raise rejected(
                f"{self._settings.subject} refuses the login with {self._form.name}: HTTP {response.status};"
                f" {self._form.advice}",
                backend_code=str(response.status),
            )
        granted: _Granted = response.read(_Granted)
        if not granted.token:
            raise backend_error(f"{self._settings.subject} sends no token for the login")
        return Grant(SecretBytes(granted.token.encode()), seconds_left(granted.expiration, self._clock.now()))


def token_members(token: SecretBytes) -> dict[str, str]:
    """Return the member of bodies for a token; those of universal identities have another one."""
    text = token.reveal().decode()
    return {"uid-token" if text.startswith("u-") else "token": text}


def seconds_left(expiration: str | int | None, now: datetime) -> float:
    """Return the life of a token: its expiration is in seconds since 1970, in ISO 8601 or as Go prints a moment."""
    text = str(expiration or "").strip()
    for candidate in (text, text[:19]):
        try:
            ends = datetime.fromtimestamp(int(text), UTC) if text.isdecimal() else datetime.fromisoformat(candidate)
            return (ends if ends.tzinfo else ends.replace(tzinfo=UTC)).timestamp() - now.timestamp()
        except (ValueError, OverflowError, OSError):
            continue
    return UNKNOWN_LIFE


def _is_absent(response: RestResponse) -> bool:
    """Return whether no API is at the path."""
    return response.status in _ABSENT or (response.status == 400 and UNKNOWN_PATH.encode() in response.body)
