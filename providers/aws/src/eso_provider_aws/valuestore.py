"""The base of stores of named values: the code that Secrets Manager and Parameter Store share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from eso_provider_aws.batching import Batching
from eso_provider_aws.changes.store import W, WatchedStore
from eso_sdk.provider import Check, Pushed, Value, finds, pushes, reads
from eso_wire.errors import ProviderError
from eso_wire.values import ConditionReport, DeleteItem, FindQuery, Found, PushItem, RemoteRef, SourceSecret


class Reads(Protocol):
    """Reads of a service."""

    batching: Batching

    async def read(self, refs: Sequence[RemoteRef]) -> list[Value | ProviderError]: ...

    async def check(self, ref: RemoteRef) -> Check: ...


class Finds(Protocol):
    """Finds of a service."""

    def find(self, query: FindQuery) -> AsyncIterator[Found]: ...


class Writes(Protocol):
    """Writes of a service. All items of a call have the same key."""

    async def push(self, items: Sequence[PushItem], call_key: str) -> list[Pushed | ProviderError]: ...

    async def delete(self, items: Sequence[DeleteItem], call_key: str) -> list[bool | ProviderError]: ...


class ValueStore(WatchedStore[W]):
    """Reads in batches, writes the items of one key as one new version."""

    @abstractmethod
    def parts(self) -> tuple[Reads, Finds, Writes]:
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
