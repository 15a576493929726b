"""GCRAccessToken: what `docker login` needs for Google's container registries.

| value | meaning |
|---|---|
| `username` | `oauth2accesstoken` |
| `password` | an access token of the identity |
| `expiry` | seconds since 1970 |
"""

from __future__ import annotations

from datetime import UTC
from typing import Final

from eso_api.generators.gcp import GCR_ACCESS_TOKEN as V1_GCR_ACCESS_TOKEN
from eso_api.generators.gcp import GCRAccessTokenSpec
from eso_api.values import SecretBytes
from eso_provider_gcp.auth import check_auth, source_of
from eso_provider_gcp.identities import Joined, runtime_of
from eso_provider_gcp.kinds import ACCESS_TOKEN
from eso_sdk.provider import Generator, generator_kind
from eso_wire.values import Generated, GenerateRequest, Validation, ValidationState, ValueMetadata

USERNAME: Final = "oauth2accesstoken"
FRESH_SECONDS: Final = 3000.0
"""A user refreshes the login by an interval of his own, so he gets a token that is at most ten minutes old."""


@generator_kind(objects=(ACCESS_TOKEN,), bridged=(V1_GCR_ACCESS_TOKEN,))
class GCRAccessTokenGenerator(Generator[GCRAccessTokenSpec]):
    """A registry login that expires after an hour."""

    @classmethod
    def check_config(cls, config: GCRAccessTokenSpec) -> tuple[str, ...]:
        check_auth(config.auth, config.project_id)
        return ()

    async def open(self) -> None:
        self._runtime = runtime_of(self.clock)
        self._joined: Joined = self._runtime.join(source_of(self, self.config.auth, self.config.project_id))
        self.resources.push_async_callback(self._runtime.leave, self._joined)

    async def validate(self) -> Validation:
        await self._joined.identity.access()
        return Validation(ValidationState.READY)

    async def generate(self, request: GenerateRequest) -> Generated:
        del request
        access = await self._joined.identity.access(at_least=FRESH_SECONDS)
        end = access.expires.astimezone(UTC)
        values = {"username": USERNAME, "password": access.token, "expiry": str(int(end.timestamp()))}
        data = {name: SecretBytes(value.encode()) for name, value in values.items()}
        return Generated(data, metadata=ValueMetadata(expires_at=end))
