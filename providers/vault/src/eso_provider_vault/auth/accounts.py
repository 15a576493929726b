"""Methods that log in with a JWT of a ServiceAccount or of another issuer: kubernetes, jwt."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from eso_api.references import ServiceAccountSelector
from eso_api.stores.vault import VaultJwt, VaultKubernetes
from eso_api.values import SecretBytes
from eso_provider_vault.auth.method import (
    Body,
    Method,
    Secrets,
    account_proof,
    digest,
    fixed,
    line,
    mount_of,
    named,
    needed,
    own_identity,
)
from eso_sdk.errors import credentials_not_found, invalid_config

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


def jwt(config: VaultJwt, secrets: Secrets) -> Method:
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
