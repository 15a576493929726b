"""`spec.provider.vault` and `openBao`: key/value engines of HashiCorp Vault and OpenBao.

The VaultDynamicSecret generator uses the same block.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from eso_api.marks import REFERENCE, default_key, lifetime, sibling
from eso_api.marks import audiences as token_audiences
from eso_api.references import CaProvider, SecretKeySelector, ServiceAccountSelector
from eso_api.shapes import Base64, Fragment, Int64, at_most_one, exactly_one_of, one_of
from eso_api.stores.aws import AwsJwt, AwsSecretRef
from eso_api.stores.gcp import GcpSecretRef, GcpWorkloadIdentity


class VaultAppRole(Fragment, frozen=True, kw_only=True):
    """AppRole login."""

    secret_ref: SecretKeySelector
    """The secret id."""
    path: str = "approle"
    """Mount path; absent means approle."""
    role_id: str = ""
    """The role id."""
    role_ref: SecretKeySelector | None = None
    """The role id, kept in a Secret."""


class VaultKubernetes(Fragment, frozen=True, kw_only=True):
    """Login with a service account token."""

    role: str
    """Vault role."""
    mount_path: str = "kubernetes"
    """Mount path; absent means kubernetes."""
    service_account_ref: Annotated[ServiceAccountSelector, lifetime(600)] | None = None
    """Service account to request a token for."""
    secret_ref: Annotated[SecretKeySelector, default_key("token")] | None = None
    """A token kept in a Secret."""


class VaultPassword(Fragment, frozen=True, kw_only=True):
    """User name and password."""

    username: str
    """The user."""
    path: str = ""
    """Mount path; absent means the name of the method."""
    secret_ref: SecretKeySelector | None = None
    """The password."""


class VaultServiceAccountToken(Fragment, frozen=True, kw_only=True):
    """A service account token."""

    service_account_ref: Annotated[
        ServiceAccountSelector,
        token_audiences(REFERENCE, sibling("1/audiences", otherwise="vault")),
        lifetime(600, sibling="1/expirationSeconds"),
    ]
    """The service account."""
    audiences: list[str] = []
    """Audiences of the token. Prefer those of serviceAccountRef."""
    expiration_seconds: Int64 = 600
    """Lifetime of the token; absent means 600."""


class VaultJwt(Fragment, frozen=True, kw_only=True):
    """JWT or OIDC login."""

    path: str = "jwt"
    """Mount path; absent means jwt."""
    role: str = ""
    """Vault role."""
    secret_ref: SecretKeySelector | None = None
    """The JWT, kept in a Secret."""
    kubernetes_service_account_token: VaultServiceAccountToken | None = None
    """A service account token as JWT."""


class VaultCert(Fragment, frozen=True, kw_only=True):
    """Login with a TLS certificate."""

    path: str = "cert"
    """Mount path; absent means cert."""
    client_cert: SecretKeySelector | None = None
    """The certificate."""
    secret_ref: SecretKeySelector | None = None
    """The key of the certificate."""
    vault_role: str = ""
    """Vault role."""


class VaultIam(Fragment, frozen=True, kw_only=True):
    """Login with an AWS identity."""

    vault_role: str
    """Vault role."""
    path: str = "aws"
    """Mount path; absent means aws."""
    region: str = "us-east-1"
    """AWS region; absent means us-east-1."""
    role: str = ""
    """AWS role to assume first."""
    external_id: str = msgspec.field(default="", name="externalID")
    """External id for assuming role."""
    vault_aws_iam_server_id: str = msgspec.field(default="", name="vaultAwsIamServerID")
    """Value of the X-Vault-AWS-IAM-Server-ID header."""
    jwt: AwsJwt | None = None
    """A service account that may assume a role."""
    secret_ref: AwsSecretRef | None = None
    """AWS keys kept in Secrets."""


class VaultGcp(Fragment, frozen=True, kw_only=True):
    """Login with a Google identity."""

    role: str
    """Vault role."""
    path: str = "gcp"
    """Mount path; absent means gcp."""
    project_id: str = msgspec.field(default="", name="projectID")
    """Google project."""
    location: str = ""
    """Google location."""
    secret_ref: GcpSecretRef | None = None
    """A service account key."""
    workload_identity: GcpWorkloadIdentity | None = None
    """A Kubernetes service account bound to a Google one."""
    service_account_ref: ServiceAccountSelector | None = None
    """Kubernetes service account of a GCE-type login."""


class VaultAuth(Fragment, frozen=True, kw_only=True):
    """How to log in; the first method that is set is used, in the order of the documentation."""

    namespace: str = ""
    """Vault namespace of the login."""
    token_secret_ref: SecretKeySelector | None = None
    """A token."""
    app_role: VaultAppRole | None = None
    """AppRole."""
    kubernetes: VaultKubernetes | None = None
    """A service account token."""
    ldap: VaultPassword | None = None
    """LDAP user and password."""
    user_pass: VaultPassword | None = None
    """Vault user and password."""
    jwt: VaultJwt | None = None
    """JWT or OIDC."""
    cert: VaultCert | None = None
    """TLS certificate."""
    iam: VaultIam | None = None
    """AWS identity."""
    gcp: VaultGcp | None = None
    """Google identity."""


class VaultTls(Fragment, frozen=True, kw_only=True):
    """Client certificate for the connection; both parts or none."""

    cert_secret_ref: Annotated[SecretKeySelector, default_key("tls.crt")] | None = None
    """The certificate."""
    key_secret_ref: Annotated[SecretKeySelector, default_key("tls.key")] | None = None
    """Its key."""


class VaultCheckAndSet(Fragment, frozen=True, kw_only=True):
    """Check-and-set of key/value version 2."""

    required: bool = False
    """Send the expected version with every write."""


class VaultProvider(Fragment, frozen=True, kw_only=True):
    """Key/value engines of HashiCorp Vault."""

    server: str
    """URL of the server."""
    auth: VaultAuth | None = None
    """How to log in; absent if an agent in front of Vault logs in."""
    path: str | None = None
    """Mount path of the engine."""
    version: Annotated[str, one_of("v1", "v2")] = "v2"
    """Version of the engine; absent means v2."""
    namespace: str = ""
    """Vault namespace."""
    ca_bundle: Base64 = ""
    """CA certificates, PEM in base64."""
    ca_provider: CaProvider | None = None
    """CA certificates kept in a Secret or ConfigMap."""
    tls: VaultTls | None = None
    """Client certificate for the connection."""
    headers: dict[str, str] = {}
    """Headers of every request."""
    read_your_writes: bool = False
    """Wait for replicas that lag behind our own writes."""
    forward_inconsistent: bool = False
    """Let lagging replicas forward to the active node."""
    check_and_set: VaultCheckAndSet | None = None
    """Check-and-set of key/value version 2."""


class OpenBaoAppRole(Fragment, frozen=True, kw_only=True):
    """AppRole login."""

    RULES: ClassVar = (exactly_one_of("roleId", "roleRef"),)

    secret_ref: SecretKeySelector
    """The secret id."""
    path: str = "approle"
    """Mount path; absent means approle."""
    role_id: str = ""
    """The role id."""
    role_ref: SecretKeySelector | None = None
    """The role id, kept in a Secret."""


class OpenBaoUserPass(Fragment, frozen=True, kw_only=True):
    """User name and password."""

    username: str
    """The user."""
    path: str = "userpass"
    """Mount path; absent means userpass."""
    secret_ref: SecretKeySelector | None = None
    """The password."""


class OpenBaoAuth(Fragment, frozen=True, kw_only=True):
    """How to log in."""

    RULES: ClassVar = (exactly_one_of("appRole", "tokenSecretRef", "userPass"),)

    app_role: OpenBaoAppRole | None = None
    """AppRole."""
    token_secret_ref: SecretKeySelector | None = None
    """A token."""
    user_pass: OpenBaoUserPass | None = None
    """User name and password."""
    namespace: str = ""
    """OpenBao namespace of the login."""


class OpenBaoProvider(Fragment, frozen=True, kw_only=True):
    """Key/value engines of OpenBao."""

    RULES: ClassVar = (at_most_one("caBundle", "caProvider"),)

    server: str
    """URL of the server."""
    auth: OpenBaoAuth | None = None
    """How to log in."""
    path: str = "kv"
    """Mount path of the engine; absent means kv."""
    version: Annotated[str, one_of("v1", "v2")] = "v2"
    """Version of the engine; absent means v2."""
    namespace: str = ""
    """OpenBao namespace."""
    ca_bundle: Base64 = ""
    """CA certificates, PEM in base64."""
    ca_provider: CaProvider | None = None
    """CA certificates kept in a Secret or ConfigMap."""
