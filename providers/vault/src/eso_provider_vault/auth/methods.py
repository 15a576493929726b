"""The methods of `auth`: for each, its mount, the identity that it proves, and its login request."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import jwt
from yarl import URL

from eso_api.references import SecretKeySelector, ServiceAccountSelector
from eso_api.stores.gcp import GcpWorkloadIdentity
from eso_api.stores.vault import (
    OpenBaoAppRole,
    OpenBaoUserPass,
    VaultAppRole,
    VaultCert,
    VaultGcp,
    VaultIam,
    VaultJwt,
    VaultKubernetes,
    VaultPassword,
)
from eso_api.values import SecretBytes
from eso_sdk.awsidentity import (
    CALLER_IDENTITY,
    AwsCredentials,
    CredentialSource,
    Scope,
    SignableRequest,
    Sts,
    process_source,
    signed_headers,
    sts_url,
)
from eso_sdk.backend import Backend
from eso_sdk.errors import backend_error, credentials_not_found, invalid_config, rejected
from eso_sdk.http import HttpRequest, call_cloud, status_error
from eso_sdk.logins import Pauses
from eso_wire.values import Token
from kubebase.clock import Clock

# --- A login method of any kind: its mount, its identity, and the login request --------------------------------------

Body = Mapping[str, str]
MakeBody = Callable[[], Awaitable[Body]]


Secrets = Backend[Any]
"""The session that logs in, and its credentials."""


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """Certificate and key for the connection that logs in, in PEM."""

    certificate: SecretBytes
    key: SecretBytes


@dataclass(frozen=True, slots=True)
class Method:
    """One configured login."""

    name: str
    """The field of `auth` that configures it."""
    mount: str
    who: tuple[str, ...]
    """Role or user, and everything else that determines the identity. Equal for all sessions of one identity."""
    body: MakeBody = field(repr=False)
    proof: bytes = field(repr=False)
    """A digest of the credentials, or of the account whose tokens are replaced all the time."""
    label: str = ""
    """Role or user, for messages."""
    user: str = ""
    """The last segment of the login path, for methods with users."""
    certificate: ClientCertificate | None = None
    pauses: Pauses = field(default_factory=Pauses)
    advice: str = ""
    """What to check when the server rejects the login."""

    @property
    def path(self) -> str:
        return f"auth/{self.mount}/login/{self.user}" if self.user else f"auth/{self.mount}/login"

    @property
    def field(self) -> str:
        return f"/auth/{self.name}"


def digest(*parts: bytes | SecretBytes | str) -> bytes:
    """Hash credentials. Lengths separate "ab" and "c" from "a" and "bc"."""
    hashed = hashlib.sha256()
    for part in parts:
        raw = part.reveal() if isinstance(part, SecretBytes) else part.encode() if isinstance(part, str) else part
        hashed.update(len(raw).to_bytes(8, "big"))
        hashed.update(raw)
    return hashed.digest()


def mount_of(path: str, otherwise: str, pointer: str) -> str:
    """Return the mount of a method without slashes at its ends; raise if the server would read it as another path."""
    mount = (path or otherwise).strip("/")
    if not mount or any(segment in ("", ".", "..") for segment in mount.split("/")) or not mount.isprintable():
        raise invalid_config(pointer, "must be the path of an auth method below auth/, such as kubernetes or team/jwt")
    return mount


def needed(reference: SecretKeySelector | None, pointer: str, what: str) -> SecretKeySelector:
    """Return a reference that the method cannot do without."""
    if reference is None or not reference.name:
        raise invalid_config(pointer, f"is needed: name the Secret and the key that hold {what}")
    return reference


def named(value: str, pointer: str, what: str) -> str:
    """Return a trimmed name that must not be empty."""
    if not (trimmed := value.strip()):
        raise invalid_config(pointer, f"is needed: {what}")
    return trimmed


def text(value: SecretBytes, pointer: str) -> str:
    """Return a credential as text, as it is."""
    try:
        return value.reveal().decode()
    except UnicodeDecodeError:
        raise invalid_config(pointer, "names a value that is not UTF-8 text") from None


def line(value: SecretBytes, pointer: str) -> str:
    """Return a credential that never holds line breaks, without the one that editors leave at its end."""
    if not (found := text(value, pointer).strip("\r\n")):
        raise invalid_config(pointer, "names an empty value")
    return found


def own_identity(secrets: Secrets, own: str, server: str, pointer: str, instead: str) -> None:
    """Refuse to log in with the identity of the provider itself, unless its administrator allows it for this server."""
    secrets.process_identity.use(own, field=pointer, instead=instead)
    secrets.process_identity.prove(own, URL(server), field="/server")


def fixed(body: Body) -> MakeBody:
    """Return a maker of a body that does not change."""

    async def make() -> Body:
        return body

    return make


def same_account(token: Token) -> tuple[str, ...]:
    """Return what identifies the ServiceAccount of a token; nothing if an older operator does not say."""
    return (token.namespace, token.name, token.uid, *token.audiences) if token.name and token.uid else ()


def account_proof(token: Token) -> bytes:
    """Return a digest of the account, or of the token if the account is not known."""
    account = same_account(token)
    return digest(*account) if account else digest(token.token)


# --- Methods that log in with a JWT of a ServiceAccount or of another issuer: kubernetes, jwt ------------------------


POD_TOKEN: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
"""The token of the provider's own pod."""


