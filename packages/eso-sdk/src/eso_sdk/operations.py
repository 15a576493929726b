"""Reads, writes and subscriptions in one session: items run concurrently, each with its own outcome."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar, assert_never

import structlog

from eso_api.values import SecretBytes
from eso_sdk.backend import CURRENT_CALL
from eso_sdk.errors import CutStream, MissingPathError, invalid_request, too_large, unsupported
from eso_sdk.matching import CONSIDERED, Considered
from eso_sdk.processwide import counted_apart
from eso_sdk.redaction import FAILURES, CallRedactor, seat
from eso_sdk.store import (
    GetReturn,
    Store,
    Value,
    check_of,
    deletes_groups,
    existed_of,
    found_of,
    makes_maps,
    members_of,
    promises,
    push_of,
    reads_batches,
    results_of,
    secrets,
    stream_of,
    value,
    writes_groups,
)
from eso_wire.bounds import MAX_PAGE_ITEMS, MAX_WATCHES
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import (
    ChangeEvent,
    CheckResult,
    DeleteItem,
    DeleteResult,
    FindPage,
    FindQuery,
    Found,
    GetItem,
    GetResult,
    Heartbeat,
    MetadataPolicy,
    NotModified,
    Operation,
    PushBatch,
    PushItem,
    PushPrecondition,
    PushResult,
    Shape,
    SourceSecret,
    SubscribeAck,
    SubscribeMessage,
    SubscribeOpen,
    SubscribeUpdate,
    ValueMetadata,
    WatchItem,
)
from kubebase.clock import Clock
from kubebase.deadline import Deadline

# --- The items of one call, processed concurrently: each has its own outcome, also if some run out of time -----------
#
#     side_by_side(items, work, late) -> result of each, in order; `late` makes the result of items that were abandoned
#     require_results(outcomes)       -> raises if the backend returned none of them
#
# A caller whose deadline has passed gets no response at all. So items end at the deadline of their call
# (`Call.deadline`), which is before that of the caller: results up to then still arrive.

T = TypeVar("T")
R = TypeVar("R")


class NoResultError(ProviderError):
    """The call ran out of time before the backend answered.

    The message does not contain the time limit: it differs between calls, and conditions would change with every retry.
    """

    def __init__(self) -> None:
        super().__init__(ErrorReason.BACKEND_TIMEOUT, "the backend did not answer in time")


async def side_by_side(
    items: Sequence[T],
    work: Callable[[T], Awaitable[R]],
    *,
    late: Callable[[T, NoResultError], R],
    gate: asyncio.Semaphore,
    clock: Clock,
) -> tuple[R, ...]:
    """Process every item in its own task, limited by the gate. Cancelling this cancels all of them."""
    if not items:
        return ()
    seconds = CURRENT_CALL.get().deadline - clock.monotonic()

    async def gated(item: T) -> R:
        async with gate:
            return await work(item)

    if len(items) == 1:  # most calls; no extra task needed
        try:
            async with Deadline(clock, seconds):
                return (await gated(items[0]),)
        except TimeoutError:
            return (late(items[0], NoResultError()),)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(gated(item)) for item in items]
        try:
            async with Deadline(clock, seconds):
                await asyncio.wait(tasks)
        except TimeoutError:
            for task in tasks:
                task.cancel()
    results = zip(items, tasks, strict=True)
    return tuple(late(item, NoResultError()) if task.cancelled() else task.result() for item, task in results)


def require_results(outcomes: Sequence[object]) -> None:
    """Raise if no item was answered in time: then the backend hangs, and the whole call fails."""
    late = [outcome for outcome in outcomes if isinstance(outcome, NoResultError)]
    if late and len(late) == len(outcomes):
        raise late[0]


# --- Get, check and find in one session: items run concurrently, each with its own outcome ---------------------------


PAGE_ITEMS: Final = 100
PAGE_BYTES: Final = 4 * 1024 * 1024

_ITEM_OVERHEAD: Final = 512  # overhead of a value on the wire: ids, metadata


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


# --- Push and delete in one session: items run concurrently, each with its own outcome -------------------------------


I = TypeVar("I", PushItem, DeleteItem)  # noqa: E741 - an item
Outcome = TypeVar("Outcome", PushResult, DeleteResult)


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
        work: Callable[[Sequence[I]], Awaitable[Sequence[Outcome]]],
        late: Callable[[I, ProviderError], Outcome],
    ) -> tuple[Outcome, ...]:
        """Process the items of each remote key together, the keys concurrently; results in the order of items."""
        groups: dict[str, list[I]] = {}
        for item in items:
            groups.setdefault(item.remote.key, []).append(item)

        def all_late(group: Sequence[I], error: ProviderError) -> Sequence[Outcome]:
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


# --- One subscription: an author's changes, heartbeats between them, and changing watches ----------------------------
#
# SubscribeOpen -> author's subscribe(items, token) -> ChangeEvent ... Heartbeat ...
# SubscribeUpdate -> the same again with the new items, from the last token on
# SubscribeAck -> author's acknowledged(token), concurrently with the stream


_log = structlog.get_logger("eso_sdk.operations")

HEARTBEAT_SECONDS: Final = 30.0
ACKNOWLEDGE_SECONDS: Final = 30.0
"""Time limit for the author's acknowledgement. The caller acknowledges about once a minute."""

