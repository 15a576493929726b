"""The base of the stores of all AWS services: an identity, a region, and the validation of both."""

from __future__ import annotations

import asyncio
import re
import socket
from abc import abstractmethod
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import ClassVar, Final, Protocol, TypeVar
from urllib.parse import urlsplit

from botocore.utils import get_environ_proxies

from eso_api.stores.aws import AwsConnection
from eso_provider_aws.api import Api, Batching
from eso_provider_aws.changes.listings import Source
from eso_provider_aws.changes.watcher import Watcher, shared_by
from eso_provider_aws.clients import SQS, STS, check_region, is_published
from eso_provider_aws.identity import Login, log_in, roles_of, runtime_of, tags_of
from eso_provider_aws.kinds import ParameterStoreConfig, SecretsManagerConfig
from eso_sdk.errors import invalid_config, timed_out, unavailable
from eso_sdk.provider import Check, Pushed, Store, Value, finds, pushes, reads
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import (
    ChangeEvent,
    ConditionReport,
    DeleteItem,
    FindQuery,
    Found,
    Heartbeat,
    Operation,
    PushItem,
    RemoteRef,
    SourceSecret,
    Validation,
    ValidationState,
    WatchItem,
)
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
        self._login: Login = log_in(self, self._runtime, config.region, config.auth, roles_of(config, tags))
        self.api = await self.api_of(self.SERVICE)
        # Kept open for logins too: a client of their own would cost each of them a TLS context.
        self._sts = await self.api_of(STS)

    async def api_of(self, service: str) -> Api:
        """Return an `Api` of another service with the same identity; it is closed with the store."""
        identity = self._login.identity
        api = await Api.opened(self._runtime, identity, service, self.config.region, observe=self.observe)
        return self.close_later(api)

    async def close(self) -> None:
        self.__dict__.pop("_login", None)  # closing also drops the token of a service account
        await super().close()

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


# ---------------------------------------------------------------------------------------------------------------------
# The base of stores of named values: reads, writes and change reports of Secrets Manager and Parameter Store.


W = TypeVar("W", bound=SecretsManagerConfig | ParameterStoreConfig)

_FIELD: Final = "/changes/queueURL"
_PATH: Final = re.compile(r"/\d{12}/[A-Za-z0-9_-]{1,80}(\.fifo)?")
_HOST: Final = re.compile(r"(?:sqs[.-]|sqs-fips\.)?([a-z]{2}(?:-[a-z]+)+-\d+)\..*")


class WatchedStore(AwsStore[W]):
    """A store that receives changes from a queue, or lists versions to find them."""

    SOURCE: ClassVar[Source]

    @classmethod
    def check_config(cls, config: W) -> tuple[str, ...]:
        if config.changes is not None and config.changes.queue_url:
            _check_queue(config.changes.queue_url, config.region)
        return super().check_config(config)

    async def open(self) -> None:
        await super().open()
        changes = self.config.changes
        self.watcher = self.close_later(
            Watcher(
                self.SOURCE,
                self.api,
                shared_by(self._runtime),
                prefix=self.config.prefix,
                queue_url=changes.queue_url if changes is not None else "",
                sqs=self._sqs,
            )
        )

    async def validate(self) -> Validation:
        found = await super().validate()
        offered = self.OPERATIONS - {Operation.SUBSCRIBE} if self.watcher.is_refused else found.operations
        return replace(found, operations=offered, conditions=found.conditions + self.watcher.conditions())

    def subscribe(self, items: Sequence[WatchItem], resume_token: str) -> AsyncIterator[ChangeEvent | Heartbeat]:
        return self.watcher.subscribe(items, resume_token)

    async def acknowledged(self, resume_token: str) -> None:
        await self.watcher.acknowledged(resume_token)

    async def _sqs(self) -> Api:
        """Return a separate client: the last listener closes it, which may be another store."""
        return await Api.opened(self._runtime, self.api.identity, SQS, self.config.region, observe=self.observe)


def _check_queue(url: str, region: str) -> None:
    """Validate the URL of the queue at once. It is a parameter of calls and is never dialled."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        raise invalid_config(_FIELD, "is no URL") from None
    queue = _PATH.fullmatch(parts.path)
    if parts.scheme not in ("http", "https") or not host or queue is None or parts.query or parts.username:
        raise invalid_config(_FIELD, "write the URL of a queue, as https://sqs.REGION.amazonaws.com/ACCOUNT/NAME")
    if queue.group(1):
        raise invalid_config(_FIELD, "a FIFO queue keeps changes back while others are read; name a standard queue")
    other = _HOST.fullmatch(host)
    if other is not None and other.group(1) != region:
        raise invalid_config(_FIELD, f"the queue has to be in the region of the store, {region}")


class ValueReader(Protocol):
    """Reads of a service."""

    batching: Batching

    async def read(self, refs: Sequence[RemoteRef]) -> list[Value | ProviderError]: ...

    async def check(self, ref: RemoteRef) -> Check: ...


class ValueFinder(Protocol):
    """Finds of a service."""

    def find(self, query: FindQuery) -> AsyncIterator[Found]: ...


class ValueWriter(Protocol):
    """Writes of a service. All items of a call have the same key."""

    async def push(self, items: Sequence[PushItem], call_key: str) -> list[Pushed | ProviderError]: ...

    async def delete(self, items: Sequence[DeleteItem], call_key: str) -> list[bool | ProviderError]: ...


class ValueStore(WatchedStore[W]):
    """Reads in batches, writes the items of one key as one new version."""

    @abstractmethod
    def parts(self) -> tuple[ValueReader, ValueFinder, ValueWriter]:
        """Return the three parts of an open store."""

    async def open(self) -> None:
        await super().open()
        self.reader, self.finder, self.writer = self.parts()

    def conditions(self) -> tuple[ConditionReport, ...]:
        return self.reader.batching.conditions()

    @reads("metadata", "not_found")
    async def get_many(self, refs: Sequence[RemoteRef]) -> Sequence[Value | ProviderError]:
        return await self.reader.read(refs)

    async def check(self, ref: RemoteRef) -> Check:
        return await self.reader.check(ref)

    @finds("name", "tags", "path")
    async def find(self, query: FindQuery) -> AsyncIterator[Found]:
        async for found in self.finder.find(query):
            yield found

    @pushes("whole_secret", "if_absent")
    async def push_many(self, items: Sequence[PushItem], source: SourceSecret) -> Sequence[Pushed | ProviderError]:
        """Write all items of one key as one new version."""
        del source
        return await self.writer.push(items, self.call.idempotency_key)

    async def delete_many(self, items: Sequence[DeleteItem]) -> Sequence[bool | ProviderError]:
        """Remove all items of one key at once."""
        return await self.writer.delete(items, self.call.idempotency_key)