def kubernetes(config: VaultKubernetes, secrets: Secrets, *, server: str) -> Method:
    pointer = "/auth/kubernetes"
    role = named(config.role, f"{pointer}/role", "the role of the auth method that the account may use")
    mount = mount_of(config.mount_path, "kubernetes", f"{pointer}/mountPath")
    advice = "check that the role allows this ServiceAccount, its namespace and the token's audience"
    if config.service_account_ref is not None:
        return _with_account(
            secrets, config.service_account_ref, name="kubernetes", mount=mount, role=role, advice=advice
        )
    if config.secret_ref is not None:
        value = secrets.secret(config.secret_ref)
        return _with_jwt("kubernetes", mount, role, line(value, f"{pointer}/secretRef"), advice)

    own_identity(secrets, "ServiceAccount token", server, pointer, "set serviceAccountRef or secretRef")

    async def body() -> Body:
        return {"role": role, "jwt": await asyncio.to_thread(_own_token, POD_TOKEN)}

    return Method(
        name="kubernetes",
        mount=mount,
        who=(role, "pod"),
        label=_label(role),
        body=body,
        proof=digest("pod"),
        advice=f"{advice}; the token is the one of the provider's own pod",
    )


def jwt_method(config: VaultJwt, secrets: Secrets) -> Method:
    pointer = "/auth/jwt"
    mount = mount_of(config.path, "jwt", f"{pointer}/path")
    role = config.role.strip()
    advice = "check the role, and that it accepts the token's issuer, audience and subject"
    if config.secret_ref is not None:
        value = secrets.secret(needed(config.secret_ref, f"{pointer}/secretRef", "the JWT"))
        return _with_jwt("jwt", mount, role, line(value, f"{pointer}/secretRef"), advice)
    if config.kubernetes_service_account_token is not None:
        account = config.kubernetes_service_account_token.service_account_ref
        return _with_account(secrets, account, name="jwt", mount=mount, role=role, advice=advice)
    raise invalid_config(pointer, "needs secretRef or kubernetesServiceAccountToken")


def _with_account(
    secrets: Secrets, account: ServiceAccountSelector, *, name: str, mount: str, role: str, advice: str
) -> Method:
    """Log in with a token that the operator requested. It is replaced every few minutes, the account stays the same."""

    async def body() -> Body:
        return _body(role, line(secrets.token(account).token, f"/auth/{name}"))

    return Method(
        name=name,
        mount=mount,
        who=(role,),
        label=_label(role),
        body=body,
        proof=account_proof(secrets.token(account)),
        advice=advice,
    )


def _with_jwt(name: str, mount: str, role: str, text: str, advice: str) -> Method:
    return Method(
        name=name,
        mount=mount,
        who=(role,),
        label=_label(role),
        body=fixed(_body(role, text)),
        proof=digest(text),
        advice=advice,
    )


def _label(role: str) -> str:
    return f'role "{role}"' if role else "the default role"


