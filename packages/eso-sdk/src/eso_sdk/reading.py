"""Get, check and find in one session: items run concurrently, each with its own outcome."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from eso_api.values import SecretBytes
from eso_sdk.batches import side_by_side
from eso_sdk.callbytes import counted_apart
from eso_sdk.errors import CutStream, MissingPathError, too_large, unsupported
from eso_sdk.matching import CONSIDERED, Considered
from eso_sdk.redaction import CallRedactor
from eso_sdk.results import Value, check_of, found_of, results_of, secrets, stream_of, value
from eso_sdk.store import GetReturn, Store, makes_maps, members_of, reads_batches
from eso_sdk.tracebacks import FAILURES
from eso_wire.bounds import MAX_PAGE_ITEMS
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import (
    CheckResult,
    FindPage,
    FindQuery,
    Found,
    GetItem,
    GetResult,
    MetadataPolicy,
    NotModified,
    Operation,
    Shape,
    ValueMetadata,
)

PAGE_ITEMS: Final = 100
PAGE_BYTES: Final = 4 * 1024 * 1024

_ITEM_OVERHEAD: Final = 512  # overhead of a value on the wire: ids, metadata

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reading:
    """The shared parts of all reads of one call."""

    store: Store[Any]
    gate: asyncio.Semaphore
    redactor: CallRedactor
    max_bytes: int

    # --- get ---------------------------------------------------------------------------------------------------------

    async def get(self, items: Sequence[GetItem]) -> tuple[GetResult, ...]:
        """Return one result for each item, in order."""
        results = await self._many(items) if self._batches else await self._each(items)
        return _within(results, self.max_bytes)

    @property
    def _batches(self) -> bool:
        return reads_batches(type(self.store))

    async def _many(self, items: Sequence[GetItem]) -> tuple[GetResult, ...]:
        """Call the author's `get_many` once. Only maps that the author makes in `get_map` are read one by one."""
        together = [item for item in items if self._is_batched(item) and not self._refusal(item)]
        got: dict[str, GetReturn | ProviderError] = {}
        if together:
            async with self.gate:
                returned = results_of(await self.store.get_many([item.ref for item in together]), len(together))
            got = {item.item_id: result for item, result in zip(together, returned, strict=True)}
        others = [item for item in items if item.item_id not in got]
        results = {result.item_id: result for result in await self._each(others)}
        for item in together:
            results[item.item_id] = self._result_of(item, got[item.item_id])
        return tuple(results[item.item_id] for item in items)

    def _is_batched(self, item: GetItem) -> bool:
        return item.shape is Shape.SINGLE or not makes_maps(type(self.store))

    async def _each(self, items: Sequence[GetItem]) -> tuple[GetResult, ...]:
        def late(item: GetItem, error: ProviderError) -> GetResult:
            return GetResult(item.item_id, error)

        return await side_by_side(items, self._get_item, late=late, gate=self.gate, clock=self.store.clock)

    async def _get_item(self, item: GetItem) -> GetResult:
        if refusal := self._refusal(item):
            return GetResult(item.item_id, refusal)
        try:
            with counted_apart() as held:
                if item.shape is Shape.MAP:
                    result = GetResult(item.item_id, secrets(await self.store.get_map(item.ref), "get_map"))
                else:
                    result = self._result_of(item, await self.store.get(item.ref))
            if held is not None:
                held.take(_size(result))
        except FAILURES as exc:  # a failure of one item is the result of that item
            return GetResult(item.item_id, self.redactor.of_exception(exc))
        return result

    def _result_of(self, item: GetItem, result: GetReturn | ProviderError) -> GetResult:
        if isinstance(result, Exception):
            return GetResult(item.item_id, self.redactor.of_exception(result))
        try:
            found = value(result, "get_many" if self._batches else "get")
            if item.shape is Shape.MAP:
                return GetResult(item.item_id, secrets(members_of(found.raw, item.ref.key), "get_many"), found.metadata)
        except ProviderError as unfit:
            return GetResult(item.item_id, unfit)
        if self._known(item, found):
            return GetResult(item.item_id, NotModified(), found.metadata)
        return GetResult(item.item_id, found.raw, found.metadata)

    def _known(self, item: GetItem, found: Value) -> bool:
        known = item.if_version_differs
        return bool(known) and known == found.metadata.provider_version

    def _refusal(self, item: GetItem) -> ProviderError | None:
        needed = {Operation.GET_MAP if item.shape is Shape.MAP else Operation.GET}
        if item.ref.metadata_policy is MetadataPolicy.FETCH:
            needed.add(Operation.METADATA_FETCH)
        return missing(self.store, needed)

    # --- check -------------------------------------------------------------------------------------------------------

    async def check(self, items: Sequence[GetItem]) -> tuple[CheckResult, ...]:
        """Return one result for each item, in order."""

        def late(item: GetItem, error: ProviderError) -> CheckResult:
            return CheckResult(item.item_id, error=error)

        return await side_by_side(items, self._check_item, late=late, gate=self.gate, clock=self.store.clock)

    async def _check_item(self, item: GetItem) -> CheckResult:
        try:
            checked = check_of(await self.store.check(item.ref))
        except FAILURES as exc:  # a failure of one item is the result of that item
            error = self.redactor.of_exception(exc)
            # An existence check may answer with "no" or with "not found".
            return CheckResult(item.item_id) if error.is_not_found else CheckResult(item.item_id, error=error)
        return CheckResult(item.item_id, checked.exists, checked.version)

    # --- find --------------------------------------------------------------------------------------------------------

    async def find(self, query: FindQuery) -> AsyncGenerator[FindPage, None]:
        """Yield the pages of matches; the last one is marked."""
        limit = min(query.page_size or PAGE_ITEMS, MAX_PAGE_ITEMS)
        page: list[Found] = []
        size, sent, considered = 0, False, Considered()
        CONSIDERED.set(considered)
        async with self.gate, closing(stream_of(self.store.find(query), "find")) as matches:
            try:
                async for result in matches:
                    found = found_of(result)
                    cost = len(found.value) + len(found.key) + _ITEM_OVERHEAD
                    if cost > self.max_bytes:
                        raise too_large(found.key)
                    if page and (len(page) >= limit or size + cost > min(PAGE_BYTES, self.max_bytes)):
                        yield FindPage(tuple(page))
                        page, size, sent = [], 0, True
                    page.append(found)
                    size += cost
            except CutStream:
                return
            except MissingPathError as absent:
                if sent or page:
                    raise
                yield FindPage((), last=True, missing=self.redactor.text(absent.message))
                return
        yield FindPage(tuple(page), last=True, considered=considered.keys)


