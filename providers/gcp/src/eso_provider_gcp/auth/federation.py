"""Workload identity federation: a token of another identity provider is exchanged at Google's STS.

| form | subject token |
|---|---|
| `serviceAccountRef` | the token of a Kubernetes service account |
| `awsSecurityCredentials` | a signed GetCallerIdentity request, with the AWS keys of a Secret |
| `credConfig` | from an external_account configuration in a ConfigMap |

A configuration is written by a user, but runs in the provider's pod. It may therefore start no program, read only files
that the administrator lists, send tokens to Google only, and call only the URL that `externalTokenEndpoint` repeats.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from google.auth import aws, identity_pool

from eso_api.stores.gcp import AwsSecurityCredentials, GcpWorkloadIdentityFederation
from eso_provider_gcp.auth.gke import account_key, bound_account
from eso_provider_gcp.auth.tokenclient import Bridge, TokenClient
from eso_provider_gcp.auth.vendor import SCOPES, Make, refreshing
from eso_provider_gcp.endpoints import IAM_CREDENTIALS, STS, base_of
from eso_provider_gcp.identities import Source
from eso_sdk.addresses import ForbiddenAddressError
from eso_sdk.backend import Backend
from eso_sdk.errors import credentials_not_found, invalid_config
from eso_sdk.processidentity import ProcessIdentity
from eso_wire.values import SecretMap

POINTER: Final = "/auth/workloadIdentityFederation"
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
_FILE: Final = f"{POINTER}/credConfig: credential_source.file"
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
        raise invalid_config(POINTER, f"set exactly one of {', '.join(FORMS)}")
    if named != ["credConfig"] and not config.audience:
        raise invalid_config(
            f"{POINTER}/audience", f"set it: {named[0]} needs the audience of the identity pool provider"
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
        refreshing(make, client, who=f"the identity of {POINTER}", advice=advice),
    )


def _by_account(backend: Backend[Any], config: GcpWorkloadIdentityFederation) -> tuple[tuple[str, ...], Make]:
    reference = config.service_account_ref
    assert reference is not None  # noqa: S101 - the caller checked it
    pointer = f"{POINTER}/serviceAccountRef"
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
    pointer = f"{POINTER}/awsSecurityCredentials/awsCredentialsSecretRef"
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
    pointer = f"{POINTER}/credConfig"
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
    pointer = f"{POINTER}/credConfig"

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
        check(same, "credential_source.url", f"must equal {POINTER}/externalTokenEndpoint")
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
