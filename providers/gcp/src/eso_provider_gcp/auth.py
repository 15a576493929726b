"""The identity of a store, as a source of access tokens (`Source` in `identities.py`).

A key and the process's own identity come from google-auth. Workload identity calls Google's token services itself.
Federation checks what a user's configuration may do and hands the rest to google-auth. All requests are sent by
`TokenClient`.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NoResponseError
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import google.auth
from google.auth import aws, identity_pool
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError, RefreshError, TransportError
from google.auth.transport import Request, Response
from google.oauth2 import service_account
from yarl import URL

from eso_api.stores.gcp import (
    AwsSecurityCredentials,
    GcpAuth,
    GcpSecretRef,
    GcpWorkloadIdentity,
    GcpWorkloadIdentityFederation,
)
from eso_provider_gcp.identities import IAM_CREDENTIALS, SECURE_TOKEN, STS, Access, Source, base_of, metadata_url
from eso_sdk.addresses import LINK_LOCAL, LOOPBACK, AddressPolicy, ForbiddenAddressError
from eso_sdk.backend import Backend
from eso_sdk.errors import backend_error, credentials_not_found, invalid_config, rejected, timed_out
from eso_sdk.http import HttpClient, HttpRequest, HttpResponse, HttpSettings, status_error, url_of
from eso_sdk.processidentity import ProcessIdentity
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import SecretMap, Token
from kubebase.clock import Clock
from kubebase.deadline import Deadline

# --- HTTP to token services ------------------------------------------------------------------------------------------
#
# Addresses of the provider itself (Google's endpoints, the metadata server) may be link-local or loopback. Addresses
# that a spec or one of its Secrets names follow the address rule of the process.

SECONDS: Final = 10.0
_MAX_RESPONSE: Final = 256 * 1024
OWN: Final = AddressPolicy.parse((LOOPBACK, LINK_LOCAL))
"""For addresses that the provider's administrator chose, or Google publishes."""


@dataclass(frozen=True, slots=True)
class TokenClient:
    """Sends the requests of one login. A login needs one or two of them, so no connection stays open."""

    clock: Clock
    policy: AddressPolicy
    """The rule for addresses that are not Google's."""
    field: str
    """The field of the spec that leads to those addresses."""

    async def send(self, request: HttpRequest, *, seconds: float = SECONDS) -> HttpResponse:
        own = _is_own(request.url)
        settings = HttpSettings(
            request.url.host or "the token service", field=self.field, seconds=seconds, max_response=_MAX_RESPONSE
        )
        client = HttpClient(settings, policy=OWN if own else self.policy, clock=self.clock)
        try:
            return await client.send(request)
        finally:
            await client.close()


def _is_own(url: URL) -> bool:
    return any(url.origin() == URL(base_of(name)).origin() for name in (STS, SECURE_TOKEN, IAM_CREDENTIALS))


class _GoogleResponse(Response):
    """A response as google-auth reads it."""

    def __init__(self, response: HttpResponse) -> None:
        self._response = response

    @property
    def status(self) -> int:
        return self._response.status

    @property
    def headers(self) -> Mapping[str, str]:
        return {name.lower(): value for name, value in self._response.headers.items()}

    @property
    def data(self) -> bytes:
        return self._response.body


class UnreachedError(TransportError):
    """A request without a response; google-auth expects this base class."""

    def __init__(self, error: ProviderError) -> None:
        super().__init__("no response")  # type: ignore[no-untyped-call] # the library has no types
        self.error = error


class Bridge(Request):
    """Lets google-auth, which blocks and runs in a thread, send its requests from the event loop."""

    def __init__(self, client: TokenClient) -> None:
        self._client = client
        self._loop = asyncio.get_running_loop()

    def __call__(
        self,
        url: str,
        method: str = "GET",
        body: bytes | str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        **_: Any,
    ) -> Response:
        content = body.encode() if isinstance(body, str) else body or b""
        seconds = min(timeout or SECONDS, SECONDS)
        try:
            request = HttpRequest(method, url_of(url), dict(headers or {}), content)
            future = asyncio.run_coroutine_threadsafe(self._client.send(request, seconds=seconds), self._loop)
            return _GoogleResponse(future.result(2 * SECONDS))
        except ProviderError as failed:
            raise UnreachedError(failed) from None
        except (NoResponseError, ValueError):
            message = "a token service of Google did not respond in time, or its address is not a URL"
            raise UnreachedError(ProviderError(ErrorReason.BACKEND_TIMEOUT, message)) from None


