"""What the stores of all AWS services have in common: an identity, a region, and the look at both."""

from __future__ import annotations

import asyncio
import socket
from typing import ClassVar, Final, TypeVar
from urllib.parse import urlsplit

from eso_api.stores.aws import AwsConnection
from eso_provider_aws.api import Api
from eso_provider_aws.endpoints import STS, check_region, is_published
from eso_provider_aws.login import Login, log_in, roles_of, tags_of
from eso_provider_aws.runtime import runtime_of
from eso_sdk.errors import unavailable
from eso_sdk.provider import Store
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import ConditionReport, Validation, ValidationState

C = TypeVar("C", bound=AwsConnection)

CONCURRENCY: Final = 32
"""Calls of one session to its service at a time."""

_NO_ANSWER: Final = frozenset({ErrorReason.BACKEND_UNAVAILABLE, ErrorReason.BACKEND_TIMEOUT})


class AwsStore(Store[C]):
    """One service in one region, as one identity."""

    SERVICE: ClassVar[str] = ""
    """Name of the service in the SDK."""

    @classmethod
    def check_config(cls, config: C) -> tuple[str, ...]:
        check_region(config.region)
        tagged = config.session_tags or config.session_tags_policy in ("Simple", "Custom")
        if (tagged or config.external_id or config.transitive_tag_keys) and not config.role:
            return ("sessionTags, transitiveTagKeys, sessionTagsPolicy and externalID have no effect without role",)
        return ()

    async def open(self) -> None:
        self.gate = asyncio.Semaphore(CONCURRENCY)
        config = self.config
        tags = tags_of(config, namespace=self.call.caller.namespace, kind=self.holder.kind, name=self.holder.name)
        self._runtime = runtime_of(self.clock)
        self._apis: list[Api] = []
        self._login: Login = log_in(self, self._runtime, config.region, config.auth, roles_of(config, tags))
        self.api = await self.api_of(self.SERVICE)

    async def api_of(self, service: str) -> Api:
        """Another service, as the same identity; closed with the store."""
        identity = self._login.identity
        api = await Api.opened(self._runtime, identity, service, self.config.region, observe=self.observe)
        self._apis.append(api)
        return api

    async def close(self) -> None:
        for api in getattr(self, "_apis", ()):
            await api.close()

    async def validate(self) -> Validation:
        """Obtain keys and let AWS look at them. Nothing is asked of the service itself: a role may only read."""
        identity = self._login.identity
        await identity.get_frozen_credentials()
        if not identity.is_proven:
            await self._ask_who_we_are()
        if not is_published(self.SERVICE, self.config.region):
            await self._resolve()
        return Validation(ValidationState.READY, conditions=self.conditions())

    def conditions(self) -> tuple[ConditionReport, ...]:
        """What users of the store should know. Overridden by services."""
        return ()

    async def _ask_who_we_are(self) -> None:
        """Every identity may ask that. A network that lets only the service through is no fault of the keys."""
        sts = await Api.opened(self._runtime, self._login.identity, STS, self.config.region, observe=self.observe)
        try:
            await sts.call("GetCallerIdentity")
        except ProviderError as failed:
            if failed.reason not in _NO_ANSWER:
                raise
            await self._resolve()
        finally:
            await sts.close()

    async def _resolve(self) -> None:
        host = urlsplit(self.api.address).hostname or ""
        try:
            await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except OSError:
            raise unavailable(
                f'there is no {self.SERVICE} in region "{self.config.region}": {host} does not resolve; correct region'
            ) from None
