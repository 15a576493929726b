"""QuayAccessToken: logs in to Quay as a robot account that trusts a service account.

| value | meaning |
|---|---|
| `registry` | host of the registry |
| `auth` | base64 of ROBOT:TOKEN, as in a docker configuration |
| `expiry` | seconds since 1970 |
"""

from __future__ import annotations

from typing import Final

import msgspec
from yarl import URL

from eso_api.generators.tokens import QUAY_ACCESS_TOKEN as V1_QUAY_ACCESS_TOKEN
from eso_api.generators.tokens import QuayAccessTokenSpec
from eso_api.values import SecretBytes
from eso_provider_tokens.kinds import QUAY
from eso_provider_tokens.logins import registry_login
from eso_sdk.authorization import basic
from eso_sdk.errors import invalid_config
from eso_sdk.provider import Generator, generator_kind
from eso_sdk.rest import Rest, RestRequest, RestSettings
from eso_wire.values import Generated, GenerateRequest

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
        self._rest = Rest(self, RestSettings(self._subject, base))

    async def close(self) -> None:
        if hasattr(self, "_rest"):
            await self._rest.close()

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
