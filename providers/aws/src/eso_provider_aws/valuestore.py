"""The base of stores of named values: reads, writes and change reports of Secrets Manager and Parameter Store."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import ClassVar, Final, Protocol, TypeVar
from urllib.parse import urlsplit

from eso_provider_aws.api import Api, Batching
from eso_provider_aws.changes.listings import Source
from eso_provider_aws.changes.watcher import Watcher, shared_by
from eso_provider_aws.endpoints import SQS
from eso_provider_aws.kinds import ParameterStoreConfig, SecretsManagerConfig
from eso_provider_aws.store import AwsStore
from eso_sdk.errors import invalid_config
from eso_sdk.provider import Check, Pushed, Value, finds, pushes, reads
from eso_wire.errors import ProviderError
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
    WatchItem,
)

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
        self.watcher = Watcher(
            self.SOURCE,
            self.api,
            shared_by(self._runtime),
            prefix=self.config.prefix,
            queue_url=changes.queue_url if changes is not None else "",
            sqs=self._sqs,
        )

    async def close(self) -> None:
        if hasattr(self, "watcher"):
            await self.watcher.close()
        await super().close()

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
