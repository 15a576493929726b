"""An opened store of Parameter Store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import ClassVar

from eso_provider_aws.changes.parameters import PARAMETERS
from eso_provider_aws.changes.store import WatchedStore
from eso_provider_aws.endpoints import PARAMETER_STORE
from eso_provider_aws.parameters.finding import Finder
from eso_provider_aws.parameters.reading import Reader
from eso_provider_aws.parameters.writing import Writer
from eso_provider_aws.specs import ParameterStoreConfig
from eso_sdk.provider import Check, Pushed, Value, finds, pushes, reads
from eso_wire.errors import ProviderError
from eso_wire.values import ConditionReport, DeleteItem, FindQuery, Found, PushItem, RemoteRef, SourceSecret


class ParametersStore(WatchedStore[ParameterStoreConfig]):
    """Parameters of one region of one account."""

    SERVICE = PARAMETER_STORE
    SOURCE = PARAMETERS
    API_NAME: ClassVar[str] = "AWS/ParameterStore"

    async def open(self) -> None:
        await super().open()
        self.reader = Reader(self.api, self.config.prefix, self.gate)
        self.finder = Finder(self.api, self.reader)
        self.writer = Writer(self.api, self.reader)

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
        """Write all items of one parameter as one new version."""
        del source
        return await self.writer.push(items)

    async def delete_many(self, items: Sequence[DeleteItem]) -> Sequence[bool | ProviderError]:
        """Remove all items of one parameter at once."""
        return await self.writer.delete(items)
