"""STSSessionToken: temporary keys of the IAM user whose long-term keys the generator has."""

from __future__ import annotations

from typing import Any, Final

from eso_api.generators.stssessiontoken import STS_SESSION_TOKEN as V1_STS_SESSION_TOKEN
from eso_api.generators.stssessiontoken import STSSessionTokenSpec
from eso_provider_aws.endpoints import STS
from eso_provider_aws.generators.opened import AwsGenerator, expiring, seconds
from eso_provider_aws.stssessiontoken import STS_SESSION_TOKEN
from eso_sdk.errors import invalid_config
from eso_sdk.provider import generator_kind
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Generated, GenerateRequest

ASK: Final = "GetSessionToken"
SHORTEST: Final = 900
LONGEST: Final = 129_600


@generator_kind(objects=(STS_SESSION_TOKEN,), bridged=(V1_STS_SESSION_TOKEN,))
class STSSessionTokenGenerator(AwsGenerator[STSSessionTokenSpec]):
    """Temporary keys that expire."""

    @classmethod
    def check_config(cls, config: STSSessionTokenSpec) -> tuple[str, ...]:
        super().check_config(config)
        if config.auth is not None and config.auth.jwt is not None:
            raise invalid_config(
                "/auth/jwt", "STS hands out session tokens for long-term keys only; use auth.secretRef"
            )
        asked = config.request_parameters
        if asked is not None:
            duration = asked.session_duration
            if duration is not None and not SHORTEST <= duration <= LONGEST:
                problem = f"must be between {SHORTEST} and {LONGEST} seconds"
                raise invalid_config("/requestParameters/sessionDuration", problem)
            if bool(asked.serial_number) != bool(asked.token_code):
                raise invalid_config("/requestParameters", "set serialNumber and tokenCode together, or neither")
        if config.role:
            return ("AWS denies GetSessionToken to keys of an assumed role; remove role",)
        return ()

    def asks(self) -> tuple[str, str]:
        return STS, self.config.region

    async def generate(self, request: GenerateRequest) -> Generated:
        del request
        try:
            answer = await self.api.call(ASK, **self._parameters())
        except ProviderError as refused:
            if refused.reason is not ErrorReason.PERMISSION_DENIED:
                raise
            raise await self._denied(refused) from None
        keys = answer["Credentials"]
        values = {
            "access_key_id": keys["AccessKeyId"],
            "secret_access_key": keys["SecretAccessKey"],
            "session_token": keys["SessionToken"],
            "expiration": seconds(keys["Expiration"]),
        }
        return expiring(values, keys["Expiration"])

    def _parameters(self) -> dict[str, Any]:
        asked = self.config.request_parameters
        if asked is None:
            return {}
        wanted = {
            "DurationSeconds": asked.session_duration,
            "SerialNumber": asked.serial_number,
            "TokenCode": asked.token_code,
        }
        return {name: value for name, value in wanted.items() if value}

    async def _denied(self, refused: ProviderError) -> ProviderError:
        """Return the error with its cause: temporary keys can never make this call, and an MFA code works only once."""
        asked = self.api.asked(ASK)
        if (await self.api.identity.get_frozen_credentials()).token:
            words = (
                f"{asked}: {ASK} is denied to temporary keys, such as those of a role; give auth.secretRef the"
                " long-term keys of an IAM user, without sessionTokenSecretRef and role"
            )
        elif self._parameters().get("TokenCode"):
            words = f"{asked}: {ASK} is denied; check serialNumber, and write a new tokenCode: each can be used once"
        else:
            return refused
        return ProviderError(refused.reason, words, retry=refused.retry, backend_code=refused.backend_code)
