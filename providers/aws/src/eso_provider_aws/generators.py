"""Generators: registry logins of ECR and session tokens of STS. Both expire, so there is no state to clean up.

ECRAuthorizationToken is what `docker login` needs for Amazon's container registry:

| value | private | public |
|---|---|---|
| `username`, `password` | both parts of the token | same |
| `token` | equal to `password`, for templates that are written with this name | same |
| `registry` | host of `proxy_endpoint` | `public.ecr.aws` |
| `proxy_endpoint` | URL of the registry | |
| `expires_at` | seconds since 1970 | same |

STSSessionToken has temporary keys of the IAM user whose long-term keys the generator has. If both are set,
`auth.secretRef` wins over `auth.jwt`, unlike in stores.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from eso_api.generators.aws import ECR_AUTHORIZATION_TOKEN as V1_ECR_AUTHORIZATION_TOKEN
from eso_api.generators.aws import STS_SESSION_TOKEN as V1_STS_SESSION_TOKEN
from eso_api.generators.aws import ECRAuthorizationTokenSpec, STSSessionTokenSpec
from eso_api.values import SecretBytes
from eso_provider_aws.api import Api
from eso_provider_aws.clients import ECR, ECR_PUBLIC, STS, check_region
from eso_provider_aws.identity import Role, log_in, runtime_of
from eso_provider_aws.kinds import ECR_AUTHORIZATION_TOKEN, STS_SESSION_TOKEN
from eso_sdk.errors import backend_error, invalid_config
from eso_sdk.provider import Generator, generator_kind
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Generated, GenerateRequest, Validation, ValidationState, ValueMetadata

C = TypeVar("C", ECRAuthorizationTokenSpec, STSSessionTokenSpec)


class AwsGenerator(Generator[C]):
    """A generator whose values one service issues to one identity."""

    def service_and_region(self) -> tuple[str, str]:
        """Return the service and region to call. Each generator overrides it."""
        raise NotImplementedError

    @classmethod
    def check_config(cls, config: C) -> tuple[str, ...]:
        check_region(config.region)
        return ()

    async def open(self) -> None:
        config, runtime = self.config, runtime_of(self.clock)
        roles = [Role(config.role)] if config.role else []
        # The whole login is stored: a web identity reads its token from here.
        self._login = log_in(self, runtime, config.region, config.auth, roles, keys_first=True)
        service, region = self.service_and_region()
        api = await Api.opened(runtime, self._login.identity, service, region, observe=self.observe)
        self.api = self.close_later(api)

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


ECR_LOGIN: Final = "GetAuthorizationToken"
PUBLIC: Final = "public"
PUBLIC_REGION: Final = "us-east-1"
"""The region in which ECR Public issues tokens, independent of the users' region."""
PUBLIC_REGISTRY: Final = "public.ecr.aws"


@generator_kind(objects=(ECR_AUTHORIZATION_TOKEN,), bridged=(V1_ECR_AUTHORIZATION_TOKEN,))
class ECRAuthorizationTokenGenerator(AwsGenerator[ECRAuthorizationTokenSpec]):
    """A registry login that expires after twelve hours."""

    def service_and_region(self) -> tuple[str, str]:
        return (ECR_PUBLIC, PUBLIC_REGION) if self.config.scope == PUBLIC else (ECR, self.config.region)

    async def generate(self, request: GenerateRequest) -> Generated:
        del request
        response = await self.api.call(ECR_LOGIN)
        match response.get("authorizationData"):
            case [{"authorizationToken": str(token), "expiresAt": datetime() as end, "proxyEndpoint": str(url)}]:
                registry = {"registry": urlsplit(url).netloc or url, "proxy_endpoint": url}
            case {"authorizationToken": str(token), "expiresAt": datetime() as end}:
                registry = {"registry": PUBLIC_REGISTRY}
            case _:
                raise self._unfit()
        username, password = self._parts(token)
        login = {"username": username, "password": password, "token": password}
        return expiring(login | registry | {"expires_at": seconds(end)}, end)

    def _parts(self, token: str) -> tuple[str, str]:
        try:
            username, colon, password = base64.b64decode(token, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            raise self._unfit() from None
        if not colon:
            raise self._unfit()
        return username, password

    def _unfit(self) -> ProviderError:
        return backend_error(f"{self.api.subject(ECR_LOGIN)}: {ECR_LOGIN} did not return one login")


STS_LOGIN: Final = "GetSessionToken"
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
        request = config.request_parameters
        if request is not None:
            duration = request.session_duration
            if duration is not None and not SHORTEST <= duration <= LONGEST:
                problem = f"must be between {SHORTEST} and {LONGEST} seconds"
                raise invalid_config("/requestParameters/sessionDuration", problem)
            if bool(request.serial_number) != bool(request.token_code):
                raise invalid_config("/requestParameters", "set serialNumber and tokenCode together, or neither")
        if config.role:
            return ("AWS denies GetSessionToken to keys of an assumed role; remove role",)
        return ()

    def service_and_region(self) -> tuple[str, str]:
        return STS, self.config.region

    async def generate(self, request: GenerateRequest) -> Generated:
        del request
        try:
            response = await self.api.call(STS_LOGIN, **self._parameters())
        except ProviderError as refused:
            if refused.reason is not ErrorReason.PERMISSION_DENIED:
                raise
            raise await self._denied(refused) from None
        keys = response["Credentials"]
        values = {
            "access_key_id": keys["AccessKeyId"],
            "secret_access_key": keys["SecretAccessKey"],
            "session_token": keys["SessionToken"],
            "expiration": seconds(keys["Expiration"]),
        }
        return expiring(values, keys["Expiration"])

    def _parameters(self) -> dict[str, Any]:
        request = self.config.request_parameters
        if request is None:
            return {}
        parameters = {
            "DurationSeconds": request.session_duration,
            "SerialNumber": request.serial_number,
            "TokenCode": request.token_code,
        }
        return {name: value for name, value in parameters.items() if value}

    async def _denied(self, refused: ProviderError) -> ProviderError:
        """Return the error with its cause: temporary keys can never make this call, and an MFA code works only once."""
        subject = self.api.subject(STS_LOGIN)
        if (await self.api.identity.get_frozen_credentials()).token:
            message = (
                f"{subject}: {STS_LOGIN} is denied to temporary keys, such as those of a role; give auth.secretRef the"
                " long-term keys of an IAM user, without sessionTokenSecretRef and role"
            )
        elif self._parameters().get("TokenCode"):
            message = (
                f"{subject}: {STS_LOGIN} is denied; check serialNumber, and write a new tokenCode: each works once"
            )
        else:
            return refused
        return ProviderError(refused.reason, message, retry=refused.retry, backend_code=refused.backend_code)