_FIELDS: Final = {
    "project/project-id": "/projectID",
    "instance/attributes/cluster-location": "/auth/workloadIdentity/clusterLocation",
    "instance/attributes/cluster-name": "/auth/workloadIdentity/clusterName",
}
_SECONDS: Final = 3.0


async def metadata(path: str, client: TokenClient) -> str:
    """Return one fact; its field of the spec must be set where the metadata server does not know it."""
    request = HttpRequest("GET", URL(metadata_url(path)), {"Metadata-Flavor": "Google"})
    try:
        response = await replace(client, policy=OWN).send(request, seconds=_SECONDS)
    except ProviderError:
        raise invalid_config(_FIELDS[path], "set it: Google's metadata server cannot be reached") from None
    found = response.body.decode("ascii", "replace").strip()
    if response.status != 200 or not found:
        raise invalid_config(_FIELDS[path], "set it: Google's metadata server does not know it")
    return found


# --- Access tokens from the vendor's credential classes (google-auth) ------------------------------------------------
#
# The classes block, so they run in a thread; their requests go through the event loop (`TokenClient`). Their exceptions
# quote responses and are never passed on.


SCOPES: Final = ("https://www.googleapis.com/auth/cloud-platform",)

LOGIN_SECONDS: Final = 30.0
_THREADS: Final = ThreadPoolExecutor(32, "google-login")
"""Threads of their own: a token service that hangs must not stop other work."""

Make = Callable[[Bridge], Any]
"""Makes a credentials object of google-auth, in a thread."""


def refreshing(make: Make, client: TokenClient, *, who: str, advice: str) -> Callable[[], Awaitable[Access]]:
    """Return how to obtain tokens. `who` names the credentials in errors, `advice` what to check if they fail."""
    made: list[Any] = []

    async def fetch() -> Access:
        bridge = Bridge(client)
        try:
            async with Deadline(client.clock, LOGIN_SECONDS):
                return await asyncio.get_running_loop().run_in_executor(_THREADS, _refreshed, made, make, bridge)
        except TimeoutError:
            raise timed_out(f"Google issued no token for {who} in time") from None
        except UnreachedError as unreached:
            raise unreached.error from None
        except DefaultCredentialsError:
            raise credentials_not_found(f"{who} were not found; {advice}") from None
        except RefreshError as refused:
            raise _refusal(refused, who, advice) from None
        except GoogleAuthError:
            raise backend_error(f"Google issued no token for {who}; {advice}") from None
        except (ValueError, TypeError, KeyError):
            # The library's message quotes the key or the response.
            raise invalid_config(client.field, f"is unusable; {advice}") from None

    return fetch


def _refreshed(made: list[Any], make: Make, bridge: Bridge) -> Access:
    if not made:
        made.append(make(bridge))
    credentials = made[0]
    credentials.refresh(bridge)
    expiry: datetime = credentials.expiry
    quota = getattr(credentials, "quota_project_id", None) or ""
    return Access(str(credentials.token), expiry.replace(tzinfo=UTC), quota)


def _refusal(refused: RefreshError, who: str, advice: str) -> ProviderError:
    cause = refused.__cause__ or refused.__context__
    if isinstance(cause, UnreachedError):
        return cause.error
    if getattr(refused, "retryable", False):
        return backend_error(f"Google issued no token for {who} now; retried later")
    return rejected(f"Google refuses {who}; {advice}")


# ---------------------------------------------------------------------------------------------------------------------
# Workload identity of GKE: the token of a Kubernetes service account becomes an access token of Google.
#
# token of the account -> securetoken identitybindingtoken -> federated token
# with the annotation iam.gke.io/gcp-service-account        -> iamcredentials generateAccessToken for that account


GKE_POINTER: Final = "/auth/workloadIdentity"
ACCOUNT_ANNOTATION: Final = "iam.gke.io/gcp-service-account"
EMAIL: Final = re.compile(r"[A-Za-z0-9.-]+@[A-Za-z0-9.-]+")
_REFUSED: Final = frozenset({400, 401, 403, 404})


