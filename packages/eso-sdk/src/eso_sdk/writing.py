"""Push and delete at one session: items side by side, each with an outcome of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from eso_api.values import SecretBytes
from eso_sdk.answers import answers, existed_of, push_of
from eso_sdk.batches import side_by_side
from eso_sdk.errors import unsupported
from eso_sdk.reading import missing
from eso_sdk.redaction import Redactor
from eso_sdk.store import Store, deletes_groups, promises, writes_groups
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

I = TypeVar("I", PushItem, DeleteItem)  # noqa: E741 - an item
R = TypeVar("R", PushResult, DeleteResult)


@dataclass(frozen=True, slots=True)
class Writing:
    """What every write of one call has in common."""

    store: Store[Any]
    gate: asyncio.Semaphore
    redactor: Redactor

    async def push(self, batch: PushBatch) -> tuple[PushResult, ...]:
        """One result for each item, in their order."""
        if writes_groups(type(self.store)):
            return await self._grouped(batch.items, lambda items: self._push_group(items, batch.source), _not_pushed)

        async def push_item(item: PushItem) -> PushResult:
            return await self._push_item(item, batch.source)

        return await side_by_side(batch.items, push_item, late=_not_pushed, gate=self.gate, clock=self.store.clock)

    async def delete(self, items: Sequence[DeleteItem]) -> tuple[DeleteResult, ...]:
        """One result for each item, in their order."""
        if deletes_groups(type(self.store)):
            return await self._grouped(items, self._delete_group, _not_deleted)
        return await self._grouped(items, self._delete_in_turn, _not_deleted)

    async def _grouped(
        self,
        items: Sequence[I],
        work: Callable[[Sequence[I]], Awaitable[Sequence[R]]],
        late: Callable[[I, ProviderError], R],
    ) -> tuple[R, ...]:
        """The items of each remote key together, the keys side by side; results in the order of the items."""
        groups: dict[str, list[I]] = {}
        for item in items:
            groups.setdefault(item.remote.key, []).append(item)

        def all_late(group: Sequence[I], error: ProviderError) -> Sequence[R]:
            return [late(item, error) for item in group]

        done = await side_by_side(list(groups.values()), work, late=all_late, gate=self.gate, clock=self.store.clock)
        results = {result.item_id: result for group in done for result in group}
        return tuple(results[item.item_id] for item in items)

    async def _push_group(self, items: Sequence[PushItem], source: SourceSecret) -> Sequence[PushResult]:
        refused = {item.item_id: refusal for item in items if (refusal := self._refusal(item))}
        if wanted := [item for item in items if item.item_id not in refused]:
            outcomes = await self._outcomes("push_many", len(wanted), lambda: self.store.push_many(wanted, source))
        else:
            outcomes = ()
        given = {item.item_id: outcome for item, outcome in zip(wanted, outcomes, strict=True)}
        return [self._pushed(item, refused.get(item.item_id) or given[item.item_id]) for item in items]

    async def _delete_group(self, items: Sequence[DeleteItem]) -> Sequence[DeleteResult]:
        outcomes = await self._outcomes("delete_many", len(items), lambda: self.store.delete_many(items))
        return [self._deleted(item, outcome) for item, outcome in zip(items, outcomes, strict=True)]

    async def _delete_in_turn(self, items: Sequence[DeleteItem]) -> Sequence[DeleteResult]:
        """Properties of one remote key one after the other: two changes of one value at once would lose one."""
        return [await self._delete_item(item) for item in items]

    async def _outcomes(
        self, method: str, count: int, ask: Callable[[], Awaitable[Sequence[object]]]
    ) -> Sequence[object]:
        try:
            return answers(await ask(), count, method)
        except Exception as exc:  # noqa: BLE001 - the failure of a group is that of its items
            return [exc] * count

    def _pushed(self, item: PushItem, outcome: object) -> PushResult:
        try:
            pushed = push_of(_raised(outcome))
        except Exception as exc:  # noqa: BLE001 - one item's failure is one item's result
            return PushResult(item.item_id, self.redactor.of_exception(exc))
        return PushResult(item.item_id, pushed.outcome, pushed.version)

    def _deleted(self, item: DeleteItem, outcome: object) -> DeleteResult:
        try:
            return DeleteResult(item.item_id, existed=existed_of(_raised(outcome)))
        except Exception as exc:  # noqa: BLE001 - one item's failure is one item's result
            error = self.redactor.of_exception(exc)
            # What is not there is deleted.
            return DeleteResult(item.item_id) if error.is_not_found else DeleteResult(item.item_id, error=error)

    async def _push_item(self, item: PushItem, source: SourceSecret) -> PushResult:
        if refusal := self._refusal(item):
            return PushResult(item.item_id, refusal)
        try:
            outcome: object = await self.store.push(item, source)
        except Exception as exc:  # noqa: BLE001 - one item's failure is one item's result
            outcome = exc
        return self._pushed(item, outcome)

    async def _delete_item(self, item: DeleteItem) -> DeleteResult:
        try:
            outcome: object = await self.store.delete(item)
        except Exception as exc:  # noqa: BLE001 - one item's failure is one item's result
            outcome = exc
        return self._deleted(item, outcome)

    def _refusal(self, item: PushItem) -> ProviderError | None:
        """A condition that the author does not honour must not be dropped in silence."""
        needed = {Operation.PUSH if isinstance(item.payload, SecretBytes) else Operation.PUSH_WHOLE_SECRET}
        if item.precondition is PushPrecondition.IF_ABSENT:
            needed.add(Operation.PUSH_IF_ABSENT)
        if item.precondition is PushPrecondition.IF_VERSION and "if_version" not in promises(type(self.store)):
            return unsupported("this kind does not compare versions before it writes")
        return missing(self.store, needed)


def _raised(outcome: object) -> object:
    """Raise what an author gave as an error."""
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def _not_pushed(item: PushItem, error: ProviderError) -> PushResult:
    return PushResult(item.item_id, error)


def _not_deleted(item: DeleteItem, error: ProviderError) -> DeleteResult:
    return DeleteResult(item.item_id, error=error)
