"""The base of the stores of all AWS services: an identity, a region, and the validation of both."""

from __future__ import annotations

import asyncio
import re
import socket
from typing import ClassVar, Final, TypeVar
from urllib.parse import urlsplit

from botocore.utils import get_environ_proxies

from eso_api.stores.aws import AwsConnection
from eso_provider_aws.api import Api
from eso_provider_aws.endpoints import STS, check_region, is_published
from eso_provider_aws.login import Login, log_in, roles_of, tags_of
from eso_provider_aws.runtime import runtime_of
from eso_sdk.errors import invalid_config, timed_out, unavailable
from eso_sdk.provider import Store
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import ConditionReport, Validation, ValidationState
from kubebase.deadline import Deadline

C = TypeVar("C", bound=AwsConnection)

CONCURRENCY: Final = 32
"""Calls of one session to its service at a time."""

CHECK_SECONDS: Final = 4.0
"""Seconds for each check of a validation (keys, service address), which has ten seconds in all."""

_ROLE: Final = re.compile(r"arn:[\w-]+:iam::\d{12}:role/.")
_NO_RESPONSE: Final = frozenset({ErrorReason.BACKEND_UNAVAILABLE, ErrorReason.BACKEND_TIMEOUT})


class AwsStore(Store[C]):
    """One service in one region, as one identity."""

    SERVICE: ClassVar[str] = ""
    """Name of the service in the SDK."""

    @classmethod
    def check_config(cls, config: C) -> tuple[str, ...]:
        check_region(config.region)
        _check_roles(config)
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
        # Kept open for logins too: a client of their own would cost each of them a TLS context.
        self._sts = await self.api_of(STS)

    async def api_of(self, service: str) -> Api:
        """Return an `Api` of another service with the same identity; it is closed with the store."""
        identity = self._login.identity
        api = await Api.opened(self._runtime, identity, service, self.config.region, observe=self.observe)
        self._apis.append(api)
        return api

    async def close(self) -> None:
        self.__dict__.pop("_login", None)  # closing also drops the token of a service account
        for api in getattr(self, "_apis", ()):
            await api.close()

    async def validate(self) -> Validation:
        """Obtain keys and let AWS verify them.

        The service itself is not called, because a role may only have read rights.
        """
        await self._login.identity.get_frozen_credentials()
        if not await self._is_recognised() or not is_published(self.SERVICE, self.config.region):
            await self._resolve()
        return Validation(ValidationState.READY, conditions=self.conditions())

    def conditions(self) -> tuple[ConditionReport, ...]:
        """Return the conditions of the store. Overridden by services."""
        return ()

    async def _is_recognised(self) -> bool:
        """Let AWS verify the keys, once for all stores that use them; return False if STS does not respond.

        A network that permits only the service is not an error of the keys.
        """
        identity, region = self._login.identity, self.config.region
        async with identity.proving:
            if identity.is_proven(region, self.clock.monotonic()):
                return True
            try:
                with self._runtime.identities.attempts.one(identity.proof() + region.encode()):
                    await self._verify_keys()
            except ProviderError as failed:
                if failed.reason in _NO_RESPONSE:
                    return False
                # A denial proves that AWS knows the keys.
                if failed.reason is not ErrorReason.PERMISSION_DENIED:
                    raise
            identity.prove(region, self.clock.monotonic())
        return True

    async def _verify_keys(self) -> None:
        try:
            async with Deadline(self.clock, CHECK_SECONDS):
                await self._sts.call("GetCallerIdentity")
        except TimeoutError:
            raise timed_out(f"{STS} in {self.config.region} did not respond to GetCallerIdentity in time") from None

    async def _resolve(self) -> None:
        """Check that the host name of the service resolves. Behind a proxy only the proxy can resolve it."""
        address = self.api.address
        if get_environ_proxies(address):
            return
        host = urlsplit(address).hostname or ""
        try:
            async with Deadline(self.clock, CHECK_SECONDS):
                await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except OSError:
            raise unavailable(
                f'{host} of {self.SERVICE} in region "{self.config.region}" does not resolve; check region, and the DNS'
                " where the provider runs"
            ) from None


def _check_roles(config: AwsConnection) -> None:
    named = {"/role": config.role} | {f"/additionalRoles/{n}": arn for n, arn in enumerate(config.additional_roles)}
    for path, arn in named.items():
        if (arn or path != "/role") and not _ROLE.match(arn):
            raise invalid_config(path, "is not the ARN of a role; write one such as arn:aws:iam::123456789012:role/app")
