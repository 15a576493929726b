"""The method gcp: a JWT signed by a Google service account, or the identity token of the machine.

| configured | JWT |
|---|---|
| `secretRef` | signed here with the service account's key, audience `vault/ROLE` |
| `workloadIdentity` | the Kubernetes token is exchanged at Google, which signs the JWT for the bound service account |
| neither | identity token of the metadata server, audience `SERVER/vault/ROLE` |
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import jwt
from yarl import URL

from eso_api.stores.gcp import GcpWorkloadIdentity
from eso_api.stores.vault import VaultGcp
from eso_api.values import SecretBytes
from eso_provider_vault.auth.method import (
    Body,
    MakeBody,
    Method,
    Secrets,
    account_proof,
    digest,
    line,
    mount_of,
    named,
    needed,
    own_identity,
)
from eso_sdk.errors import backend_error, credentials_not_found, invalid_config, rejected
from eso_sdk.http import HttpRequest, call_cloud, status_error
from eso_wire.values import Token
from kubebase.clock import Clock

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
