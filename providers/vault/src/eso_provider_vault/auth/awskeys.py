"""AWS credentials for the method iam. They live in the session, never in the environment of the process.

| configured | credentials |
|---|---|
| `jwt.serviceAccountRef` | role of the account's annotation, assumed with its token |
| `secretRef` | keys kept in Secrets |
| neither | the provider's own: a web identity token file, or Pod Identity |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from eso_api.references import ServiceAccountSelector
from eso_api.stores.vault import VaultIam
from eso_api.values import SecretBytes
from eso_provider_vault.auth.method import Secrets, account_proof, digest, line, needed, own_identity
from eso_provider_vault.auth.sigv4 import AwsCredentials
from eso_sdk.awsidentity import CredentialSource, Sts, process_source, sts_url
from eso_sdk.errors import credentials_not_found, invalid_config

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
    place = "/auth/iam/jwt/serviceAccountRef"
    token = secrets.token(account)
    role = token.annotations.get(ROLE_ANNOTATION, "")
    if not role:
        raise invalid_config(place, f"names a ServiceAccount without the annotation {ROLE_ANNOTATION}")

    async def obtain(sts: Sts) -> AwsCredentials:
        return await sts.assume_role_with_token(role, line(secrets.token(account).token, place))

    return CredentialSource((role,), account_proof(token), obtain)


def _of_keys(config: VaultIam, secrets: Secrets) -> CredentialSource:
    place, refs = "/auth/iam/secretRef", config.secret_ref
    if refs is None:
        raise invalid_config(place, "is needed")
    key_id = line(
        secrets.secret(needed(refs.access_key_id_secret_ref, f"{place}/accessKeyIDSecretRef", "the access key id")),
        place,
    )
    key = secrets.secret(
        needed(refs.secret_access_key_secret_ref, f"{place}/secretAccessKeySecretRef", "the secret access key")
    )
    credentials = AwsCredentials(key_id, SecretBytes(line(key, place).encode()))
    if refs.session_token_secret_ref is not None:
        session = line(secrets.secret(refs.session_token_secret_ref), place)
        credentials = AwsCredentials(key_id, credentials.secret_access_key, SecretBytes(session.encode()))

    async def obtain(_sts: Sts) -> AwsCredentials:
        return credentials

    proof = digest(key_id, credentials.secret_access_key, credentials.session_token or b"")
    return CredentialSource((key_id,), proof, obtain)
