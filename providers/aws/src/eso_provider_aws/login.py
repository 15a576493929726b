"""The identity of a configuration: the source of the first keys, and the roles to assume.

| `auth` | first keys |
|---|---|
| `jwt` | a token of the service account, for the role that its annotation names |
| `secretRef` | keys of a Secret |
| neither | those of the provider process, for cluster-scoped objects unless the administrator allows more |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from eso_api.references import SecretKeySelector
from eso_api.stores.aws import AwsAuth, AwsConnection, AwsJwt, AwsSecretRef
from eso_api.values import SecretBytes
from eso_provider_aws.identity import AccountToken, Identity, Role
from eso_provider_aws.runtime import Runtime
from eso_sdk.backend import Backend
from eso_sdk.errors import credentials_not_found, invalid_config

ROLE_ANNOTATION: Final = "eks.amazonaws.com/role-arn"


@dataclass(slots=True)
class Login:
    """An identity, and the objects that must live as long as its session."""

    identity: Identity
    token: AccountToken | None = None


def log_in(
    backend: Backend[Any],
    runtime: Runtime,
    region: str,
    auth: AwsAuth | None,
    roles: Sequence[Role],
    *,
    keys_first: bool = False,
) -> Login:
    """Return the identity of a configuration, without a call to AWS."""
    jwt = auth.jwt if auth else None
    keys = auth.secret_ref if auth else None
    if jwt is not None and not (keys_first and keys is not None):
        login = _by_token(backend, runtime, region, jwt)
    elif keys is not None:
        login = Login(_by_keys(backend, runtime, keys))
    else:
        backend.process_identity.use(
            "AWS identity", field="/auth", instead="set auth.secretRef or auth.jwt.serviceAccountRef"
        )
        login = Login(runtime.identities.own)
    for role in roles:
        login.identity = runtime.identities.assumed(login.identity, role, region)
    return login


def roles_of(config: AwsConnection, tags: Sequence[tuple[str, str]]) -> list[Role]:
    """Return the roles that a store assumes, in order. Only the last one gets the external id and tags."""
    chain = [Role(arn) for arn in config.additional_roles]
    if config.role:
        chain.append(Role(config.role, config.external_id, tuple(tags), tuple(config.transitive_tag_keys)))
    return chain


def tags_of(config: AwsConnection, *, namespace: str, kind: str, name: str) -> list[tuple[str, str]]:
    """Return the session tags for `role`: those of the spec, or those of the policy instead."""
    if config.session_tags_policy not in ("Simple", "Custom"):
        return [(tag.key, tag.value) for tag in config.session_tags]
    tags = [("esoNamespace", namespace), ("esoStoreName", name), ("esoStoreKind", kind)]
    if config.session_tags_policy == "Custom":
        tags += [(key, value) for key, value in sorted(config.custom_session_tags.items()) if key and value]
    return tags


def _by_token(backend: Backend[Any], runtime: Runtime, region: str, jwt: AwsJwt) -> Login:
    reference = jwt.service_account_ref
    if reference is None:
        raise invalid_config("/auth/jwt/serviceAccountRef", "name the service account")
    token = backend.token(reference)
    if not token.name:
        raise credentials_not_found(
            f'the operator did not say which role service account "{reference.name}" may assume; upgrade the operator'
        )
    role = token.annotations.get(ROLE_ANNOTATION, "")
    if not role:
        raise credentials_not_found(
            f'service account "{token.namespace}/{token.name}" has no annotation {ROLE_ANNOTATION}; set it to the ARN'
            " of the role to assume"
        )
    source = AccountToken(lambda: backend.token(reference))
    account = (token.namespace, token.name, token.uid, token.audiences)
    return Login(runtime.identities.web(account, role, region, source), source)


def _by_keys(backend: Backend[Any], runtime: Runtime, keys: AwsSecretRef) -> Identity:
    key_id = _key(backend, keys.access_key_id_secret_ref, "/auth/secretRef/accessKeyIDSecretRef")
    secret = _key(backend, keys.secret_access_key_secret_ref, "/auth/secretRef/secretAccessKeySecretRef")
    token = keys.session_token_secret_ref
    session = _key(backend, token, "/auth/secretRef/sessionTokenSecretRef") if token is not None else None
    return runtime.identities.written(key_id.reveal().decode(), secret, session)


def _key(backend: Backend[Any], reference: SecretKeySelector | None, field: str) -> SecretBytes:
    if reference is None:
        raise invalid_config(field, "name the key of a Secret")
    found = backend.secret(reference).reveal().strip()  # editors and shells often append a newline
    if not found or not found.isascii():
        problem = "is empty" if not found else "has characters that no key of AWS has"
        raise credentials_not_found(f'{field}: key "{reference.key}" of Secret "{reference.name}" {problem}')
    return SecretBytes(found)
