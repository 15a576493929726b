"""Push and delete at one session: items side by side, each with an outcome of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from eso_api.values import SecretBytes
from eso_sdk.answers import existed_of, push_of
from eso_sdk.batches import side_by_side
from eso_sdk.errors import unsupported
from eso_sdk.reading import missing
from eso_sdk.redaction import Redactor
from eso_sdk.store import Store, promises
from eso_wire.errors import ProviderError
from eso_wire.values import (
    DeleteItem,
    DeleteResult,
    Operation,
    PushBatch,
    PushItem,
    PushPrecondition,
    PushResult,
    SourceSecret,
)


@dataclass(frozen=True, slots=True)
class Writing:
    """What every write of one call has in common."""

    store: Store[Any]
    gate: asyncio.Semaphore
    redactor: Redactor

    async def push(self, batch: PushBatch) -> tuple[PushResult, ...]:
        """One result for each item, in their order."""

        async def push_item(item: PushItem) -> PushResult:
            return await self._push_item(item, batch.source)

        def late(item: PushItem, error: ProviderError) -> PushResult:
            return PushResult(item.item_id, error)

        return await side_by_side(batch.items, push_item, late=late, gate=self.gate, clock=self.store.clock)

    async def delete(self, items: Sequence[DeleteItem]) -> tuple[DeleteResult, ...]:
        """One result for each item, in their order."""

        def late(item: DeleteItem, error: ProviderError) -> DeleteResult:
            return DeleteResult(item.item_id, error=error)

        return await side_by_side(items, self._delete_item, late=late, gate=self.gate, clock=self.store.clock)

    async def _push_item(self, item: PushItem, source: SourceSecret) -> PushResult:
        if refusal := self._refusal(item):
            return PushResult(item.item_id, refusal)
        try:
            pushed = push_of(await self.store.push(item, source))
        except Exception as exc:  # noqa: BLE001 - one item's failure is one item's result
            return PushResult(item.item_id, self.redactor.of_exception(exc))
        return PushResult(item.item_id, pushed.outcome, pushed.version)

    async def _delete_item(self, item: DeleteItem) -> DeleteResult:
        try:
            return DeleteResult(item.item_id, existed=existed_of(await self.store.delete(item)))
        except Exception as exc:  # noqa: BLE001 - one item's failure is one item's result
            error = self.redactor.of_exception(exc)
            # What is not there is deleted.
            return DeleteResult(item.item_id) if error.is_not_found else DeleteResult(item.item_id, error=error)

    def _refusal(self, item: PushItem) -> ProviderError | None:
        """A condition that the author does not honour must not be dropped in silence."""
        needed = {Operation.PUSH if isinstance(item.payload, SecretBytes) else Operation.PUSH_WHOLE_SECRET}
        if item.precondition is PushPrecondition.IF_ABSENT:
            needed.add(Operation.PUSH_IF_ABSENT)
        if item.precondition is PushPrecondition.IF_VERSION and "if_version" not in promises(type(self.store)):
            return unsupported("this kind does not compare versions before it writes")
        return missing(self.store, needed)
