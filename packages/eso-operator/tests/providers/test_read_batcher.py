"""The read batcher: each caller gets what a direct read would give, with fewer calls."""

from __future__ import annotations

import asyncio
import gc
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from eso_api.values import SecretBytes
from eso_operator.providers.batching import ReadBatcher
from eso_operator.providers.bytelimits import MIB, ByteLimits
from eso_operator.providers.gateway import Gateway
from eso_operator.providers.metrics import ProviderMetrics
from eso_operator.providers.settings import BatchSettings
from eso_operator.stores.resolved import BoundStore, CallPolicy, SecretTls
from eso_testkit.operator.boundstores import bound_store, endpoint, wanted
from eso_testkit.operator.gateways import LoopbackGateway
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import GetItem, GetResult, Limits, MetadataPolicy, RemoteRef, Shape
from kubebase.testing.clock import VirtualClock


@dataclass
class Backend(Gateway):
    """Answers each question with itself and the identity it was asked by, so that a mix-up shows."""

    clock: VirtualClock
    latency: float = 0.0
    missing: frozenset[str] = frozenset()
    poison: str = ""
    """A key that makes the whole call fail."""
    error: ProviderError | None = None
    calls: list[tuple[str, tuple[GetItem, ...]]] = field(default_factory=list)

    async def get(self, bound: BoundStore, items: Sequence[GetItem], **_: object) -> tuple[GetResult, ...]:
        self.calls.append((bound.identity, tuple(items)))
        if self.latency:
            await self.clock.sleep(self.latency)
        if self.error is not None:
            raise self.error
        if any(item.ref.key == self.poison for item in items):
            raise ProviderError(ErrorReason.INVALID_REQUEST, "one of them is bad")
        return tuple(self.answer(bound, item) for item in items)

    def answer(self, bound: BoundStore, item: GetItem) -> GetResult:
        if item.ref.key in self.missing:
            return GetResult(item.item_id, ProviderError(ErrorReason.SECRET_NOT_FOUND, f"no {item.ref.key}"))
        said = f"{bound.identity}|{item.ref}|{item.shape}|{item.if_version_differs}".encode()
        return GetResult(item.item_id, SecretBytes(said))


def batcher(backend: Backend, **changes: float) -> ReadBatcher:
    return ReadBatcher(
        backend,
        backend.clock,
        settings=replace(BatchSettings(), **changes),  # type: ignore[arg-type]  # numbers of either kind
        metrics=ProviderMetrics(CollectorRegistry()),
    )


@pytest.fixture
async def backend() -> Backend:
    return Backend(VirtualClock())


async def test_reads_of_many_callers_become_one_call_with_distinct_items(backend: Backend) -> None:
    reads = batcher(backend)
    callers = [asyncio.create_task(reads.read(bound_store(), wanted("a", f"own-{n}"))) for n in range(10)]

    await backend.clock.run_until_idle()

    assert [len(items) for _, items in backend.calls] == [11]
    for number, caller in enumerate(callers):
        assert [result.item_id for result in caller.result()] == ["a", f"own-{number}"]


async def test_values_are_freed_with_their_last_reader_and_not_by_the_garbage_collector(backend: Backend) -> None:
    reads = batcher(backend)
    before = values_in_memory()

    gc.disable()
    try:
        callers = [asyncio.create_task(reads.read(bound_store(), wanted("a", "b"))) for _ in range(3)]
        await backend.clock.run_until_idle()
        assert values_in_memory() > before
        callers.clear()
        await backend.clock.advance(600)  # no later reader may share them

        assert values_in_memory() == before
    finally:
        gc.enable()


def values_in_memory() -> int:
    return sum(isinstance(each, SecretBytes) for each in gc.get_objects())


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(bound_store(identity="x"), bound_store(identity="y"), id="identity"),
        pytest.param(bound_store(endpoint("ipv4:1.1.1.1:1")), bound_store(endpoint("ipv4:1.1.1.2:1")), id="endpoint"),
        pytest.param(bound_store(), bound_store(tls=SecretTls("team", "own")), id="certificates"),
        pytest.param(bound_store(), bound_store(policy=CallPolicy(gated=False, call_timeout=1)), id="policy"),
    ],
)
async def test_callers_that_differ_never_share(backend: Backend, first: BoundStore, second: BoundStore) -> None:
    reads = batcher(backend)
    callers = [asyncio.create_task(reads.read(bound, wanted("a"))) for bound in (first, second)]

    await backend.clock.run_until_idle()

    assert len(backend.calls) == 2
    assert all(caller.result() for caller in callers)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(GetItem("a", RemoteRef("a", version="2")), id="version"),
        pytest.param(GetItem("a", RemoteRef("a", property="p")), id="property"),
        pytest.param(GetItem("a", RemoteRef("a", metadata_policy=MetadataPolicy.FETCH)), id="metadata policy"),
        pytest.param(GetItem("a", RemoteRef("a"), Shape.MAP), id="shape"),
        pytest.param(GetItem("a", RemoteRef("a"), if_version_differs="1"), id="known version"),
    ],
)
async def test_questions_that_differ_are_asked_apart(backend: Backend, other: GetItem) -> None:
    reads = batcher(backend)
    callers = [asyncio.create_task(reads.read(bound_store(), [item])) for item in (*wanted("a"), other)]

    await backend.clock.run_until_idle()

    assert [len(items) for _, items in backend.calls] == [2]
    assert callers[0].result() != callers[1].result()


