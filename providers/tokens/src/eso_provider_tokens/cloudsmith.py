"""CloudsmithAccessToken: logs in to Cloudsmith as a service that trusts a service account.

| value | meaning |
|---|---|
| `auth` | base64 of token:TOKEN, as in a docker configuration |
| `expiry` | seconds since 1970 |
"""

from __future__ import annotations

from typing import Final

import msgspec
from yarl import URL

from eso_api.generators.tokens import CLOUDSMITH_ACCESS_TOKEN as V1_CLOUDSMITH_ACCESS_TOKEN
from eso_api.generators.tokens import CloudsmithAccessTokenSpec
from eso_provider_tokens.kinds import CLOUDSMITH
from eso_provider_tokens.logins import registry_login
from eso_sdk.errors import backend_error, invalid_config
from eso_sdk.provider import Generator, generator_kind
from eso_sdk.rest import Rest, RestSettings, segments
from eso_wire.values import Generated, GenerateRequest

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
        self._rest = Rest(self, RestSettings(self._subject, URL(config.api_url or DEFAULT_URL), field="/apiUrl"))

    async def close(self) -> None:
        if hasattr(self, "_rest"):
            await self._rest.close()

    async def generate(self, request: GenerateRequest) -> Generated:
        del request
        token = self.token(self.config.service_account_ref).token.reveal().decode()
        body = {"oidc_token": token, "service_slug": self.config.service_slug}
        response = await self._rest.post(f"openid/{segments(self.config.org_slug)}/", body, call="ExchangeToken")
        if response.status != 201:
            raise backend_error(f"{self._subject} does not create a token: HTTP {response.status}")
        return registry_login(USER, response.read(_CloudsmithToken).token, self._subject)
