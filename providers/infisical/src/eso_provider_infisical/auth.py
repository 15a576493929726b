"""How each form of `auth` logs in.

One form is chosen, and its token is shared by all sessions of the identity. The forms whose parts are in Secrets come
first, then those that read files of the provider's container, then those that prove the identity of its own machine.
"""

from __future__ import annotations

import asyncio
import base64
import json
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from email.utils import format_datetime
from typing import Any, Final

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from yarl import URL

from eso_api.stores.infisical import (
    InfisicalAuth,
    InfisicalAwsAuth,
    InfisicalAzureAuth,
    InfisicalGcpIamAuth,
    InfisicalGcpIdTokenAuth,
    InfisicalJwtAuth,
    InfisicalKubernetesAuth,
    InfisicalLdapAuth,
    InfisicalOciAuth,
    InfisicalProvider,
    InfisicalUniversalAuth,
)
from eso_api.values import SecretBytes
from eso_sdk.awsidentity import CALLER_IDENTITY, Scope, SignableRequest, Sts, process_source, signed_headers, sts_url
from eso_sdk.backend import Backend
from eso_sdk.errors import backend_error, credentials_not_found, invalid_config, rejected
from eso_sdk.http import HttpRequest, call_cloud, status_error
from eso_sdk.logins import (
    Authorization,
    Body,
    FixedHeaders,
    Grant,
    LogIn,
    Login,
    LoginHeaders,
    MakeBody,
    bearer,
    digest,
    fixed,
    join_login,
    optional_text,
    text,
)
from eso_sdk.processidentity import POD_TOKEN
from eso_sdk.rest import Rest, RestRequest, RestSettings
from kubebase.clock import Clock

# --- A configured login of any form: where it is sent, whom it proves, and its body ----------------------------------


Session = Backend[InfisicalProvider]
"""The session that logs in, and its credentials."""


def prove_own_identity(store: Session, own: str, pointer: str) -> None:
    """Refuse a proof of the provider's own identity, unless its administrator allows it for this server."""
    instead = "use universalAuthCredentials or another form that names its own credentials"
    store.process_identity.use(own, field=pointer, instead=instead)
    store.process_identity.prove(own, URL(store.config.host_api), field="/hostAPI")


@dataclass(frozen=True, slots=True)
class Form:
    """One configured login."""

    name: str
    """The field of `auth`."""
    method: str
    """The segment of the login path."""
    call: str
    """The name of the call in metrics."""
    proof: tuple[str, ...] = field(repr=False)
    """Everything that determines the identity. Equal for all sessions that may share a token."""
    body: MakeBody = field(repr=False)
    advice: str
    """What to check when Infisical rejects the login."""

    @property
    def path(self) -> str:
        return f"v1/auth/{self.method}/login"


# --- Forms that read a file of the provider's container: kubernetes, gcpIam ------------------------------------------
#
# The author of a store chooses the path and the server that receives the content or a signature made with it. Therefore
# only files that the administrator lists may be read, and only hosts that the administrator lists receive anything.


LIFETIME: Final = timedelta(minutes=10)


def kubernetes(config: InfisicalKubernetesAuth, store: Session) -> Form:
    pointer = "/auth/kubernetesAuthCredentials"
    identity = text(store, config.identity_id, f"{pointer}/identityId")
    where = f"{pointer}/serviceAccountTokenPath"
    path = optional_text(store, config.service_account_token_path, where) or POD_TOKEN
    prove_own_identity(store, "ServiceAccount token", pointer)
    store.process_identity.check_file(path, field=where, own=POD_TOKEN)

    async def body() -> Body:
        return {"identityId": identity, "jwt": (await _content(store, path, where, own=POD_TOKEN)).strip()}

    return Form(
        name="kubernetesAuthCredentials",
        method="kubernetes-auth",
        call="MachineIdentityLoginViaKubernetesAuth",
        proof=(identity, path),
        body=body,
        advice="check the identity id, and that its Kubernetes auth allows the ServiceAccount of the provider's pod",
    )