@pytest.mark.parametrize(("told", "sizes"), [(0, [5, 5, 2]), (3, [3, 3, 3, 3]), (9, [5, 5, 2])])
async def test_batches_are_as_large_as_both_sides_allow(backend: Backend, told: int, sizes: list[int]) -> None:
    reads = batcher(backend, max_batch_items=5)
    bound = bound_store(limits=Limits(max_batch_items=told))
    read = asyncio.create_task(reads.read(bound, wanted(*"abcdefghijkl")))

    await backend.clock.run_until_idle()

    assert [len(items) for _, items in backend.calls] == sizes
    assert [result.item_id for result in read.result()] == list("abcdefghijkl")


@pytest.mark.parametrize(
    ("requested_at", "calls"),
    [
        pytest.param(0.0, 1, id="asked before the call began"),
        pytest.param(3.0, 2, id="asked while it was on its way"),
        pytest.param(None, 2, id="asked now"),
    ],
)
async def test_a_read_joins_a_call_on_its_way_only_with_an_older_question(
    backend: Backend, requested_at: float | None, calls: int
) -> None:
    backend.latency = 5.0
    reads, start = batcher(backend), backend.clock.monotonic()
    asked = None if requested_at is None else start + requested_at
    first = asyncio.create_task(reads.read(bound_store(), wanted("a")))
    await backend.clock.advance(4.0)

    second = asyncio.create_task(reads.read(bound_store(), wanted("a", "b"), requested_at=asked))
    await backend.clock.advance(10.0)

    assert first.result()[0].outcome == second.result()[0].outcome
    assert len([items for _, items in backend.calls if any(item.ref.key == "a" for item in items)]) == calls


async def test_who_joined_a_call_hears_of_its_failure_too(backend: Backend) -> None:
    backend.latency, backend.error = 5.0, ProviderError(ErrorReason.BACKEND_UNAVAILABLE, "down")
    reads, start = batcher(backend), backend.clock.monotonic()
    first = asyncio.create_task(reads.read(bound_store(), wanted("a")))
    await backend.clock.advance(4.0)

    second = asyncio.create_task(reads.read(bound_store(), wanted("a"), requested_at=start))
    await backend.clock.advance(4.0)

    for reader in (first, second):
        with pytest.raises(ProviderError, match="down"):
            reader.result()
    assert len(backend.calls) == 1


async def test_a_cancelled_caller_does_not_affect_the_others(backend: Backend) -> None:
    backend.latency = 5.0
    reads = batcher(backend)
    leaving = asyncio.create_task(reads.read(bound_store(), wanted("a", "b")))
    staying = asyncio.create_task(reads.read(bound_store(), wanted("b", "c")))
    await backend.clock.advance(1.0)

    leaving.cancel()
    await backend.clock.run_until_idle()

    assert leaving.cancelled()
    assert [result.item_id for result in staying.result()] == ["b", "c"]


async def test_items_without_a_waiting_caller_are_not_read(backend: Backend) -> None:
    reads = batcher(backend, merge_window=1.0)
    leaving = asyncio.create_task(reads.read(bound_store(), wanted("a", "b")))
    staying = asyncio.create_task(reads.read(bound_store(), wanted("b")))
    await backend.clock.settle()

    leaving.cancel()
    await backend.clock.run_until_idle()

    assert [[item.ref.key for item in items] for _, items in backend.calls] == [["b"]]
    assert staying.result()


async def test_a_failed_call_reaches_every_caller_as_an_error_of_its_own(backend: Backend) -> None:
    backend.error = ProviderError(ErrorReason.BACKEND_ERROR, "down", retry_after=3.0, backend_code="500")
    reads = batcher(backend)
    callers = [asyncio.create_task(reads.read(bound_store(), wanted("a"))) for _ in range(3)]

    await backend.clock.run_until_idle()
    errors = [caller.exception() for caller in callers]

    assert errors == [backend.error] * 3
    assert len({id(error) for error in errors}) == 3


