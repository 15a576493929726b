"""Generators of logins for container registries: Quay and Cloudsmith."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import jwt
import msgspec
from yarl import URL

from eso_api.generators.tokens import CLOUDSMITH_ACCESS_TOKEN as V1_CLOUDSMITH_ACCESS_TOKEN
from eso_api.generators.tokens import QUAY_ACCESS_TOKEN as V1_QUAY_ACCESS_TOKEN
from eso_api.generators.tokens import CloudsmithAccessTokenSpec, QuayAccessTokenSpec
from eso_api.values import SecretBytes
from eso_provider_tokens.kinds import CLOUDSMITH, QUAY
from eso_sdk.errors import backend_error, invalid_config
from eso_sdk.logins import basic
from eso_sdk.provider import Generator, generator_kind
from eso_sdk.rest import Rest, RestRequest, RestSettings, segments
from eso_wire.values import Generated, GenerateRequest, ValueMetadata

# --- Registry logins that are exchanged for the token of a service account, and their expiry -------------------------

LATEST: Final = datetime.max.replace(tzinfo=UTC).timestamp()


def registry_login(user: str, token: str, subject: str, more: Mapping[str, str] | None = None) -> Generated:
    """Return `auth` (base64 of USER:TOKEN), `expiry` (seconds since 1970) and more values; expires with the token."""
    expiry = _expiry(token, subject)
    values = {**(more or {}), "auth": base64.b64encode(f"{user}:{token}".encode()).decode(), "expiry": str(expiry)}
    data = {name: SecretBytes(text.encode()) for name, text in values.items()}
    return Generated(data, metadata=ValueMetadata(expires_at=datetime.fromtimestamp(expiry, UTC)))


def _expiry(token: str, subject: str) -> int:
    """Return the claim `exp` of a token. Only its issuer can verify the signature; we only pass the token on."""
    try:
        claims = jwt.decode(token, options={"verify_signature": False})
        expiry = claims.get("exp")
    except jwt.InvalidTokenError:
        expiry = None
    if isinstance(expiry, bool) or not isinstance(expiry, int | float) or not 0 < expiry < LATEST:
        raise backend_error(f"{subject} sends a token without a time of expiry")
    return int(expiry)


# --- QuayAccessToken: logs in to Quay as a robot account that trusts a service account -------------------------------
#
# | value | meaning |
# |---|---|
# | `registry` | host of the registry |
# | `auth` | base64 of ROBOT:TOKEN, as in a docker configuration |
# | `expiry` | seconds since 1970 |


DEFAULT_HOST: Final = "quay.io"
_PATH: Final = "oauth2/federation/robot/token"


class _QuayToken(msgspec.Struct):
    token: str


@generator_kind(objects=(QUAY,), bridged=(V1_QUAY_ACCESS_TOKEN,))
class QuayGenerator(Generator[QuayAccessTokenSpec]):
    """A registry login that expires."""

    API_NAME = "Quay"

    @classmethod
    def check_config(cls, config: QuayAccessTokenSpec) -> tuple[str, ...]:
        if not config.robot_account:
            raise invalid_config("/robotAccount", "must name a robot account, such as organisation+robot")
        if ":" in config.robot_account:
            raise invalid_config("/robotAccount", "must not contain a colon")
        _base(config)
        return ()

    async def open(self) -> None:
        base = _base(self.config)
        self._subject = f'Quay {base.host}, robot account "{self.config.robot_account}"'
        self._rest = self.close_later(Rest(self, RestSettings(self._subject, base)))

    async def generate(self, request: GenerateRequest) -> Generated:
        del request
        token = self.token(self.config.service_account_ref).token
        headers = basic(SecretBytes(self.config.robot_account.encode()), token)
        response = await self._rest.send(RestRequest("GET", _PATH, "FederateRobot", headers=headers))
        registry = {"registry": _host(self.config)}
        return registry_login(self.config.robot_account, response.read(_QuayToken).token, self._subject, registry)


def _host(config: QuayAccessTokenSpec) -> str:
    return config.url.removeprefix("https://").rstrip("/") or DEFAULT_HOST


def _base(config: QuayAccessTokenSpec) -> URL:
    """Return the address of the registry: always TLS, because the token of the account is sent to it."""
    try:
        found = URL(f"https://{_host(config)}")
    except ValueError:
        found = URL()
    if not found.host or "/" in _host(config):
        raise invalid_config("/url", "must be the host of the registry, such as quay.io")
    return found


# --- CloudsmithAccessToken: logs in to Cloudsmith as a service that trusts a service account -------------------------
#
# | value | meaning |
# |---|---|
# | `auth` | base64 of token:TOKEN, as in a docker configuration |
# | `expiry` | seconds since 1970 |


DEFAULT_URL: Final = "https://api.cloudsmith.io"
USER: Final = "token"


class _CloudsmithToken(msgspec.Struct):
    token: str


@generator_kind(objects=(CLOUDSMITH,), bridged=(V1_CLOUDSMITH_ACCESS_TOKEN,))
class CloudsmithGenerator(Generator[CloudsmithAccessTokenSpec]):
    """A registry login that expires."""

    API_NAME = "Cloudsmith"

    @classmethod
    def check_config(cls, config: CloudsmithAccessTokenSpec) -> tuple[str, ...]:
        for name, text in (("/orgSlug", config.org_slug), ("/serviceSlug", config.service_slug)):
            if not text:
                raise invalid_config(name, "must not be empty")
        return ()

    async def open(self) -> None:
        config = self.config
        self._subject = f'Cloudsmith, service "{config.service_slug}" of organisation "{config.org_slug}"'
        settings = RestSettings(self._subject, URL(config.api_url or DEFAULT_URL), field="/apiUrl")
        self._rest = self.close_later(Rest(self, settings))

    async def generate(self, request: GenerateRequest) -> Generated:
        del request
        token = self.token(self.config.service_account_ref).token.reveal().decode()
        body = {"oidc_token": token, "service_slug": self.config.service_slug}
        response = await self._rest.post(f"openid/{segments(self.config.org_slug)}/", body, call="ExchangeToken")
        if response.status != 201:
            raise backend_error(f"{self._subject} does not create a token: HTTP {response.status}")
        return registry_login(USER, response.read(_CloudsmithToken).token, self._subject)