def _body(role: str, text: str) -> Body:
    return {"role": role, "jwt": text} if role else {"jwt": text}


def _own_token(path: Path) -> str:
    try:
        found = SecretBytes(path.read_bytes())
    except OSError:
        raise credentials_not_found(
            "/auth/kubernetes names neither serviceAccountRef nor secretRef, and the provider's own pod has no"
            " ServiceAccount token; add one of them"
        ) from None
    return line(found, "/auth/kubernetes")


# ---------------------------------------------------------------------------------------------------------------------
# Methods with credentials of a Secret: appRole, ldap and userPass, and cert with a TLS client certificate.


PASSWORD_PAUSES: Final = Pauses(first=60.0, longest=900.0)
"""Vault locks a user after five failures within 15 minutes."""


def app_role(config: VaultAppRole | OpenBaoAppRole, secrets: Secrets) -> Method:
    pointer = "/auth/appRole"
    secret_id = line(
        secrets.secret(needed(config.secret_ref, f"{pointer}/secretRef", "the secret id")), f"{pointer}/secretRef"
    )
    if config.role_id.strip():
        role_id = config.role_id.strip()
    elif config.role_ref is not None:
        role_id = line(secrets.secret(config.role_ref), f"{pointer}/roleRef")
    else:
        raise invalid_config(pointer, "needs roleId, or roleRef with the Secret and the key that hold the role id")
    return Method(
        name="appRole",
        mount=mount_of(config.path, "approle", f"{pointer}/path"),
        who=(role_id,),
        body=fixed({"role_id": role_id, "secret_id": secret_id}),
        proof=digest(role_id, secret_id),
        advice="check the role id and the secret id, and whether the secret id has expired or is used up",
    )


def ldap(config: VaultPassword, secrets: Secrets) -> Method:
    return _password(config, secrets, "ldap", "ldap")


def user_pass(config: VaultPassword | OpenBaoUserPass, secrets: Secrets) -> Method:
    return _password(config, secrets, "userPass", "userpass")


def _password(config: VaultPassword | OpenBaoUserPass, secrets: Secrets, name: str, mount: str) -> Method:
    pointer = f"/auth/{name}"
    user = named(config.username, f"{pointer}/username", "the user who logs in")
    value = secrets.secret(needed(config.secret_ref, f"{pointer}/secretRef", "the password"))
    password = text(value, f"{pointer}/secretRef")
    ends_oddly = password != password.rstrip("\r\n")
    return Method(
        name=name,
        mount=mount_of(config.path, mount, f"{pointer}/path"),
        who=(user,),
        label=f'user "{user}"',
        body=fixed({"password": password}),
        proof=digest(user, value),
        user=quote(user, safe=""),
        pauses=PASSWORD_PAUSES,
        advice="check user name and password" + ("; the password ends with a line break" if ends_oddly else ""),
    )


def cert(config: VaultCert, secrets: Secrets) -> Method:
    pointer = "/auth/cert"
    certificate = secrets.secret(needed(config.client_cert, f"{pointer}/clientCert", "the certificate in PEM"))
    key = secrets.secret(needed(config.secret_ref, f"{pointer}/secretRef", "the key of the certificate in PEM"))
    role = config.vault_role.strip()
    return Method(
        name="cert",
        mount=mount_of(config.path, "cert", f"{pointer}/path"),
        who=(role,),
        label=f'role "{role}"' if role else "any role",
        body=fixed({"name": role} if role else {}),
        proof=digest(certificate, key),
        certificate=ClientCertificate(certificate, key),
        advice="check that a role of the auth method trusts the certificate, and that server is an https address",
    )


# ---------------------------------------------------------------------------------------------------------------------
# The method iam: a signed GetCallerIdentity request proves an AWS identity to Vault, which sends it to AWS itself.
#
#     credentials -> role assumed, if one is named -> signed request in the login body
#
# | configured | credentials |
# |---|---|
# | `jwt.serviceAccountRef` | role of the account's annotation, assumed with its token |
# | `secretRef` | keys in Secrets |
# | neither | the provider's own: a web identity token file, or Pod Identity |
#
# Credentials live in the session, never in the environment of the process.