def gcp_iam(config: InfisicalGcpIamAuth, store: Session) -> Form:
    pointer = "/auth/gcpIamAuthCredentials"
    identity = text(store, config.identity_id, f"{pointer}/identityId")
    where = f"{pointer}/serviceAccountKeyFilePath"
    path = text(store, config.service_account_key_file_path, where)
    prove_own_identity(store, "mounted key", pointer)
    store.process_identity.check_file(path, field=where)

    async def body() -> Body:
        key = await _content(store, path, where)
        return {"identityId": identity, "jwt": signed_jwt(key, identity, store.clock, where)}

    return Form(
        name="gcpIamAuthCredentials",
        method="gcp-auth",
        call="MachineIdentityLoginViaGcpServiceAccountAuth",
        proof=(identity, path),
        body=body,
        advice="check the identity id, and that its GCP auth is of type iam and allows the service account of the key",
    )


def signed_jwt(key: str, identity: str, clock: Clock, pointer: str) -> str:
    """Sign a login JWT with the key of a Google service account, as its IAM API would."""
    try:
        account: dict[str, Any] = json.loads(key)
        now = clock.now()
        claims = {"sub": account["client_email"], "aud": identity, "iat": now, "exp": now + LIFETIME}
        return jwt.encode(claims, account["private_key"], "RS256", headers={"kid": account["private_key_id"]})
    except (ValueError, KeyError, TypeError, jwt.PyJWTError):
        raise invalid_config(pointer, "does not name the JSON key of a Google service account") from None


async def _content(store: Session, path: str, pointer: str, own: str = "") -> str:
    content = await asyncio.to_thread(store.process_identity.read_file, path, field=pointer, own=own)
    try:
        return content.reveal().decode()
    except UnicodeDecodeError:
        raise invalid_config(pointer, "names a file that is not UTF-8 text") from None


# --- Forms whose parts are all in Secrets: universal, jwt, ldap and oci ----------------------------------------------
#
# The form oci is a signed request for the own user, which Infisical sends to Oracle itself. The signature has the
# scheme "Signing HTTP Messages" with RSA and SHA-256 over date, request target and host, and the key id
# TENANCY/USER/FINGERPRINT.


def universal(config: InfisicalUniversalAuth, store: Session) -> Form:
    pointer = "/auth/universalAuthCredentials"
    client = text(store, config.client_id, f"{pointer}/clientId")
    secret = text(store, config.client_secret, f"{pointer}/clientSecret")
    return Form(
        name="universalAuthCredentials",
        method="universal-auth",
        call="MachineIdentityLoginViaUniversalAuth",
        proof=(client, secret),
        body=fixed({"clientId": client, "clientSecret": secret}),
        advice="check client id and client secret, whether the secret has expired or used up its uses, and trusted IPs",
    )


def jwt_form(config: InfisicalJwtAuth, store: Session) -> Form:
    pointer = "/auth/jwtAuthCredentials"
    identity = text(store, config.identity_id, f"{pointer}/identityId")
    token = text(store, config.jwt, f"{pointer}/jwt")
    return Form(
        name="jwtAuthCredentials",
        method="jwt-auth",
        call="MachineIdentityLoginViaJwtAuth",
        proof=(identity, token),
        body=fixed({"identityId": identity, "jwt": token}),
        advice="check the identity id, and that its JWT auth accepts issuer, audience and subject of the token",
    )


def ldap(config: InfisicalLdapAuth, store: Session) -> Form:
    pointer = "/auth/ldapAuthCredentials"
    identity = text(store, config.identity_id, f"{pointer}/identityId")
    user = text(store, config.ldap_username, f"{pointer}/ldapUsername")
    password = text(store, config.ldap_password, f"{pointer}/ldapPassword")
    return Form(
        name="ldapAuthCredentials",
        method="ldap-auth",
        call="MachineIdentityLoginViaLdapAuth",
        proof=(identity, user, password),
        body=fixed({"identityId": identity, "username": user, "password": password}),
        advice="check the identity id, user and password, and the directory of its LDAP auth",
    )


