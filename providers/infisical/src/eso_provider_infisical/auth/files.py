"""Forms that read a file of the provider's container: kubernetes, gcpIam.

The author of a store chooses the path and the server that receives the content or a signature made with it. Therefore
only files that the administrator lists may be read, and only hosts that the administrator lists receive anything.
"""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any, Final

import jwt

from eso_api.stores.infisical import InfisicalGcpIamAuth, InfisicalKubernetesAuth
from eso_provider_infisical.auth.form import Form, Opened, prove_own_identity
from eso_sdk.errors import invalid_config
from eso_sdk.loginbodies import Body, optional_text, text
from eso_sdk.processidentity import POD_TOKEN
from kubebase.clock import Clock

LIFETIME: Final = timedelta(minutes=10)


def kubernetes(config: InfisicalKubernetesAuth, store: Opened) -> Form:
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


def gcp_iam(config: InfisicalGcpIamAuth, store: Opened) -> Form:
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


async def _content(store: Opened, path: str, pointer: str, own: str = "") -> str:
    content = await asyncio.to_thread(store.process_identity.read_file, path, field=pointer, own=own)
    try:
        return content.reveal().decode()
    except UnicodeDecodeError:
        raise invalid_config(pointer, "names a file that is not UTF-8 text") from None