async def test_a_failed_batch_fails_only_its_items(backend: Backend) -> None:
    backend.poison = "b"
    reads = batcher(backend, max_batch_items=1)
    both = asyncio.create_task(reads.read(bound_store(), wanted("a", "b")))

    await backend.clock.run_until_idle()
    good, bad = both.result()

    assert isinstance(good.outcome, SecretBytes)
    assert isinstance(bad.outcome, ProviderError)


async def test_one_callers_bad_item_does_not_spoil_the_others(backend: Backend) -> None:
    backend.poison = "bad"
    reads = batcher(backend)
    good = [asyncio.create_task(reads.read(bound_store(), wanted(f"key-{n}"))) for n in range(20)]
    bad = asyncio.create_task(reads.read(bound_store(), wanted("bad")))

    await backend.clock.run_until_idle()

    assert all(isinstance(caller.result()[0].outcome, SecretBytes) for caller in good)
    assert isinstance(bad.exception(), ProviderError)
    assert len(backend.calls) <= 2 * 21


async def test_more_than_the_bound_of_waiting_items_is_refused(backend: Backend) -> None:
    reads = batcher(backend, max_waiting_items=3)
    first = asyncio.create_task(reads.read(bound_store(), wanted("a", "b", "c")))
    await backend.clock.settle()

    with pytest.raises(ProviderError, match="3 calls already wait"):
        await reads.read(bound_store(), wanted("d"))
    await backend.clock.run_until_idle()

    assert len(first.result()) == 3


async def test_a_defect_of_ours_reaches_the_callers_and_not_only_the_log(backend: Backend) -> None:
    class Defective(Backend):
        async def get(self, bound: BoundStore, items: Sequence[GetItem], **_: object) -> tuple[GetResult, ...]:
            del bound, items
            raise KeyError("a defect")

    reads = batcher(Defective(backend.clock))
    caller = asyncio.create_task(reads.read(bound_store(), wanted("a")))

    await backend.clock.run_until_idle()

    assert isinstance(caller.exception(), ProviderError)


async def test_closing_cancels_calls_in_flight(backend: Backend) -> None:
    backend.latency = 10.0
    reads = batcher(backend)
    caller = asyncio.create_task(reads.read(bound_store(), wanted("a")))
    await backend.clock.advance(1.0)

    await reads.close()
    await backend.clock.settle()

    assert caller.cancelled()


KEYS = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=6)
CALLERS = st.lists(st.tuples(st.sampled_from("xy"), KEYS, st.integers(0, 3)), min_size=1, max_size=12)


