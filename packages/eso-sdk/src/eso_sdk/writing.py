"""Push and delete in one session: items run concurrently, each with its own outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from eso_api.values import SecretBytes
from eso_sdk.batches import side_by_side
from eso_sdk.errors import unsupported
from eso_sdk.reading import missing
from eso_sdk.redaction import CallRedactor
from eso_sdk.results import existed_of, push_of, results_of
from eso_sdk.store import Store, deletes_groups, promises, writes_groups
from eso_sdk.tracebacks import FAILURES
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
    """The shared parts of all writes of one call."""

    store: Store[Any]
    gate: asyncio.Semaphore
    redactor: CallRedactor

    async def push(self, batch: PushBatch) -> tuple[PushResult, ...]:
        """Return one result for each item, in order."""
        if writes_groups(type(self.store)):
            return await self._grouped(batch.items, lambda items: self._push_group(items, batch.source), _not_pushed)

        async def push_item(item: PushItem) -> PushResult:
            return await self._push_item(item, batch.source)

        return await side_by_side(batch.items, push_item, late=_not_pushed, gate=self.gate, clock=self.store.clock)

    async def delete(self, items: Sequence[DeleteItem]) -> tuple[DeleteResult, ...]:
        """Return one result for each item, in order."""
        if deletes_groups(type(self.store)):
            return await self._grouped(items, self._delete_group, _not_deleted)
        return await self._grouped(items, self._delete_one_by_one, _not_deleted)

    async def _grouped(
        self,
        items: Sequence[I],
        work: Callable[[Sequence[I]], Awaitable[Sequence[R]]],
        late: Callable[[I, ProviderError], R],
    ) -> tuple[R, ...]:
        """Process the items of each remote key together, the keys concurrently; results in the order of items."""
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
        if accepted := [item for item in items if item.item_id not in refused]:
            outcomes = await self._outcomes("push_many", len(accepted), lambda: self.store.push_many(accepted, source))
        else:
            outcomes = ()
        results = {item.item_id: outcome for item, outcome in zip(accepted, outcomes, strict=True)}
        return [self._pushed(item, refused.get(item.item_id) or results[item.item_id]) for item in items]

    async def _delete_group(self, items: Sequence[DeleteItem]) -> Sequence[DeleteResult]:
        outcomes = await self._outcomes("delete_many", len(items), lambda: self.store.delete_many(items))
        return [self._deleted(item, outcome) for item, outcome in zip(items, outcomes, strict=True)]

    async def _delete_one_by_one(self, items: Sequence[DeleteItem]) -> Sequence[DeleteResult]:
        """Delete the properties of one remote key one after the other: of concurrent changes, one would be lost."""
        return [await self._delete_item(item) for item in items]

    async def _outcomes(
        self, method: str, count: int, call: Callable[[], Awaitable[Sequence[object]]]
    ) -> Sequence[object]:
        try:
            return results_of(await call(), count, method)
        except FAILURES as exc:  # the failure of a group is that of its items
            return [self.redactor.of_exception(exc)] * count

    def _pushed(self, item: PushItem, outcome: object) -> PushResult:
        try:
            pushed = push_of(_raised(outcome))
        except FAILURES as exc:  # a failure of one item is the result of that item
            return PushResult(item.item_id, self.redactor.of_exception(exc))
        return PushResult(item.item_id, pushed.outcome, pushed.version)

    def _deleted(self, item: DeleteItem, outcome: object) -> DeleteResult:
        try:
            return DeleteResult(item.item_id, existed=existed_of(_raised(outcome)))
        except FAILURES as exc:  # a failure of one item is the result of that item
            error = self.redactor.of_exception(exc)
            # An absent value counts as deleted.
            return DeleteResult(item.item_id) if error.is_not_found else DeleteResult(item.item_id, error=error)

    async def _push_item(self, item: PushItem, source: SourceSecret) -> PushResult:
        if refusal := self._refusal(item):
            return PushResult(item.item_id, refusal)
        try:
            outcome: object = await self.store.push(item, source)
        except FAILURES as exc:  # a failure of one item is the result of that item
            outcome = exc
        return self._pushed(item, outcome)

    async def _delete_item(self, item: DeleteItem) -> DeleteResult:
        try:
            outcome: object = await self.store.delete(item)
        except FAILURES as exc:  # a failure of one item is the result of that item
            outcome = exc
        return self._deleted(item, outcome)

    def _refusal(self, item: PushItem) -> ProviderError | None:
        """Refuse preconditions that the author does not support: they must not be ignored silently."""
        needed = {Operation.PUSH if isinstance(item.payload, SecretBytes) else Operation.PUSH_WHOLE_SECRET}
        if item.precondition is PushPrecondition.IF_ABSENT:
            needed.add(Operation.PUSH_IF_ABSENT)
        if item.precondition is PushPrecondition.IF_VERSION and "if_version" not in promises(type(self.store)):
            return unsupported("this kind does not compare versions before it writes")
        return missing(self.store, needed)


def _raised(outcome: object) -> object:
    """Raise an outcome that is an error."""
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def _not_pushed(item: PushItem, error: ProviderError) -> PushResult:
    return PushResult(item.item_id, error)


def _not_deleted(item: DeleteItem, error: ProviderError) -> DeleteResult:
    return DeleteResult(item.item_id, error=error)