Event = ChangeEvent | Heartbeat
Emit = Callable[[Event], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class HeartbeatSchedule:
    """The interval of heartbeats."""

    clock: Clock
    seconds: float = HEARTBEAT_SECONDS


class Subscription:
    """Runs until the author's changes end, the caller leaves, or an error occurs."""

    def __init__(self, store: Store[Any], opened: SubscribeOpen, emit: Emit, schedule: HeartbeatSchedule) -> None:
        self._store = store
        self._emit = emit
        self._schedule = schedule
        self._items: dict[str, WatchItem] = {item.watch_id: item for item in opened.items}
        self._resume_token = opened.resume_token
        self._writing = asyncio.Lock()
        self._changed = asyncio.Event()
        self._acknowledged = ""
        self._settled = asyncio.Event()

    async def run(self, incoming: AsyncIterator[SubscribeMessage]) -> None:
        """Run until the changes end. If the caller stops sending, it still receives events."""
        async with asyncio.TaskGroup() as group:
            beats = group.create_task(self._send_heartbeats())
            listening = group.create_task(self._listen(incoming))
            settling = group.create_task(self._acknowledgements())
            await self._follow()
            for task in (beats, listening, settling):
                task.cancel()

    async def _follow(self) -> None:
        """Follow the author's changes; restart them whenever the watches change."""
        while True:
            self._changed.clear()
            changes = asyncio.ensure_future(self._changes())
            woken = asyncio.ensure_future(self._changed.wait())
            try:
                await asyncio.wait((changes, woken), return_when=asyncio.FIRST_COMPLETED)
                if changes.done():
                    return changes.result()
            finally:
                await _ended(changes, woken)

    async def _changes(self) -> None:
        stream = stream_of(self._store.subscribe(tuple(self._items.values()), self._resume_token), "subscribe")
        async with closing(stream) as events:
            async for event in events:
                self._resume_token = event.resume_token or self._resume_token
                await self._write(event)

    async def _send_heartbeats(self) -> None:
        """Send heartbeats. The first is sent at once: it confirms the subscription."""
        while True:
            await self._write(Heartbeat(self._schedule.clock.now(), self._resume_token))
            await self._schedule.clock.sleep(self._schedule.seconds)

    async def _listen(self, incoming: AsyncIterator[SubscribeMessage]) -> None:
        async for message in incoming:
            match message:
                case SubscribeUpdate():
                    self._update(message)
                case SubscribeAck(resume_token=token):
                    self._acknowledged = token
                    self._settled.set()
                case SubscribeOpen():
                    raise invalid_request("a subscription is opened once; open another stream for another store")
                case _ as never:
                    assert_never(never)

    async def _acknowledgements(self) -> None:
        """Pass on acknowledgements one at a time; of those that arrive meanwhile, the last covers all others."""
        while True:
            await self._settled.wait()
            self._settled.clear()
            if self._acknowledged:
                await self._acknowledge(self._acknowledged)

    async def _acknowledge(self, token: str) -> None:
        """Acknowledge one token. The stream survives a failure: a later acknowledgement covers this one."""
        try:
            async with Deadline(self._schedule.clock, ACKNOWLEDGE_SECONDS):
                await self._store.acknowledged(token)
        except FAILURES as exc:  # author code may raise anything
            # Type and place only: the author's message may contain secrets.
            reason = CallRedactor(()).of_exception(exc).reason.value
            _log.warning("acknowledgement failed; a later one covers it", reason=reason, error=seat(exc))

    def _update(self, update: SubscribeUpdate) -> None:
        for watch_id in update.remove:
            self._items.pop(watch_id, None)
        self._items |= {item.watch_id: item for item in update.add}
        if len(self._items) > MAX_WATCHES:
            raise invalid_request(f"a subscription takes at most {MAX_WATCHES} watches")
        self._changed.set()

    async def _write(self, event: Event) -> None:
        """Write one message at a time, each to its end: gRPC loses a status that follows an abandoned write."""
        async with self._writing:
            writing = asyncio.ensure_future(self._emit(event))
            try:
                await asyncio.shield(writing)
            finally:
                await asyncio.wait((writing,))


async def _ended(*tasks: asyncio.Future[Any]) -> None:
    """Cancel and wait: an author's generator must be closed before the next one starts."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