_REGION: Final = re.compile(r"[a-z]{2}-[a-z]+-[1-9]")
_OCID: Final = re.compile(r"[A-Za-z0-9._-]+")
_SIGNED: Final = ("date", "(request-target)", "host")


def oracle(config: InfisicalOciAuth, store: Session) -> Form:
    pointer = "/auth/ociAuthCredentials"
    identity = text(store, config.identity_id, f"{pointer}/identityId")
    user = text(store, config.user_id, f"{pointer}/userId")
    region = text(store, config.region, f"{pointer}/region")
    tenancy = text(store, config.tenancy_id, f"{pointer}/tenancyId")
    fingerprint = text(store, config.fingerprint, f"{pointer}/fingerprint")
    pem = text(store, config.private_key, f"{pointer}/privateKey")
    passphrase = optional_text(store, config.private_key_passphrase, f"{pointer}/privateKeyPassphrase")
    if not _REGION.fullmatch(region):
        raise invalid_config(f"{pointer}/region", "does not name a region such as eu-frankfurt-1")
    if not _OCID.fullmatch(user):
        raise invalid_config(f"{pointer}/userId", "does not name the OCID of a user")
    key = _private_key(pem, passphrase, pointer)

    async def body() -> Body:
        signed = {
            "date": format_datetime(store.clock.now(), usegmt=True),
            "(request-target)": f"get /20160918/users/{user}",
            "host": f"identity.{region}.oraclecloud.com",
        }
        covered = "\n".join(f"{name}: {signed[name]}" for name in _SIGNED)
        signature = base64.b64encode(key.sign(covered.encode(), PKCS1v15(), SHA256())).decode()
        headers = {
            "host": signed["host"],
            "date": signed["date"],
            "authorization": f'Signature version="1",headers="{" ".join(_SIGNED)}",'
            f'keyId="{tenancy}/{user}/{fingerprint}",algorithm="rsa-sha256",signature="{signature}"',
        }
        return {"identityId": identity, "userOcid": user, "headers": headers}

    return Form(
        name="ociAuthCredentials",
        method="oci-auth",
        call="MachineIdentityLoginViaOciAuth",
        proof=(identity, tenancy, user, region, fingerprint, pem),
        body=body,
        advice="check the identity id, the key and its fingerprint, the region, and that its OCI auth allows the user",
    )


def _private_key(pem: str, passphrase: str, pointer: str) -> RSAPrivateKey:
    try:
        key = load_pem_private_key(pem.encode(), passphrase.encode() or None)
    except (ValueError, TypeError):
        raise invalid_config(
            f"{pointer}/privateKey", "names no private key in PEM, or its passphrase is wrong"
        ) from None
    if not isinstance(key, RSAPrivateKey):
        raise invalid_config(f"{pointer}/privateKey", "names a key that is not an RSA key")
    return key


# --- Forms that prove an identity that a cloud gave to the provider: azure, gcpIdToken and aws -----------------------
#
# The author of a store chooses the server that receives the token and what the token is valid for. Therefore it is
# sent only to hosts that the administrator lists. The form aws is a signed GetCallerIdentity request, which Infisical
# sends to AWS itself; AWS accepts it for 15 minutes.


RESOURCE: Final = "https://management.azure.com/"

_AZURE: Final = "http://169.254.169.254"
_GOOGLE: Final = "metadata.google.internal"
_IDENTITY: Final = "/computeMetadata/v1/instance/service-accounts/default/identity"


def azure(config: InfisicalAzureAuth, store: Session, environment: Mapping[str, str] = os.environ) -> Form:
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


def gcp_id_token(config: InfisicalGcpIdTokenAuth, store: Session, environment: Mapping[str, str] = os.environ) -> Form:
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


