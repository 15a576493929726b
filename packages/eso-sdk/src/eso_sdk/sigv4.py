"""Sign AWS requests (Signature Version 4). Pure: the moment is a parameter.

The signature covers method, path, query, every header given and the body. Two kinds of requests are signed with it: the
GetCallerIdentity that a login carries, and calls to STS itself.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote

from yarl import URL

from eso_api.values import SecretBytes

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
