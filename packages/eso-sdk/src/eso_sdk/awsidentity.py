"""AWS credentials from STS, and those of the provider's own pod. They live in a session, never in the environment.

| environment of the provider | credentials |
|---|---|
| `AWS_WEB_IDENTITY_TOKEN_FILE`, `AWS_ROLE_ARN` | the role, assumed with the token file (IRSA) |
| `AWS_CONTAINER_CREDENTIALS_FULL_URI` | EKS Pod Identity |
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode
from xml.etree import ElementTree as ET

from yarl import URL

from eso_api.values import SecretBytes
from eso_sdk.errors import backend_error, credentials_not_found, rejected
from eso_sdk.http import HttpRequest, call_cloud, status_error
from eso_sdk.logins import digest
from kubebase.clock import Clock

# --- Sign AWS requests (Signature Version 4). Pure: the moment is a parameter ----------------------------------------
#
# The signature covers method, path, query, every header given and the body. Two kinds of requests are signed with it:
# the GetCallerIdentity that a login carries, and calls to STS itself.


_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class AwsCredentials:
    """Keys of one AWS identity. Only temporary credentials have a session token."""

    access_key_id: str = field(repr=False)
    secret_access_key: SecretBytes
    session_token: SecretBytes | None = None


@dataclass(frozen=True, slots=True)
class Scope:
    """The scope of a signature, besides its day."""

    region: str
    service: str


@dataclass(frozen=True, slots=True)
class SignableRequest:
    """The parts of a request that a signature covers."""

    method: str
    url: URL = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


def signed_headers(
    request: SignableRequest, credentials: AwsCredentials, scope: Scope, moment: datetime
) -> dict[str, str]:
    """Return the request's headers with Host, X-Amz-Date, X-Amz-Security-Token and Authorization added."""
    stamp = moment.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
    headers = {**request.headers, "Host": _host(request.url), "X-Amz-Date": stamp}
    if credentials.session_token is not None:
        headers["X-Amz-Security-Token"] = credentials.session_token.reveal().decode()
    canonical = {name.lower(): " ".join(value.split()) for name, value in headers.items()}
    names = ";".join(sorted(canonical))
    hashed = _hash(
        "\n".join(
            (
                request.method,
                quote(request.url.path or "/", safe="/-_.~"),
                _query(request.url),
                *(f"{name}:{canonical[name]}" for name in sorted(canonical)),
                "",
                names,
                hashlib.sha256(request.body).hexdigest(),
            )
        )
    )
    where = f"{stamp[:8]}/{scope.region}/{scope.service}/aws4_request"
    key = _signing_key(credentials, stamp[:8], scope)
    signature = hmac.new(key, f"{_ALGORITHM}\n{stamp}\n{where}\n{hashed}".encode(), hashlib.sha256).hexdigest()
    headers["Authorization"] = (
        f"{_ALGORITHM} Credential={credentials.access_key_id}/{where}, SignedHeaders={names}, Signature={signature}"
    )
    return headers


def _signing_key(credentials: AwsCredentials, day: str, scope: Scope) -> bytes:
    key = b"AWS4" + credentials.secret_access_key.reveal()
    for part in (day, scope.region, scope.service, "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key


def _host(url: URL) -> str:
    usual = url.port == _DEFAULT_PORTS.get(url.scheme)
    return f"{url.host}" if usual else f"{url.host}:{url.port}"


def _query(url: URL) -> str:
    pairs = sorted((quote(name, safe="-_.~"), quote(value, safe="-_.~")) for name, value in url.query.items())
    return "&".join(f"{name}={value}" for name, value in pairs)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


# --- AWS credentials from STS, and those of the provider's own pod ---------------------------------------------------


_VERSION: Final = "2011-06-15"
_FORM: Final = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}

CALLER_IDENTITY: Final = b"Action=GetCallerIdentity&Version=2011-06-15"
"""The body of the request that proves an AWS identity to a server which sends it to AWS itself."""


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
    session_name: str
    """The name of sessions of assumed roles, as AWS logs it."""
    field: str
    """The field of the configuration that leads here, for messages."""

    async def assume_role(self, credentials: AwsCredentials, role: str, external_id: str) -> AwsCredentials:
        parameters = {"RoleArn": role, "RoleSessionName": self.session_name}
        if external_id:
            parameters["ExternalId"] = external_id
        body = _body("AssumeRole", parameters)
        headers = signed_headers(
            SignableRequest("POST", self.url, _FORM, body), credentials, self.scope, self.clock.now()
        )
        return await self._credentials(headers, body, "AssumeRole", role)

    async def assume_role_with_token(self, role: str, token: str) -> AwsCredentials:
        action = "AssumeRoleWithWebIdentity"
        body = _body(action, {"RoleArn": role, "RoleSessionName": self.session_name, "WebIdentityToken": token})
        return await self._credentials(_FORM, body, action, role)

    async def _credentials(self, headers: Mapping[str, str], body: bytes, action: str, role: str) -> AwsCredentials:
        answer = await call_cloud(HttpRequest("POST", self.url, headers, body), "AWS STS", self.clock)
        if answer.status in (400, 401, 403):
            raise rejected(
                f'AWS STS refuses {action} of role "{role}" ({_code(answer.body)});'
                f" check the role, its trust policy and the credentials of {self.field}",
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


def process_source(environment: Mapping[str, str], clock: Clock) -> CredentialSource | None:
    """Return the source of the provider's own credentials; None if it has no AWS identity."""
    if environment.get("AWS_WEB_IDENTITY_TOKEN_FILE") and environment.get("AWS_ROLE_ARN"):
        return _of_token_file(Path(environment["AWS_WEB_IDENTITY_TOKEN_FILE"]), environment["AWS_ROLE_ARN"])
    if environment.get("AWS_CONTAINER_CREDENTIALS_FULL_URI"):
        return _of_pod_identity(environment, clock)
    return None


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
        answer = await call_cloud(HttpRequest("GET", url, headers), subject, clock)
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
    # STS declares no entities, and a response is bounded: nothing to expand.
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
