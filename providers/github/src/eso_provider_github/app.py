"""A GitHub App: its private key signs short-lived JWTs, for which GitHub issues tokens of an installation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import jwt
import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from yarl import URL

from eso_api.values import SecretBytes
from eso_sdk.errors import backend_error, invalid_config, rejected
from eso_sdk.http import MAX_RETRY_AFTER, HttpResponse, retry_after
from eso_sdk.logins import digest
from eso_sdk.rest import Rest, RestRequest, RestSettings, segments
from eso_wire.errors import ErrorReason, ProviderError
from kubebase.clock import Clock

# --- Requests to one GitHub: the address of its API, its version, and how it tells its limits ------------------------


API: Final = "https://api.github.com"

_WEB: Final = ("", "https://github.com")
_ENTERPRISE: Final = "/api/v3"
_HEADERS: Final = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
_PAUSE: Final = 60.0
"""Seconds to wait after a limit without a time, as GitHub asks for."""


def store_base(url: str) -> URL:
    """Return the address of the API for `url` of a store, which names the web site or the API.

    An enterprise server has its API below `/api/v3`; a host `api.…` or `….api.…` is an API already.
    """
    text = url.rstrip("/")
    if text in _WEB:
        return URL(API)
    base = _parsed(text)
    host = base.host or ""
    if text.endswith(_ENTERPRISE) or host.startswith("api.") or ".api." in host:
        return base
    return _parsed(text + _ENTERPRISE)


def generator_base(url: str) -> URL:
    """Return the address of the API for `url` of a generator, which names the API itself."""
    return _parsed(url.rstrip("/") or API)


def settings_of(base: URL) -> RestSettings:
    return RestSettings(f"GitHub {base.origin()}", base, headers=_HEADERS, limits=limited)


def limited(response: HttpResponse, now: datetime) -> float | None:
    """Return the seconds to wait if a limit is reached: GitHub answers 403 or 429, with one of two headers or none."""
    if response.status not in (403, 429):
        return None
    if seconds := retry_after(response.headers, now):
        return seconds
    reset = response.headers.get("X-RateLimit-Reset", "")
    if response.headers.get("X-RateLimit-Remaining") == "0" and reset.isdecimal():
        until = datetime.fromtimestamp(min(int(reset), 2**33), UTC)
        return min(max((until - now).total_seconds(), 1.0), MAX_RETRY_AFTER)
    return _PAUSE if response.status == 429 or b"secondary rate limit" in response.body else None


def _parsed(text: str) -> URL:
    try:
        base = URL(text)
    except ValueError:
        base = URL()
    if base.scheme not in ("http", "https") or not base.host:
        raise invalid_config("/url", "must be a URL such as https://github.example.com")
    if base.user is not None or base.password is not None:
        raise invalid_config("/url", "must not contain a user or a password")
    return base


# --- A GitHub App ----------------------------------------------------------------------------------------------------


BACKDATED: Final = timedelta(seconds=10)
"""The clock of GitHub may be behind ours."""
LIFE: Final = timedelta(seconds=300)

_REFUSED: Final = (404, 422)


class App:
    """An App with its private key: the authorization of requests as the App itself."""

    logs_in = False

    def __init__(self, app_id: str, pem: SecretBytes, clock: Clock, *, field: str) -> None:
        """Read the key. `field` names it in the configuration."""
        self.id = app_id
        self._clock = clock
        self._key = _key(pem, field)
        self.secret = SecretBytes(self._key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()))
        """The key without the freedoms of PEM, to derive other keys from."""
        self.proof = digest("github app", app_id, self.secret.reveal())

    def __repr__(self) -> str:
        return "<App>"

    async def headers(self) -> Mapping[str, str]:
        now = self._clock.now()
        claims = {"iss": self.id, "iat": now - BACKDATED, "exp": now + LIFE}
        return {"Authorization": f"Bearer {jwt.encode(claims, self._key, algorithm='RS256')}"}

    async def replace(self, rejected: Mapping[str, str]) -> bool:
        """Sign no second JWT: GitHub would reject it too."""
        del rejected
        return False


class Issued(msgspec.Struct, frozen=True, gc=False):
    """A token of an installation, as GitHub issues it."""

    token: str
    expires_at: datetime

    def __repr__(self) -> str:
        return "<installation token>"

    @property
    def expiry(self) -> datetime:
        return self.expires_at if self.expires_at.tzinfo else self.expires_at.replace(tzinfo=UTC)


async def issue(rest: Rest, app: App, installation: str, limits: Mapping[str, Any] | None = None) -> Issued:
    """Obtain a token of an installation; `limits` are the repositories and permissions to which it is limited."""
    path = segments("app", "installations", installation, "access_tokens")
    request = RestRequest("POST", path, "CreateInstallationToken", allowed=_REFUSED)
    try:
        response = await rest.send(replace(request, json=limits) if limits else request)
    except ProviderError as failed:
        raise _explained(failed, app, installation) from None
    if response.status in _REFUSED:
        raise _refusal(response.status, app, installation)
    found: Issued = response.read(Issued)
    return found


def _explained(failed: ProviderError, app: App, installation: str) -> ProviderError:
    match failed.reason:
        case ErrorReason.CREDENTIALS_REJECTED:
            error = rejected(
                f'GitHub does not accept the private key of App "{app.id}"; check the id of the App and its key, and'
                " the clock of this machine",
                backend_code=failed.backend_code,
            )
            error.retry_after = failed.retry_after
            return error
        case ErrorReason.PERMISSION_DENIED:
            message = f'GitHub gives App "{app.id}" no token for installation "{installation}"; it may be suspended'
            return ProviderError(ErrorReason.PERMISSION_DENIED, message, backend_code=failed.backend_code)
        case _:
            return failed


def _refusal(status: int, app: App, installation: str) -> ProviderError:
    if status == 404:
        return ProviderError(
            ErrorReason.PERMISSION_DENIED,
            f'App "{app.id}" has no installation "{installation}" at GitHub; check the id of the installation',
            backend_code="404",
        )
    return backend_error(
        f'GitHub refuses the token that is asked of App "{app.id}"; ask only for repositories and permissions that'
        f' installation "{installation}" has',
        backend_code=str(status),
    )


def _key(pem: SecretBytes, field: str) -> RSAPrivateKey:
    try:
        key = load_pem_private_key(pem.reveal(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, RSAPrivateKey):
        raise invalid_config(field, "the Secret holds no RSA private key in PEM; download one from the page of the App")
    return key