__all__ = ["SESSION_NAME", "Sts", "credential_source", "sts_url"]

SESSION_NAME: Final = "external-secrets-provider-vault"
ROLE_ANNOTATION: Final = "eks.amazonaws.com/role-arn"


def credential_source(
    config: VaultIam, secrets: Secrets, server: str, environment: Mapping[str, str]
) -> CredentialSource:
    """Pick the source: the account, then the keys, then the provider's own identity."""
    if config.jwt is not None and config.jwt.service_account_ref is not None:
        return _of_account(secrets, config.jwt.service_account_ref)
    if config.secret_ref is not None:
        return _of_keys(config, secrets)
    own_identity(secrets, "AWS role", server, "/auth/iam", "set jwt.serviceAccountRef or secretRef")
    if (own := process_source(environment, secrets.clock)) is not None:
        return own
    raise credentials_not_found(
        "/auth/iam names neither jwt.serviceAccountRef nor secretRef, and the provider has no AWS identity of its own;"
        " add one of them, or bind a role to the provider's ServiceAccount"
    )


def _of_account(secrets: Secrets, account: ServiceAccountSelector) -> CredentialSource:
    pointer = "/auth/iam/jwt/serviceAccountRef"
    token = secrets.token(account)
    role = token.annotations.get(ROLE_ANNOTATION, "")
    if not role:
        raise invalid_config(pointer, f"names a ServiceAccount without the annotation {ROLE_ANNOTATION}")

    async def obtain(sts: Sts) -> AwsCredentials:
        return await sts.assume_role_with_token(role, line(secrets.token(account).token, pointer))

    return CredentialSource((role,), account_proof(token), obtain)


def _of_keys(config: VaultIam, secrets: Secrets) -> CredentialSource:
    pointer, refs = "/auth/iam/secretRef", config.secret_ref
    if refs is None:
        raise invalid_config(pointer, "is needed")
    key_id = line(
        secrets.secret(needed(refs.access_key_id_secret_ref, f"{pointer}/accessKeyIDSecretRef", "the access key id")),
        pointer,
    )
    key = secrets.secret(
        needed(refs.secret_access_key_secret_ref, f"{pointer}/secretAccessKeySecretRef", "the secret access key")
    )
    credentials = AwsCredentials(key_id, SecretBytes(line(key, pointer).encode()))
    if refs.session_token_secret_ref is not None:
        session = line(secrets.secret(refs.session_token_secret_ref), pointer)
        credentials = AwsCredentials(key_id, credentials.secret_access_key, SecretBytes(session.encode()))

    async def obtain(_sts: Sts) -> AwsCredentials:
        return credentials

    proof = digest(key_id, credentials.secret_access_key, credentials.session_token or b"")
    return CredentialSource((key_id,), proof, obtain)


_SERVER_ID: Final = "X-Vault-AWS-IAM-Server-ID"


def iam(config: VaultIam, secrets: Secrets, *, server: str, environment: Mapping[str, str] = os.environ) -> Method:
    pointer = "/auth/iam"
    role = named(config.vault_role, f"{pointer}/vaultRole", "the role of the auth method")
    region = config.region.strip() or "us-east-1"
    if not region.replace("-", "").isalnum():
        raise invalid_config(f"{pointer}/region", "is not the name of an AWS region, such as eu-central-1")
    source = credential_source(config, secrets, server, environment)
    sts = Sts(sts_url(region, environment), Scope(region, "sts"), secrets.clock, SESSION_NAME, pointer)

    async def body() -> Body:
        credentials = await source.obtain(sts)
        if config.role:
            credentials = await sts.assume_role(credentials, config.role, config.external_id)
        return {"role": role, **login_request(sts, credentials, config.vault_aws_iam_server_id, secrets.clock)}

    return Method(
        name="iam",
        mount=mount_of(config.path, "aws", f"{pointer}/path"),
        who=(role, region, config.role, config.external_id, config.vault_aws_iam_server_id, *source.who),
        label=f'role "{role}"',
        body=body,
        proof=source.proof,
        advice="check vaultRole, that it allows this AWS identity, vaultAwsIamServerID, and the STS endpoint of region",
    )