@dataclass(frozen=True, slots=True)
class WorkloadIdentity:
    """A Kubernetes service account, as Google knows it."""

    config: GcpWorkloadIdentity
    project: str
    """The project of the store, for a configuration that names no project of the cluster."""
    token: Callable[[], Token] = field(repr=False)
    """Gives the newest token of the account."""
    client: TokenClient

    async def fetch(self) -> Access:
        token = self.token()
        audience = await self._audience(token)
        federated = await self._exchange(audience, token)
        account = bound_account(token, f"{GKE_POINTER}/serviceAccountRef")
        return await self._impersonate(account, federated.token) if account else federated

    async def _audience(self, token: Token) -> str:
        config = self.config
        project = config.cluster_project_id or self.project or await metadata("project/project-id", self.client)
        pool = f"{project}.svc.id.goog"
        if pool not in token.audiences:
            raise invalid_config(
                f"{GKE_POINTER}/clusterProjectID",
                f'set it to "{project}": the token of the account has another audience',
            )
        attribute = "instance/attributes/"
        location = config.cluster_location or await metadata(f"{attribute}cluster-location", self.client)
        name = config.cluster_name or await metadata(f"{attribute}cluster-name", self.client)
        cluster = f"https://container.googleapis.com/v1/projects/{project}/locations/{location}/clusters/{name}"
        return f"identitynamespace:{pool}:{cluster}"

    async def _exchange(self, audience: str, token: Token) -> Access:
        body = {
            "audience": audience,
            "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
            "requested_token_type": "urn:ietf:params:oauth:token-type:access_token",
            "scope": SCOPES[0],
            "subject_token": token.token.reveal().decode(),
            "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        }
        response = await self._call(f"{base_of(SECURE_TOKEN)}/v1/identitybindingtoken", body, {}, token)
        match response:
            case {"access_token": str(access), "expires_in": int(seconds)} if access:
                return Access(access, self.client.clock.now() + timedelta(seconds=seconds))
        raise self._unfit(SECURE_TOKEN)

    async def _impersonate(self, account: str, access: str) -> Access:
        url = f"{base_of(IAM_CREDENTIALS)}/v1/projects/-/serviceAccounts/{account}:generateAccessToken"
        response = await self._call(url, {"scope": list(SCOPES)}, {"Authorization": f"Bearer {access}"}, self.token())
        match response:
            case {"accessToken": str(issued), "expireTime": str(end)} if issued:
                try:
                    return Access(issued, datetime.fromisoformat(end))
                except ValueError:
                    pass
        raise self._unfit(IAM_CREDENTIALS)

    async def _call(self, url: str, body: Mapping[str, Any], headers: Mapping[str, str], token: Token) -> Any:
        target = URL(url)
        subject = target.host or "Google"
        sent = {"Content-Type": "application/json", **headers}
        response = await self.client.send(HttpRequest("POST", target, sent, json.dumps(body).encode()))
        if response.status in _REFUSED:
            account = f'service account "{token.namespace}/{token.name}"'
            raise rejected(
                f"{subject} refuses {account}: HTTP {response.status}; check clusterProjectID, clusterLocation and"
                f" clusterName, and grant it roles/iam.workloadIdentityUser on the account of its annotation"
                f" {ACCOUNT_ANNOTATION}",
                backend_code=str(response.status),
            )
        if problem := status_error(response, subject, self.client.clock):
            raise problem
        try:
            return json.loads(response.body)
        except ValueError:
            return None

    def _unfit(self, service: str) -> Exception:
        return backend_error(f"{URL(base_of(service)).host} sent no access token")


def bound_account(token: Token, pointer: str) -> str:
    """Return the Google service account that a Kubernetes one is bound to; empty for none."""
    account = token.annotations.get(ACCOUNT_ANNOTATION, "")
    if account and not EMAIL.fullmatch(account):
        raise invalid_config(pointer, f"the annotation {ACCOUNT_ANNOTATION} of the account is not an e-mail address")
    return account


def account_key(token: Token, pointer: str) -> tuple[str, ...]:
    """Return what identifies an account with its bindings."""
    if not token.name:
        raise credentials_not_found(
            f"{pointer}: the operator did not send the name of the account; upgrade the operator"
        )
    bound = token.annotations.get(ACCOUNT_ANNOTATION, "")
    return (token.namespace, token.name, token.uid, bound, *sorted(token.audiences))


# --- Workload identity federation: a token of another identity provider is exchanged at Google's STS -----------------
#
# | form | subject token |
# |---|---|
# | `serviceAccountRef` | the token of a Kubernetes service account |
# | `awsSecurityCredentials` | a signed GetCallerIdentity request, with the AWS keys of a Secret |
# | `credConfig` | from an external_account configuration in a ConfigMap |
#
# A configuration is written by a user, but runs in the provider's pod. It may therefore start no program, read only
# files that the administrator lists, send tokens to Google only, and call only the URL that `externalTokenEndpoint`
# repeats.


FEDERATION_POINTER: Final = "/auth/workloadIdentityFederation"
FORMS: Final = ("credConfig", "serviceAccountRef", "awsSecurityCredentials")
JWT: Final = "urn:ietf:params:oauth:token-type:jwt"
AWS_REQUEST: Final = "urn:ietf:params:aws:token-type:aws4_request"

# The library has no types.
_POOL: Final[Any] = identity_pool.Credentials
_AWS: Final[Any] = aws.Credentials

_AWS_METADATA: Final = "169.254.169.254"
_AWS_ID: Final = "aws_access_key_id"
_AWS_SECRET: Final = "aws_secret_access_key"  # noqa: S105 - the name of a key
_AWS_SESSION: Final = "aws_session_token"
_TOKEN_URL: Final = re.compile(
    r"https://(?:[a-z0-9-]+\.)?sts(?:\.[a-z0-9-]+)*\.googleapis\.com/v1/(?:token|oauthtoken)"
)
_INFO_URL: Final = re.compile(r"https://(?:[a-z0-9-]+\.)?sts(?:\.[a-z0-9-]+)*\.googleapis\.com/v1/introspect")
_IMPERSONATION: Final = re.compile(
    r"https://(?:[a-z0-9-]+\.)?iamcredentials(?:\.[a-z0-9-]+)*\.googleapis\.com"
    r"(/v1/projects/-/serviceAccounts/[A-Za-z0-9.-]+@[A-Za-z0-9.-]+:generateAccessToken)"
)
_IMPERSONATION_PATH: Final = re.compile(r"/v1/projects/-/serviceAccounts/[A-Za-z0-9.@-]+:generateAccessToken")
_FILE: Final = f"{FEDERATION_POINTER}/credConfig: credential_source.file"
_AWS_URL: Final = re.compile(r"http://(?:169\.254\.169\.254|\[fd00:ec2::254\])/[A-Za-z0-9/._-]+")


def check_federation(config: GcpWorkloadIdentityFederation) -> None:
    """Check what the spec alone shows."""
    named = [
        form
        for form, value in zip(
            FORMS, (config.cred_config, config.service_account_ref, config.aws_security_credentials), strict=True
        )
        if value is not None
    ]
    if len(named) != 1:
        raise invalid_config(FEDERATION_POINTER, f"set exactly one of {', '.join(FORMS)}")
    if named != ["credConfig"] and not config.audience:
        raise invalid_config(
            f"{FEDERATION_POINTER}/audience", f"set it: {named[0]} needs the audience of the identity pool provider"
        )


def federated(backend: Backend[Any], config: GcpWorkloadIdentityFederation, client: TokenClient) -> Source:
    """Return the source of the form that the configuration has."""
    check_federation(config)
    if config.service_account_ref is not None:
        key, make = _by_account(backend, config)
    elif config.aws_security_credentials is not None:
        key, make = _by_aws(backend, config, config.aws_security_credentials)
    else:
        key, make = _by_config(backend, config, client)
    advice = "check the audience, the attribute conditions of the identity pool, and roles/iam.workloadIdentityUser"
    return Source(
        ("federation", config.audience, config.gcp_service_account_email, *key),
        refreshing(make, client, who=f"the identity of {FEDERATION_POINTER}", advice=advice),
    )


def _by_account(backend: Backend[Any], config: GcpWorkloadIdentityFederation) -> tuple[tuple[str, ...], Make]:
    reference = config.service_account_ref
    assert reference is not None  # noqa: S101 - the caller checked it
    pointer = f"{FEDERATION_POINTER}/serviceAccountRef"
    token = backend.token(reference)
    email = config.gcp_service_account_email or bound_account(token, pointer)

    def make(_: Bridge) -> Any:
        supplier = _Token(lambda: backend.token(reference).token.reveal().decode())
        return _POOL(
            config.audience,
            JWT,
            f"{base_of(STS)}/v1/token",
            subject_token_supplier=supplier,
            service_account_impersonation_url=_impersonation(email),
            scopes=SCOPES,
        )

    return ("account", *account_key(token, pointer)), make


def _by_aws(
    backend: Backend[Any], config: GcpWorkloadIdentityFederation, source: AwsSecurityCredentials
) -> tuple[tuple[str, ...], Make]:
    pointer = f"{FEDERATION_POINTER}/awsSecurityCredentials/awsCredentialsSecretRef"
    secret = backend.whole_secret(source.aws_credentials_secret_ref)
    keys = aws.AwsSecurityCredentials(
        _key(secret, _AWS_ID, pointer), _key(secret, _AWS_SECRET, pointer), _key(secret, _AWS_SESSION, "") or None
    )

    def make(_: Bridge) -> Any:
        return _AWS(
            config.audience,
            AWS_REQUEST,
            f"{base_of(STS)}/v1/token",
            aws_security_credentials_supplier=_AwsKeys(keys, source.region),
            service_account_impersonation_url=_impersonation(config.gcp_service_account_email),
            scopes=SCOPES,
        )

    parts = (keys.access_key_id, keys.secret_access_key, keys.session_token or "", source.region)
    return ("aws", _digest(*parts)), make


def _by_config(
    backend: Backend[Any], config: GcpWorkloadIdentityFederation, client: TokenClient
) -> tuple[tuple[str, ...], Make]:
    reference = config.cred_config
    assert reference is not None  # noqa: S101 - the caller checked it
    pointer = f"{FEDERATION_POINTER}/credConfig"
    try:
        document = json.loads(backend.secret(reference).reveal())
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise invalid_config(pointer, f'key "{reference.key}" of ConfigMap "{reference.name}" is not a JSON object')
    account = check_configuration(document, config, client)
    info = {
        **document,
        "audience": config.audience or document.get("audience", ""),
        "token_url": document.get("token_url") or f"{base_of(STS)}/v1/token",
        "service_account_impersonation_url": account,
    }
    source = document["credential_source"]
    path = source.get("file")
    if path:
        # google-auth would read any file, of any size, and a device without end.
        del info["credential_source"]
        info["subject_token_supplier"] = _FileToken(backend.process_identity, path, source.get("format"))
    elif _is_aws(source):
        backend.process_identity.use("AWS identity", field=pointer, instead="use awsSecurityCredentials")
    vendor = _AWS if _is_aws(source) and not path else _POOL

    def make(_: Bridge) -> Any:
        return vendor.from_info(info, scopes=SCOPES)

    return ("config", _digest(json.dumps(document, sort_keys=True)), config.external_token_endpoint), make


def check_configuration(
    document: Mapping[str, Any], config: GcpWorkloadIdentityFederation, client: TokenClient
) -> str | None:
    """Refuse what a user's configuration must not do in the provider's pod; return the URL to impersonate with."""
    pointer = f"{FEDERATION_POINTER}/credConfig"

    def check(fine: object, member: str, problem: str) -> None:
        if not fine:
            raise invalid_config(pointer, f"{member} {problem}")

    source = document.get("credential_source")
    check(document.get("type") == "external_account", "type", "must be external_account")
    check(isinstance(source, Mapping), "credential_source", "is missing")
    assert isinstance(source, Mapping)  # noqa: S101 - just checked
    check("executable" not in source, "credential_source.executable", "is not allowed: providers start no programs")
    check("certificate" not in source, "credential_source.certificate", "is not supported; use a token")
    check(_is_google(document.get("token_url"), STS, _TOKEN_URL), "token_url", "must be one of Google's STS")
    check(_is_google(document.get("token_info_url"), STS, _INFO_URL), "token_info_url", "must be one of Google's STS")
    url = document.get("service_account_impersonation_url")
    check(_is_google(url, IAM_CREDENTIALS, _IMPERSONATION), "service_account_impersonation_url", "must be Google's")
    if path := source.get("file"):
        check(isinstance(path, str), "credential_source.file", "must be a path")
        check(not _is_aws(source), "credential_source.file", "does not fit environment_id")
    if _is_aws(source):
        _check_aws(source, client, check)
    elif address := source.get("url"):
        same = address == config.external_token_endpoint
        check(same, "credential_source.url", f"must equal {FEDERATION_POINTER}/externalTokenEndpoint")
    return _impersonation(config.gcp_service_account_email) or url


def _check_aws(source: Mapping[str, Any], client: TokenClient, check: Callable[[object, str, str], None]) -> None:
    """Allow the AWS identity of the provider's machine only where its administrator allows link-local addresses."""
    for member in ("url", "region_url", "imdsv2_session_token_url"):
        address = source.get(member)
        fine = not address or (isinstance(address, str) and _AWS_URL.fullmatch(address))
        check(fine, f"credential_source.{member}", "must be one of AWS's instance metadata service")
    try:
        client.policy.check(_AWS_METADATA)
    except ForbiddenAddressError:
        problem = "takes the AWS identity of the provider's machine; use awsSecurityCredentials, or let the"
        check(None, "credential_source", f"{problem} administrator set --allow-address link-local")


class _Token(identity_pool.SubjectTokenSupplier):
    """Gives the newest token of a service account."""

    def __init__(self, token: Callable[[], str]) -> None:
        self._token = token

    def get_subject_token(self, context: Any, request: Any) -> str:
        del context, request
        return self._token()


class _FileToken(identity_pool.SubjectTokenSupplier):
    """Gives the token in a file that the administrator lists: its whole text, or a member of a JSON object."""

    def __init__(self, identity: ProcessIdentity, path: str, form: object) -> None:
        options = form if isinstance(form, Mapping) else {}
        self._identity = identity
        self._path = path
        self._member = str(options.get("subject_token_field_name", "")) if options.get("type") == "json" else ""
        identity.check_file(path, field=_FILE)

    def get_subject_token(self, context: Any, request: Any) -> str:
        del context, request
        content = self._identity.read_file(self._path, field=_FILE).reveal()
        try:
            found = json.loads(content)[self._member] if self._member else content.decode()
        except (ValueError, KeyError, TypeError):
            found = None
        if not isinstance(found, str) or not found:
            raise invalid_config(_FILE, "names a file without a token in the format of credential_source.format")
        return found


class _AwsKeys(aws.AwsSecurityCredentialsSupplier):
    """Gives the keys of a Secret."""

    def __init__(self, keys: aws.AwsSecurityCredentials, region: str) -> None:
        self._keys = keys
        self._region = region

    def get_aws_security_credentials(self, context: Any, request: Any) -> aws.AwsSecurityCredentials:
        del context, request
        return self._keys

    def get_aws_region(self, context: Any, request: Any) -> str:
        del context, request
        return self._region


def _impersonation(email: str) -> str | None:
    if not email:
        return None
    return f"{base_of(IAM_CREDENTIALS)}/v1/projects/-/serviceAccounts/{email}:generateAccessToken"


def _is_google(url: object, service: str, published: re.Pattern[str]) -> bool:
    """Return whether a URL is absent, one that Google publishes, or one that the provider's environment names."""
    if not url:
        return True
    if not isinstance(url, str):
        return False
    base = base_of(service)
    known = ("/v1/token", "/v1/introspect")
    own = url.removeprefix(base) if url.startswith(base) else ""
    fits = own in known if service == STS else _IMPERSONATION_PATH.fullmatch(own) is not None
    return fits or published.fullmatch(url) is not None


def _is_aws(source: Mapping[str, Any]) -> bool:
    return str(source.get("environment_id", "")).startswith("aws")


def _key(secret: SecretMap, name: str, pointer: str) -> str:
    """Return one key of a Secret; `pointer` is empty for a key that may be absent."""
    found = secret.get(name)
    if found is None and pointer:
        raise credentials_not_found(f'{pointer}: the Secret has no key "{name}"')
    return found.reveal().decode("utf-8", "replace").strip() if found is not None else ""


def _digest(*parts: str) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(part.encode()).digest())
    return digest.hexdigest()


