"""The method iam: a signed GetCallerIdentity request proves an AWS identity to Vault, which sends it to AWS itself.

    credentials -> role assumed, if one is named -> signed request in the login body

| configured | credentials |
|---|---|
| `jwt.serviceAccountRef` | role of the account's annotation, assumed with its token |
| `secretRef` | keys in Secrets |
| neither | the provider's own: a web identity token file, or Pod Identity |

Credentials live in the session, never in the environment of the process.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from typing import Final

from eso_api.references import ServiceAccountSelector
from eso_api.stores.vault import VaultIam
from eso_api.values import SecretBytes
from eso_provider_vault.auth.method import (
    Body,
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
from eso_sdk.awsidentity import CALLER_IDENTITY, CredentialSource, Sts, process_source, sts_url
from eso_sdk.errors import credentials_not_found, invalid_config
from eso_sdk.sigv4 import AwsCredentials, Scope, SignableRequest, signed_headers
from kubebase.clock import Clock

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