def login_request(sts: Sts, credentials: AwsCredentials, server_id: str, clock: Clock) -> Body:
    """Return the fields that carry the signed request."""
    headers = {
        "Content-Type": "application/x-www-form-urlencoded; charset=utf-8",
        "Content-Length": str(len(CALLER_IDENTITY)),
    }
    if server_id:
        headers[_SERVER_ID] = server_id
    signed = signed_headers(
        SignableRequest("POST", sts.url, headers, CALLER_IDENTITY), credentials, sts.scope, clock.now()
    )
    return {
        "iam_http_request_method": "POST",
        "iam_request_url": _encoded(str(sts.url).encode()),
        "iam_request_body": _encoded(CALLER_IDENTITY),
        "iam_request_headers": _encoded(json.dumps({name: [value] for name, value in signed.items()}).encode()),
    }


def _encoded(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


# --- The method gcp: a JWT signed by a Google service account, or the identity token of the machine ------------------
#
# | configured | JWT |
# |---|---|
# | `secretRef` | signed here with the service account's key, audience `vault/ROLE` |
# | `workloadIdentity` | the Kubernetes token is exchanged at Google, which signs the JWT for the bound account |
# | neither | identity token of the metadata server, audience `SERVER/vault/ROLE` |


ACCOUNT_ANNOTATION: Final = "iam.gke.io/gcp-service-account"
_POINTER: Final = "/auth/gcp/workloadIdentity"
_JSON: Final = {"Content-Type": "application/json"}


@dataclass(frozen=True, slots=True)
class Google:
    """Google's token services."""

    sts: str
    credentials: str
    clock: Clock

    @classmethod
    def of(cls, environment: Mapping[str, str], clock: Clock) -> Google:
        """Return the endpoints of Google. The provider's environment may name private ones."""
        return cls(
            environment.get("GOOGLE_SECURETOKEN_ENDPOINT", "") or "https://securetoken.googleapis.com",
            environment.get("GOOGLE_IAM_CREDENTIALS_ENDPOINT", "") or "https://iamcredentials.googleapis.com",
            clock,
        )

    async def exchange(self, audience: str, token: str) -> str:
        """Exchange a Kubernetes token for an access token of the workload."""
        body = {
            "audience": audience,
            "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
            "requested_token_type": "urn:ietf:params:oauth:token-type:access_token",
            "scope": "https://www.googleapis.com/auth/cloud-platform",
            "subject_token": token,
            "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        }
        return await self._send(f"{self.sts}/v1/identitybindingtoken", body, {}, "access_token")

    async def sign(self, account: str, claims: Mapping[str, Any], access: str) -> str:
        """Let Google sign claims for a service account."""
        url = f"{self.credentials}/v1/projects/-/serviceAccounts/{account}:signJwt"
        return await self._send(
            url, {"payload": json.dumps(claims)}, {"Authorization": f"Bearer {access}"}, "signedJwt"
        )

    async def _send(self, url: str, body: Mapping[str, str], headers: Mapping[str, str], member: str) -> str:
        subject = URL(url).host or "Google"
        request = HttpRequest("POST", URL(url), {**_JSON, **headers}, json.dumps(body).encode())
        response = await call_cloud(request, subject, self.clock)
        if response.status in (400, 401, 403, 404):
            raise rejected(
                f"{subject} refuses the workload identity of {_POINTER}: HTTP {response.status}; check the names of the"
                " cluster, and that the service account allows roles/iam.workloadIdentityUser and signJwt",
                backend_code=str(response.status),
            )
        if problem := status_error(response, subject, self.clock):
            raise problem
        try:
            found = json.loads(response.body).get(member)
        except (ValueError, AttributeError):
            found = None
        if not isinstance(found, str) or not found:
            raise backend_error(f"the response of {subject} has no {member}")
        return found


async def federated_jwt(
    identity: GcpWorkloadIdentity, project: str, token: Token, claims: Mapping[str, Any], google: Google
) -> str:
    """Return a JWT with these claims, signed by Google for the service account that the ServiceAccount is bound to."""
    account = token.annotations.get(ACCOUNT_ANNOTATION, "")
    if not account:
        raise invalid_config(
            f"{_POINTER}/serviceAccountRef", f"names a ServiceAccount without the annotation {ACCOUNT_ANNOTATION}"
        )
    access = await google.exchange(_audience(identity, project), line(token.token, f"{_POINTER}/serviceAccountRef"))
    return await google.sign(account, {"sub": account, **claims}, access)


def _audience(identity: GcpWorkloadIdentity, project: str) -> str:
    location, name = identity.cluster_location, identity.cluster_name
    if not (project and location and name):
        raise invalid_config(_POINTER, "needs clusterProjectID, clusterLocation and clusterName")
    cluster = f"https://container.googleapis.com/v1/projects/{project}/locations/{location}/clusters/{name}"
    return f"identitynamespace:{project}.svc.id.goog:{cluster}"


LIFETIME: Final = timedelta(minutes=10)


def gcp(config: VaultGcp, secrets: Secrets, *, server: str, environment: Mapping[str, str] = os.environ) -> Method:
    pointer = "/auth/gcp"
    role = named(config.role, f"{pointer}/role", "the role of the auth method")
    mount = mount_of(config.path, "gcp", f"{pointer}/path")
    clock = secrets.clock
    if config.secret_ref is not None:
        where = f"{pointer}/secretRef/secretAccessKeySecretRef"
        key = secrets.secret(needed(config.secret_ref.secret_access_key_secret_ref, where, "the service account key"))

        async def sign() -> Body:
            return {"role": role, "jwt": signed_jwt(key, role, clock, where)}

        return _method(role, mount, sign, digest(key))
    if config.workload_identity is not None:
        identity = config.workload_identity
        account = identity.service_account_ref
        project = identity.cluster_project_id or config.project_id

        async def exchange() -> Body:
            claims = {"aud": f"vault/{role}", "exp": int((clock.now() + LIFETIME).timestamp())}
            google = Google.of(environment, clock)
            return {"role": role, "jwt": await federated_jwt(identity, project, secrets.token(account), claims, google)}

        return _method(role, mount, exchange, account_proof(secrets.token(account)))

    own_identity(secrets, "Google identity", server, pointer, "set secretRef or workloadIdentity")

    async def machine_token() -> Body:
        return {"role": role, "jwt": await _machine_token(f"{server}/vault/{role}", environment, clock)}

    return _method(role, mount, machine_token, digest("machine"))


def _method(role: str, mount: str, body: MakeBody, proof: bytes) -> Method:
    return Method(
        name="gcp",
        mount=mount,
        who=(role,),
        label=f'role "{role}"',
        body=body,
        proof=proof,
        advice="check the role, its type (iam or gce), and that it allows this service account and project",
    )


def signed_jwt(key: SecretBytes, role: str, clock: Clock, pointer: str) -> str:
    """Sign a login JWT with a service account's key."""
    try:
        account: dict[str, Any] = json.loads(key.reveal())
        email, private, key_id = account["client_email"], account["private_key"], account["private_key_id"]
        now = clock.now()
        claims = {"sub": email, "aud": f"vault/{role}", "iat": now, "exp": now + LIFETIME}
        return jwt.encode(claims, private, algorithm="RS256", headers={"kid": key_id})
    except (ValueError, KeyError, TypeError, jwt.PyJWTError):
        raise invalid_config(pointer, "does not name the JSON key of a Google service account") from None


async def _machine_token(audience: str, environment: Mapping[str, str], clock: Clock) -> str:
    host = environment.get("GCE_METADATA_HOST", "") or "metadata.google.internal"
    path = "/computeMetadata/v1/instance/service-accounts/default/identity"
    url = URL(f"http://{host}{path}").with_query(audience=audience, format="full")
    subject = "Google's metadata server"
    response = await call_cloud(HttpRequest("GET", url, {"Metadata-Flavor": "Google"}), subject, clock)
    if response.status == 404:
        raise credentials_not_found(
            "/auth/gcp names neither secretRef nor workloadIdentity, and the provider's machine has no service account"
        )
    if problem := status_error(response, subject, clock):
        raise problem
    return response.body.decode("ascii", "replace").strip()