# ---------------------------------------------------------------------------------------------------------------------
# The identity of a store: a service account key, workload identity, federation, or that of the provider process.


KEY: Final = "/auth/secretRef/secretAccessKeySecretRef"
_NEEDED: Final = ("client_email", "private_key", "token_uri")


def check_auth(auth: GcpAuth | None, project: str) -> None:
    """Check what the spec alone shows."""
    if auth is None:
        return
    if auth.secret_ref is not None:
        if auth.secret_ref.secret_access_key_secret_ref is None:
            raise invalid_config(KEY, "name the key of a Secret with the JSON key of a service account")
        if not project:
            raise invalid_config("/projectID", "set it: it is needed with a service account key")
    elif auth.workload_identity is None and auth.workload_identity_federation is not None:
        check_federation(auth.workload_identity_federation)


def source_of(backend: Backend[Any], auth: GcpAuth | None, project: str) -> Source:
    """Return how this configuration obtains tokens, without a call to Google. The first form that is set counts."""
    client = TokenClient(backend.clock, backend.addresses, FEDERATION_POINTER)
    if auth is not None and auth.secret_ref is not None:
        return _by_key(backend, auth.secret_ref, replace(client, field=KEY))
    if auth is not None and (config := auth.workload_identity) is not None:
        reference = config.service_account_ref
        pointer = f"{GKE_POINTER}/serviceAccountRef"
        account = account_key(backend.token(reference), pointer)
        cluster = (config.cluster_project_id or project, config.cluster_location, config.cluster_name)
        identity = WorkloadIdentity(
            config, project, lambda: backend.token(reference), replace(client, field=GKE_POINTER)
        )
        return Source(("gke", *cluster, *account), identity.fetch)
    if auth is not None and auth.workload_identity_federation is not None:
        return federated(backend, auth.workload_identity_federation, client)
    backend.process_identity.use(
        "Google identity", field="/auth", instead="set auth.secretRef, workloadIdentity or workloadIdentityFederation"
    )
    return _own(replace(client, policy=OWN, field="/auth"))