def find_operations(query: FindQuery) -> set[Operation]:
    """Return the operations that a query needs."""
    parts = {
        Operation.FIND_BY_NAME: query.name_regexp,
        Operation.FIND_BY_TAGS: query.tags,
        Operation.FIND_BY_PATH: query.path,
    }
    return {operation for operation, part in parts.items() if part}


def missing(store: Store[Any], needed: Iterable[Operation]) -> ProviderError | None:
    """Return the refusal if a store lacks one of the operations."""
    if absent := sorted(set(needed) - store.OPERATIONS):
        return unsupported(f"this kind does not offer {', '.join(absent)}")
    return None


@asynccontextmanager
async def closing(stream: AsyncIterator[T]) -> AsyncIterator[AsyncIterator[T]]:
    """Close an author's generator with the call, also if the caller leaves early."""
    try:
        yield stream
    finally:
        if close := getattr(stream, "aclose", None):
            await close()


def _within(results: tuple[GetResult, ...], max_bytes: int) -> tuple[GetResult, ...]:
    """Refuse the items that do not fit into one message, so that the others still arrive."""
    left = max_bytes
    fitting = []
    for result in results:
        size = _size(result)
        if size > left:
            what = "the value" if size > max_bytes else "the batch"
            error = ProviderError(ErrorReason.PAYLOAD_TOO_LARGE, f"{what} is larger than one message may be")
            fitting.append(replace(result, outcome=error, metadata=ValueMetadata()))
        else:
            fitting.append(result)
            left -= size
    return tuple(fitting)


def _size(result: GetResult) -> int:
    match result.outcome:
        case SecretBytes() as one:
            return len(one) + _ITEM_OVERHEAD
        case Mapping() as whole:
            return sum(len(name.encode()) + len(raw) + 16 for name, raw in whole.items()) + _ITEM_OVERHEAD
        case _:
            return _ITEM_OVERHEAD
