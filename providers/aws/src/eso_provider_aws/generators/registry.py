"""ECRAuthorizationToken: what `docker login` needs for Amazon's container registry.

| value | private | public |
|---|---|---|
| `username`, `password` | both parts of the token | same |
| `token` | equal to `password`, for templates that are written with this name | same |
| `registry` | host of `proxy_endpoint` | `public.ecr.aws` |
| `proxy_endpoint` | URL of the registry | |
| `expires_at` | seconds since 1970 | same |
"""

from __future__ import annotations

import base64
import binascii
from datetime import datetime
from typing import Final
from urllib.parse import urlsplit

from eso_api.generators.ecrauthorizationtoken import ECR_AUTHORIZATION_TOKEN as V1_ECR_AUTHORIZATION_TOKEN
from eso_api.generators.ecrauthorizationtoken import ECRAuthorizationTokenSpec
from eso_provider_aws.ecrauthorizationtoken import ECR_AUTHORIZATION_TOKEN
from eso_provider_aws.endpoints import ECR, ECR_PUBLIC
from eso_provider_aws.generators.opened import AwsGenerator, expiring, seconds
from eso_sdk.errors import backend_error
from eso_sdk.provider import generator_kind
from eso_wire.errors import ProviderError
from eso_wire.values import Generated, GenerateRequest

ASK: Final = "GetAuthorizationToken"
PUBLIC: Final = "public"
PUBLIC_REGION: Final = "us-east-1"
"""The region in which ECR Public issues tokens, independent of the users' region."""
PUBLIC_REGISTRY: Final = "public.ecr.aws"


@generator_kind(objects=(ECR_AUTHORIZATION_TOKEN,), bridged=(V1_ECR_AUTHORIZATION_TOKEN,))
class ECRAuthorizationTokenGenerator(AwsGenerator[ECRAuthorizationTokenSpec]):
    """A registry login that expires after twelve hours."""

    def asks(self) -> tuple[str, str]:
        return (ECR_PUBLIC, PUBLIC_REGION) if self.config.scope == PUBLIC else (ECR, self.config.region)

    async def generate(self, request: GenerateRequest) -> Generated:
        del request
        answer = await self.api.call(ASK)
        match answer.get("authorizationData"):
            case [{"authorizationToken": str(token), "expiresAt": datetime() as end, "proxyEndpoint": str(url)}]:
                place = {"registry": urlsplit(url).netloc or url, "proxy_endpoint": url}
            case {"authorizationToken": str(token), "expiresAt": datetime() as end}:
                place = {"registry": PUBLIC_REGISTRY}
            case _:
                raise self._unfit()
        username, password = self._parts(token)
        login = {"username": username, "password": password, "token": password}
        return expiring(login | place | {"expires_at": seconds(end)}, end)

    def _parts(self, token: str) -> tuple[str, str]:
        try:
            username, colon, password = base64.b64decode(token, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            raise self._unfit() from None
        if not colon:
            raise self._unfit()
        return username, password

    def _unfit(self) -> ProviderError:
        return backend_error(f"{self.api.asked(ASK)}: {ASK} was not answered with one login")