async def project_of(backend: Backend[Any], auth: GcpAuth | None, project: str) -> str:
    """Return the project: that of the spec, that of the cluster, or that of the machine."""
    identity = auth.workload_identity if auth is not None else None
    named = project or (identity.cluster_project_id if identity is not None else "")
    return named or await metadata("project/project-id", TokenClient(backend.clock, OWN, "/projectID"))


def _by_key(backend: Backend[Any], reference: GcpSecretRef, client: TokenClient) -> Source:
    selector = reference.secret_access_key_secret_ref
    if selector is None:
        raise invalid_config(KEY, "name the key of a Secret with the JSON key of a service account")
    raw = backend.secret(selector).reveal()
    try:
        info = json.loads(raw)
    except ValueError:
        info = None
    whole = isinstance(info, dict) and all(isinstance(info.get(name), str) for name in _NEEDED)
    if not whole or info.get("universe_domain", "googleapis.com") != "googleapis.com":
        where = f'key "{selector.key}" of Secret "{selector.name}"'
        raise invalid_config(KEY, f"{where} is not a JSON key of a Google service account with {', '.join(_NEEDED)}")

    def make(_: Bridge) -> Any:
        return service_account.Credentials.from_service_account_info(info, scopes=SCOPES)  # type: ignore[no-untyped-call] # the library has no types

    advice = "check that the service account exists, and that this key of it is enabled"
    fetch = refreshing(make, client, who=f'the service account key in Secret "{selector.name}"', advice=advice)
    return Source(("key", hashlib.sha256(raw).hexdigest()), fetch)


def _own(client: TokenClient) -> Source:
    def make(bridge: Bridge) -> Any:
        credentials, _project = google.auth.default(scopes=SCOPES, request=bridge)
        return credentials

    advice = "set auth, or give the provider's pod an identity (GKE workload identity, GOOGLE_APPLICATION_CREDENTIALS)"
    return Source(("own",), refreshing(make, client, who="credentials of the provider process", advice=advice))
