"""Forms that read a file of the provider's container: kubernetes, gcpIam.

The author of a store chooses the path and the server that receives the content or a signature made with it. Therefore
only files that the administrator of the provider lists may be read, besides the token of the provider's own pod.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import jwt

from eso_api.stores.infisical import InfisicalGcpIamAuth, InfisicalKubernetesAuth
from eso_provider_infisical.auth.form import Form, Opened
from eso_sdk.errors import credentials_not_found, invalid_config
from eso_sdk.loginbodies import Body, optional_text, text
from kubebase.clock import Clock

FILES: Final = "ESO_PROVIDER_INFISICAL_FILES"
"""Environment variable with the files that stores may name, separated by colons."""
POD_TOKEN: Final = "/var/run/secrets/kubernetes.io/serviceaccount/token"  # noqa: S105 - a path
LIFETIME: Final = timedelta(minutes=10)


def kubernetes(config: InfisicalKubernetesAuth, store: Opened, environment: Mapping[str, str] = os.environ) -> Form:
    place = "/auth/kubernetesAuthCredentials"
    identity = text(store, config.identity_id, f"{place}/identityId")
    where = f"{place}/serviceAccountTokenPath"
    path = optional_text(store, config.service_account_token_path, where) or POD_TOKEN
    check_file(path, where, environment)

    async def body() -> Body:
        return {"identityId": identity, "jwt": (await asyncio.to_thread(_content, path, where)).strip()}

    return Form(
        name="kubernetesAuthCredentials",
        method="kubernetes-auth",
        call="MachineIdentityLoginViaKubernetesAuth",
        proof=(identity, path),
        body=body,
        advice="check the identity id, and that its Kubernetes auth allows the ServiceAccount of the provider's pod",
    )


def gcp_iam(config: InfisicalGcpIamAuth, store: Opened, environment: Mapping[str, str] = os.environ) -> Form:
    place = "/auth/gcpIamAuthCredentials"
    identity = text(store, config.identity_id, f"{place}/identityId")
    where = f"{place}/serviceAccountKeyFilePath"
    path = text(store, config.service_account_key_file_path, where)
    check_file(path, where, environment)

    async def body() -> Body:
        key = await asyncio.to_thread(_content, path, where)
        return {"identityId": identity, "jwt": signed_jwt(key, identity, store.clock, where)}

    return Form(
        name="gcpIamAuthCredentials",
        method="gcp-auth",
        call="MachineIdentityLoginViaGcpServiceAccountAuth",
        proof=(identity, path),
        body=body,
        advice="check the identity id, and that its GCP auth is of type iam and allows the service account of the key",
    )


def check_file(path: str, place: str, environment: Mapping[str, str]) -> None:
    """Refuse files that neither are the token of the pod nor listed by the administrator."""
    if path != POD_TOKEN and path not in environment.get(FILES, "").split(":"):
        raise invalid_config(
            place,
            "names a file that stores may not use; let the administrator of the provider list it in the environment"
            f" variable {FILES}",
        )


def signed_jwt(key: str, identity: str, clock: Clock, place: str) -> str:
    """Sign a login JWT with the key of a Google service account, as its IAM API would."""
    try:
        account: dict[str, Any] = json.loads(key)
        now = clock.now()
        claims = {"sub": account["client_email"], "aud": identity, "iat": now, "exp": now + LIFETIME}
        return jwt.encode(claims, account["private_key"], "RS256", headers={"kid": account["private_key_id"]})
    except (ValueError, KeyError, TypeError, jwt.PyJWTError):
        raise invalid_config(place, "does not name the JSON key of a Google service account") from None


def _content(path: str, place: str) -> str:
    try:
        return Path(path).read_text()
    except (OSError, ValueError):
        raise credentials_not_found(
            f"the file of {place} cannot be read in the provider's container; check that it is mounted there"
        ) from None
