"""AWS credentials for the method iam. They live in the session, never in the environment of the process.

| configured | credentials |
|---|---|
| `jwt.serviceAccountRef` | role of the account's annotation, assumed with its token |
| `secretRef` | keys kept in Secrets |
| neither | the provider's own: a web identity token file, or Pod Identity |
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlencode
from xml.etree import ElementTree as ET

from yarl import URL

from eso_api.references import ServiceAccountSelector
from eso_api.stores.vault import VaultIam
from eso_api.values import SecretBytes
from eso_provider_vault.auth.method import Secrets, account_proof, digest, line, needed
from eso_provider_vault.auth.outside import ask_cloud
from eso_provider_vault.auth.sigv4 import AwsCredentials, Scope, SignableRequest, signed_headers
from eso_sdk.errors import backend_error, credentials_not_found, invalid_config, rejected
from eso_sdk.http import HttpRequest, status_error
from kubebase.clock import Clock

SESSION_NAME: Final = "external-secrets-provider-vault"
ROLE_ANNOTATION: Final = "eks.amazonaws.com/role-arn"

_VERSION: Final = "2011-06-15"
_FORM: Final = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}


def sts_url(region: str, environment: Mapping[str, str]) -> URL:
    """Return the address of STS; `AWS_STS_ENDPOINT` of the provider's environment overrides it."""
    if override := environment.get("AWS_STS_ENDPOINT", ""):
        return URL(override if override.endswith("/") else f"{override}/")
    if region == "us-east-1":
        return URL("https://sts.amazonaws.com/")
    suffix = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    return URL(f"https://sts.{region}.{suffix}/")


@dataclass(frozen=True, slots=True)
class Sts:
    """The calls of STS that give credentials."""

    url: URL
    scope: Scope
    clock: Clock

    async def assume_role(self, credentials: AwsCredentials, role: str, external_id: str) -> AwsCredentials:
        parameters = {"RoleArn": role, "RoleSessionName": SESSION_NAME}
        if external_id:
            parameters["ExternalId"] = external_id
        body = _body("AssumeRole", parameters)
        headers = signed_headers(
            SignableRequest("POST", self.url, _FORM, body), credentials, self.scope, self.clock.now()
        )
        return await self._credentials(headers, body, "AssumeRole", role)

    async def assume_role_with_token(self, role: str, token: str) -> AwsCredentials:
        action = "AssumeRoleWithWebIdentity"
        body = _body(action, {"RoleArn": role, "RoleSessionName": SESSION_NAME, "WebIdentityToken": token})
        return await self._credentials(_FORM, body, action, role)

    async def _credentials(self, headers: Mapping[str, str], body: bytes, action: str, role: str) -> AwsCredentials:
        answer = await ask_cloud(HttpRequest("POST", self.url, headers, body), "AWS STS", self.clock)
        if answer.status in (400, 401, 403):
            raise rejected(
                f'AWS STS refuses {action} of role "{role}" ({_code(answer.body)});'
                " check the role, its trust policy and the credentials of /auth/iam",
                backend_code=_code(answer.body),
            )
        if problem := status_error(answer, "AWS STS", self.clock):
            raise problem
        found = {element.tag.rpartition("}")[2]: element.text or "" for element in _elements(answer.body)}
        return _keys(found.get("AccessKeyId"), found.get("SecretAccessKey"), found.get("SessionToken"), "AWS STS")


@dataclass(frozen=True, slots=True)
class CredentialSource:
    """The source of the first credentials, and their identity."""

    who: tuple[str, ...]
    proof: bytes = field(repr=False)
    obtain: Callable[[Sts], Awaitable[AwsCredentials]] = field(repr=False)


def credential_source(config: VaultIam, secrets: Secrets, environment: Mapping[str, str]) -> CredentialSource:
    """Pick the source: the account, then the keys, then the provider's own identity."""
    if config.jwt is not None and config.jwt.service_account_ref is not None:
        return _of_account(secrets, config.jwt.service_account_ref)
    if config.secret_ref is not None:
        return _of_keys(config, secrets)
    if environment.get("AWS_WEB_IDENTITY_TOKEN_FILE") and environment.get("AWS_ROLE_ARN"):
        return _of_token_file(Path(environment["AWS_WEB_IDENTITY_TOKEN_FILE"]), environment["AWS_ROLE_ARN"])
    if environment.get("AWS_CONTAINER_CREDENTIALS_FULL_URI"):
        return _of_pod_identity(environment, secrets.clock)
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


def _of_token_file(path: Path, role: str) -> CredentialSource:
    async def obtain(sts: Sts) -> AwsCredentials:
        return await sts.assume_role_with_token(role, await asyncio.to_thread(_file, path))

    return CredentialSource(("process", role), digest("web identity", role), obtain)


def _of_pod_identity(environment: Mapping[str, str], clock: Clock) -> CredentialSource:
    url = URL(environment["AWS_CONTAINER_CREDENTIALS_FULL_URI"])
    path = environment.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "")

    async def obtain(_sts: Sts) -> AwsCredentials:
        token = await asyncio.to_thread(_file, Path(path)) if path else ""
        subject = "the Pod Identity agent"
        headers = {"Authorization": token} if token else {}
        answer = await ask_cloud(HttpRequest("GET", url, headers), subject, clock)
        if problem := status_error(answer, subject, clock):
            raise problem
        try:
            found = json.loads(answer.body)
            return _keys(found.get("AccessKeyId"), found.get("SecretAccessKey"), found.get("Token"), subject)
        except (ValueError, AttributeError):
            raise backend_error(f"the answer of {subject} is not JSON with credentials") from None

    return CredentialSource(("process", "pod identity"), digest("pod identity"), obtain)


def _keys(key_id: str | None, key: str | None, session: str | None, subject: str) -> AwsCredentials:
    if not key_id or not key:
        raise backend_error(f"the answer of {subject} holds no credentials")
    return AwsCredentials(key_id, SecretBytes(key.encode()), SecretBytes(session.encode()) if session else None)


def _body(action: str, parameters: Mapping[str, str]) -> bytes:
    return urlencode({"Action": action, "Version": _VERSION, **parameters}).encode()


def _file(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, ValueError):
        raise credentials_not_found("the provider's own AWS token file cannot be read; check its pod") from None


def _elements(body: bytes) -> list[ET.Element]:
    # STS declares no entities, and an answer is bounded: nothing to expand.
    if b"<!" in body:
        return []
    try:
        return list(ET.fromstring(body).iter())  # noqa: S314 - declarations are refused above
    except ET.ParseError:
        return []


def _code(body: bytes) -> str:
    """Return the error code of STS, such as AccessDenied. It is a fixed word; the message beside it may quote."""
    codes = (element.text or "" for element in _elements(body) if element.tag.rpartition("}")[2] == "Code")
    code = next(codes, "")
    return code if code.isalnum() and len(code) <= 64 else "no error code"
