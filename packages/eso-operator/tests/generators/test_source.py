"""Answers of generators are counted like reads, wait for room, and are not kept after the reconcile."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from eso_api.references import GeneratorRef, StoreRef
from eso_api.values import SecretBytes
from eso_operator.generators.ledger import GeneratedValues, GeneratorLedger, Intent
from eso_operator.generators.source import GeneratorSource
from eso_operator.providers.bytelimits import MIB, ByteLimits
from eso_operator.sources.fetch import Fetcher
from eso_operator.stores.resolved import BoundStore, Need, ResolvedStore
from eso_render.rendering import rendering_of_keys
from eso_render.workers import Workers
from eso_testkit.operator.boundstores import bound_store
from eso_testkit.operator.externalsecrets import external_secret
from eso_testkit.operator.gateways import LoopbackGateway
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import ObjectRef

REF = GeneratorRef(kind="Password", name="maker")
CALLER = ObjectRef("v1", "ExternalSecret", "team", "caller", "uid", 1)


@dataclass
class Record(GeneratorLedger):
    """What a source records about its calls. Stands for the ledger."""

    given_up: list[Intent] = field(default_factory=list)
    rolled_back: list[GeneratedValues] = field(default_factory=list)

    async def intend(self, bound: BoundStore, index: int) -> Intent:
        return Intent(f"{bound.identity}-{index}")

    async def give_up(self, intent: Intent) -> None:
        self.given_up.append(intent)

    async def roll_back(self, generated: Sequence[GeneratedValues]) -> None:
        self.rolled_back += generated


@dataclass
class Maker:
    """A source of generated values over a scripted provider, and the limits that it counts with."""

    loop: LoopbackGateway
    limits: ByteLimits
    record: Record = field(default_factory=Record)
    most_held: int = 0

    async def resolve(self, ref: StoreRef | GeneratorRef, caller: ObjectRef, need: Need) -> ResolvedStore:
        del caller, need
        resolved = bound_store().resolved
        return replace(resolved, store=replace(resolved.store, name=ref.name))

    async def bind(self, resolved: ResolvedStore) -> BoundStore:
        return replace(bound_store(identity=resolved.store.name), resolved=resolved)

    @property
    def source(self) -> GeneratorSource:
        resolver: Any = self  # only `resolve` is used
        return GeneratorSource(resolver, self.bind, self.loop.gateway, clock=self.loop.clock, ledger=self.record)

    @property
    def fetcher(self) -> Fetcher:
        unused: Any = self
        rendering = rendering_of_keys(Workers())
        return Fetcher(unused, self.bind, reads=unused, gateway=unused, generators=self.source, rendering=rendering)

    async def generate(self, namespace: str = "team") -> ProviderError | None:
        """Generate values in one reconcile of one object; return its error."""
        with self.limits.of_object(namespace) as held:
            try:
                await self.source.generate(replace(CALLER, namespace=namespace), 0, REF, held)
            except ProviderError as error:
                return error
            self.most_held = max(self.most_held, self.limits.held.taken)
            await self.loop.clock.sleep(1.0)
        return None


@pytest.fixture
def maker(loop: LoopbackGateway) -> Maker:
    return Maker(loop, ByteLimits(object_bytes=8 * MIB, total_bytes=16 * MIB))


async def test_many_objects_with_large_answers_hold_at_most_the_budget(maker: Maker) -> None:
    maker.loop.provider.generated = {"large": b"x" * 4 * MIB}
    objects = [asyncio.create_task(maker.generate()) for _ in range(40)]

    await maker.loop.clock.run_until_idle()

    refused = [error for each in objects if (error := each.result()) is not None]
    assert 4 * MIB <= maker.most_held <= 16 * MIB
    assert {error.reason for error in refused} == {ErrorReason.BACKEND_UNAVAILABLE}
    assert maker.limits.held.taken == maker.limits.expected.taken == 0


async def test_calls_wait_until_there_is_room_for_their_answers(maker: Maker) -> None:
    provider = maker.loop.provider
    provider.generated = {"large": b"x" * 2 * MIB}
    provider.latency = 1.0
    waiting = [asyncio.create_task(maker.generate()) for _ in range(40)]
    await maker.loop.clock.settle()
    unknown = provider.calls["Generate"]

    await maker.loop.clock.advance(1.0)
    await maker.loop.clock.settle()
    known_as_large = provider.calls["Generate"] - unknown
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)

    assert unknown == 13  # of 16 answers of one mebibyte: the last ones are left to other namespaces
    assert 0 < known_as_large * 5 <= 16


async def test_another_namespace_does_not_wait_for_the_room_of_a_crowd(maker: Maker) -> None:
    provider = maker.loop.provider
    provider.latency = 10.0
    crowd = [asyncio.create_task(maker.generate("crowd")) for _ in range(40)]
    await maker.loop.clock.settle()
    before = provider.calls["Generate"]

    neighbour = asyncio.create_task(maker.generate("neighbour"))
    await maker.loop.clock.settle()
    called = provider.calls["Generate"] - before
    for task in (*crowd, neighbour):
        task.cancel()
    await asyncio.gather(*crowd, neighbour, return_exceptions=True)

    assert called == 1


async def test_a_call_without_room_in_time_is_not_made(maker: Maker) -> None:
    await maker.limits.expected.acquire("crowd", 16)
    call = asyncio.create_task(maker.generate())

    await maker.loop.clock.run_until_idle()

    error = call.result()
    assert error is not None
    assert error.reason is ErrorReason.BACKEND_TIMEOUT
    assert "16 MiB" in error.message
    assert maker.loop.provider.calls["Generate"] == 0
    assert maker.limits.expected.taken == 16


async def test_an_answer_that_is_too_large_for_the_object_is_cleaned_up(maker: Maker) -> None:
    maker.loop.provider.generated = {"large": b"x" * 3 * MIB}
    maker.loop.provider.state = b'{"id": 1}'

    with maker.limits.of_object("team") as held:
        for index in range(2):
            await maker.source.generate(CALLER, index, REF, held)
        with pytest.raises(ProviderError) as refused:
            await maker.source.generate(CALLER, 2, REF, held)
        total = held.bytes

    assert refused.value.reason is ErrorReason.PAYLOAD_TOO_LARGE
    assert [made.index for made in maker.record.rolled_back] == [2]
    assert maker.record.given_up == []
    assert 6 * MIB <= total < 7 * MIB


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(None, id="without a failure"),
        pytest.param(ErrorReason.CREDENTIALS_REJECTED, id="with an entry that closes the budget of its identity"),
        pytest.param(ErrorReason.PERMISSION_DENIED, id="with an entry that fails"),
    ],
)
async def test_values_are_not_kept_after_a_fetch(maker: Maker, failure: ErrorReason | None) -> None:
    """A cycle would keep them until the garbage collector runs, which it seldom does in the operator."""
    size = 1_000_003
    maker.loop.provider.generated = {"large": b"x" * size}
    maker.loop.provider.errors.extend([] if failure is None else [ProviderError(failure, "no")])
    generators = [{"sourceRef": {"generatorRef": {"kind": "Password", "name": f"maker-{n}"}}} for n in range(3)]
    gc.disable()
    try:
        with maker.limits.of_object("team") as held:
            fetched = await maker.fetcher.fetch(external_secret(data=[], dataFrom=generators), held=held)
        failures = [each.reason for each in fetched.failures]
        del fetched

        kept = [each for each in gc.get_objects() if isinstance(each, SecretBytes) and len(each) == size]
    finally:
        gc.enable()

    assert kept == []
    assert len(failures) == (failure is not None)
