"""The common part of the generators: an identity, and one service to call with it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TypeVar

from eso_api.generators.ecrauthorizationtoken import ECRAuthorizationTokenSpec
from eso_api.generators.stssessiontoken import STSSessionTokenSpec
from eso_api.values import SecretBytes
from eso_provider_aws.api import Api
from eso_provider_aws.endpoints import check_region
from eso_provider_aws.login import log_in
from eso_provider_aws.renewed import Role
from eso_provider_aws.runtime import runtime_of
from eso_sdk.provider import Generator
from eso_wire.values import Generated, Validation, ValidationState, ValueMetadata

C = TypeVar("C", ECRAuthorizationTokenSpec, STSSessionTokenSpec)


class AwsGenerator(Generator[C]):
    """A generator whose values one service issues to one identity."""

    def asks(self) -> tuple[str, str]:
        """Return the service and region to call. Each generator overrides it."""
        raise NotImplementedError

    @classmethod
    def check_config(cls, config: C) -> tuple[str, ...]:
        check_region(config.region)
        return ()

    async def open(self) -> None:
        config, runtime = self.config, runtime_of(self.clock)
        roles = [Role(config.role)] if config.role else []
        # Kept whole: a web identity reads its token from here.
        self._login = log_in(self, runtime, config.region, config.auth, roles, keys_first=True)
        service, region = self.asks()
        self.api = await Api.opened(runtime, self._login.identity, service, region, observe=self.observe)

    async def close(self) -> None:
        if hasattr(self, "api"):
            await self.api.close()

    async def validate(self) -> Validation:
        """Obtain keys. The service itself is called only to generate values."""
        await self._login.identity.get_frozen_credentials()
        return Validation(ValidationState.READY)


def expiring(values: Mapping[str, str], end: datetime) -> Generated:
    """Return values that expire at `end` and need no clean-up."""
    data = {name: SecretBytes(value.encode()) for name, value in values.items()}
    return Generated(data, metadata=ValueMetadata(expires_at=end.astimezone(UTC)))


def seconds(moment: datetime) -> str:
    """Return seconds since 1970."""
    return str(int(moment.timestamp()))