@settings(max_examples=80, deadline=None)
@given(CALLERS, st.frozensets(st.sampled_from("abcdef")), st.integers(1, 4), st.sampled_from([0.0, 1.5]))
def test_any_interleaving_gives_each_caller_what_a_direct_read_gives(
    callers: list[tuple[str, list[str], int]], missing: frozenset[str], batch: int, latency: float
) -> None:
    async def run() -> None:
        backend = Backend(VirtualClock(), latency=latency, missing=missing)
        reads = batcher(backend, max_batch_items=batch, merge_window=1.0)

        async def call(identity: str, keys: list[str], start: int) -> list[GetResult]:
            await backend.clock.sleep(start)
            return await reads.read(bound_store(identity=identity), numbered(keys))

        tasks = [asyncio.create_task(call(*caller)) for caller in callers]
        await backend.clock.run_until_idle()

        for (identity, keys, _), task in zip(callers, tasks, strict=True):
            direct = [backend.answer(bound_store(identity=identity), item) for item in numbered(keys)]
            assert task.result() == direct
        windows: dict[tuple[str, int], set[str]] = {}
        for identity, keys, start in callers:
            windows.setdefault((identity, start), set()).update(keys)
        assert len(backend.calls) <= sum(-(-len(keys) // batch) for keys in windows.values())
        assert all(len(items) <= batch for _, items in backend.calls)

    asyncio.run(run())


def numbered(keys: list[str]) -> list[GetItem]:
    return [GetItem(str(number), RemoteRef(key)) for number, key in enumerate(keys)]


# --- namespaces -------------------------------------------------------------------------------------------------------


def of_namespace(namespace: str) -> BoundStore:
    bound = bound_store()
    return replace(bound, resolved=replace(bound.resolved, caller=replace(bound.resolved.caller, namespace=namespace)))


@dataclass
class Noting(Backend):
    """Also notes on whose behalf it was asked."""

    callers: list[tuple[str, int]] = field(default_factory=list)

    async def get(self, bound: BoundStore, items: Sequence[GetItem], **_: object) -> tuple[GetResult, ...]:
        self.callers.append((bound.resolved.caller.namespace, len(items)))
        return await super().get(bound, items)


async def test_batches_of_a_flood_and_of_its_neighbour_are_made_apart() -> None:
    backend = Noting(VirtualClock())
    reads = batcher(backend, max_batch_items=10)
    flood = asyncio.create_task(reads.read(of_namespace("flood"), wanted(*(f"f{n}" for n in range(25)))))
    small = asyncio.create_task(reads.read(of_namespace("small"), wanted("s1", "s2")))

    await backend.clock.run_until_idle()

    assert sorted(backend.callers) == [("flood", 5), ("flood", 10), ("flood", 10), ("small", 2)]
    assert (len(flood.result()), len(small.result())) == (25, 2)


@pytest.mark.parametrize(
    ("path", "callers"),
    [
        pytest.param("users.0", [("crowd", 2)], id="a plain path"),
        pytest.param("@pretty", [("crowd", 1), ("neighbour", 1)], id="a modifier"),
        pytest.param("users.#.name", [("crowd", 1), ("neighbour", 1)], id="a query"),
    ],
)
async def test_an_expensive_property_shares_no_call_with_another_namespace(
    path: str, callers: list[tuple[str, int]]
) -> None:
    backend = Noting(VirtualClock())
    reads = batcher(backend)
    asked = [GetItem("a", RemoteRef("a", property=path))]
    crowd = asyncio.create_task(reads.read(of_namespace("crowd"), asked))
    neighbour = asyncio.create_task(reads.read(of_namespace("neighbour"), wanted("b")))

    await backend.clock.run_until_idle()

    assert sorted(backend.callers) == callers
    assert (len(crowd.result()), len(neighbour.result())) == (1, 1)


async def test_a_namespace_that_fills_the_queue_leaves_room_for_another(backend: Backend) -> None:
    backend.latency = 10.0
    reads = batcher(backend, max_waiting_items=100)
    crowd = [asyncio.create_task(reads.read(of_namespace("crowd"), wanted(f"c{n}"))) for n in range(200)]
    await backend.clock.settle()
    neighbour = asyncio.create_task(reads.read(of_namespace("neighbour"), wanted("n1", "n2")))

    await backend.clock.run_until_idle()

    refused = [caller for caller in crowd if caller.exception() is not None]
    assert len(refused) == 120
    assert len(neighbour.result()) == 2


async def test_an_object_that_reads_too_much_stops_reading(backend: Backend) -> None:
    """Its remaining reads are not sent."""

    class Large(Backend):
        async def get(self, bound: BoundStore, items: Sequence[GetItem], **_: object) -> tuple[GetResult, ...]:
            await super().get(bound, items)
            if len(items) > 1:
                raise ProviderError(ErrorReason.PAYLOAD_TOO_LARGE, "larger than one message may be")
            return (GetResult(items[0].item_id, SecretBytes(b"x" * 4 * MIB)),)

    large = Large(backend.clock)
    reads = batcher(large)
    limits = ByteLimits()
    with limits.of_object("team") as held:
        items = wanted(*(f"k{n}" for n in range(64)))
        caller = asyncio.create_task(reads.read(bound_store(), items, held=held))
        await backend.clock.run_until_idle()
        error = caller.exception()

    assert isinstance(error, ProviderError)
    assert error.reason is ErrorReason.PAYLOAD_TOO_LARGE
    assert "8 MiB in all" in error.message
    assert sum(len(items) == 1 for _, items in large.calls) == 3
    assert limits.held.taken == 0


async def test_a_reader_does_not_wait_for_the_retries_of_another(loop: LoopbackGateway) -> None:
    """Both are read by one call; only the second has an item that fails."""
    registry = ProviderMetrics(CollectorRegistry())
    reads = ReadBatcher(loop.gateway, loop.clock, settings=BatchSettings(), metrics=registry)
    loop.provider.passing_item_errors["b"] = deque([ProviderError(ErrorReason.BACKEND_UNAVAILABLE, "down")])
    bound = bound_store(policy=CallPolicy(gated=True, max_retries=1, retry_interval=10.0))
    healthy = asyncio.create_task(reads.read(bound, wanted("a")))
    failing = asyncio.create_task(reads.read(bound, wanted("a", "b")))

    await loop.clock.advance(1.0)
    early = (healthy.done(), failing.done())
    await loop.clock.advance(30.0)

    assert early == (True, False)
    assert [each.outcome for each in await failing] == [SecretBytes(b"value-of-a"), SecretBytes(b"value-of-b")]
    assert [[item.ref.key for item in asked] for asked in loop.provider.requests] == [["a", "b"], ["b"]]