def amazon(config: InfisicalAwsAuth, store: Session, environment: Mapping[str, str] = os.environ) -> Form:
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


# --- Choose the form of `auth`, and share its token with every session of the same identity --------------------------


_REFUSED: Final = (400, 401, 403, 404, 422)
_TOKEN: Final = "token_auth_credentials"  # noqa: S105 - the name of a field
_FORMS: Final[Mapping[str, Callable[[Any, Session], Form]]] = {
    "universal_auth_credentials": universal,
    "azure_auth_credentials": azure,
    "gcp_id_token_auth_credentials": gcp_id_token,
    "gcp_iam_auth_credentials": gcp_iam,
    "jwt_auth_credentials": jwt_form,
    "ldap_auth_credentials": ldap,
    "oci_auth_credentials": oracle,
    "kubernetes_auth_credentials": kubernetes,
    "aws_auth_credentials": amazon,
}
"""In the order in which they are checked; the access token is the last."""


class _Granted(msgspec.Struct, rename="camel", frozen=True):
    access_token: str
    expires_in: float = 0.0


@dataclass(slots=True)
class Auth:
    """The authorization of one session, and what it holds."""

    authorization: Authorization
    login: Login | None = None
    log_in: LogIn | None = field(default=None, repr=False)
    rest: Rest | None = None

    async def close(self) -> None:
        if self.login is not None and self.log_in is not None:
            self.login.leave(self.log_in)
        if self.rest is not None:
            await self.rest.close()


def check_auth(auth: InfisicalAuth) -> tuple[str, ...]:
    """Check `auth` alone: return warnings, or raise `invalid_config`."""
    chosen = [_spelled(name) for name in (*_FORMS, _TOKEN) if getattr(auth, name) is not None]
    if not chosen:
        raise invalid_config("/auth", f"needs one of {', '.join(_spelled(name) for name in (*_FORMS, _TOKEN))}")
    return (f"auth configures {', '.join(chosen)}; only {chosen[0]} is used",) if len(chosen) > 1 else ()


def open_auth(store: Session, settings: RestSettings) -> Auth:
    """Return the authorization of a session. The identity logs in when the first token is needed."""
    auth = store.config.auth
    for name, make in _FORMS.items():
        if (part := getattr(auth, name)) is not None:
            return _logged_in(store, settings, make(part, store))
    if auth.token_auth_credentials is None:
        check_auth(auth)
        raise invalid_config("/auth", "names no login")
    pointer = "/auth/tokenAuthCredentials/accessToken"
    token = text(store, auth.token_auth_credentials.access_token, pointer)
    return Auth(FixedHeaders(bearer(SecretBytes(token.encode()), pointer)))


def _logged_in(store: Session, settings: RestSettings, form: Form) -> Auth:
    organization = store.config.secrets_scope.organization_slug
    proof = digest(str(settings.base), settings.ca, form.method, organization, *form.proof)
    # Logins have connections of their own: a rejected login must not stop those of other identities.
    anonymous = FixedHeaders()
    anonymous.proof = digest("login", proof)
    rest = Rest(store, replace(settings, etags=False), anonymous)

    async def log_in() -> Grant:
        body = dict(await form.body()) | ({"organizationSlug": organization} if organization else {})
        response = await rest.send(RestRequest("POST", form.path, form.call, json=body, allowed=_REFUSED))
        if response.status in _REFUSED:
            message = (
                f"{settings.subject} refuses the login of /auth/{form.name}: HTTP {response.status}; {form.advice}"
            )
            raise rejected(message, backend_code=str(response.status))
        granted: _Granted = response.read(_Granted)
        if not granted.access_token:
            raise backend_error(f"{settings.subject} sends no token for the login")
        return Grant(SecretBytes(granted.access_token.encode()), granted.expires_in or math.inf)

    login = join_login(proof, store.clock, log_in)
    return Auth(LoginHeaders(login, proof, bearer), login, log_in, rest)


def _spelled(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
