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
from datetime import timedelta
from typing import Any, Final

import jwt
from yarl import URL

from eso_api.stores.vault import VaultGcp
from eso_api.values import SecretBytes
from eso_provider_vault.auth.googleidentity import Google, federated_jwt
from eso_provider_vault.auth.method import (
    Body,
    MakeBody,
    Method,
    Secrets,
    account_proof,
    digest,
    mount_of,
    named,
    needed,
    own_identity,
)
from eso_provider_vault.auth.outside import ask_cloud
from eso_sdk.errors import credentials_not_found, invalid_config
from eso_sdk.http import HttpRequest, status_error
from kubebase.clock import Clock

LIFETIME: Final = timedelta(minutes=10)


def gcp(config: VaultGcp, secrets: Secrets, *, server: str, environment: Mapping[str, str] = os.environ) -> Method:
    place = "/auth/gcp"
    role = named(config.role, f"{place}/role", "the role of the auth method")
    mount = mount_of(config.path, "gcp", f"{place}/path")
    clock = secrets.clock
    if config.secret_ref is not None:
        where = f"{place}/secretRef/secretAccessKeySecretRef"
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

    own_identity(secrets, "Google identity", server, place, "set secretRef or workloadIdentity")

    async def ask_machine() -> Body:
        return {"role": role, "jwt": await _machine_token(f"{server}/vault/{role}", environment, clock)}

    return _method(role, mount, ask_machine, digest("machine"))


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


def signed_jwt(key: SecretBytes, role: str, clock: Clock, place: str) -> str:
    """Sign a login JWT with a service account's key."""
    try:
        account: dict[str, Any] = json.loads(key.reveal())
        email, private, key_id = account["client_email"], account["private_key"], account["private_key_id"]
        now = clock.now()
        claims = {"sub": email, "aud": f"vault/{role}", "iat": now, "exp": now + LIFETIME}
        return jwt.encode(claims, private, algorithm="RS256", headers={"kid": key_id})
    except (ValueError, KeyError, TypeError, jwt.PyJWTError):
        raise invalid_config(place, "does not name the JSON key of a Google service account") from None


async def _machine_token(audience: str, environment: Mapping[str, str], clock: Clock) -> str:
    host = environment.get("GCE_METADATA_HOST", "") or "metadata.google.internal"
    path = "/computeMetadata/v1/instance/service-accounts/default/identity"
    url = URL(f"http://{host}{path}").with_query(audience=audience, format="full")
    subject = "Google's metadata server"
    answer = await ask_cloud(HttpRequest("GET", url, {"Metadata-Flavor": "Google"}), subject, clock)
    if answer.status == 404:
        raise credentials_not_found(
            "/auth/gcp names neither secretRef nor workloadIdentity, and the provider's machine has no service account"
        )
    if problem := status_error(answer, subject, clock):
        raise problem
    return answer.body.decode("ascii", "replace").strip()
