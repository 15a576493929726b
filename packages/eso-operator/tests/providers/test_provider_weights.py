"""Bytes that reconciles hold: bounded for each object, and in all."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from eso_operator.providers.protection.weights import MIB, Hold, Weights, current_hold
from eso_wire.errors import ErrorReason, ProviderError
from kubebase.meta import ObjectKey
from kubebase.testing.clock import START
from kuberun.controller import Done, ReconcileContext, Result


def test_an_object_that_reads_too_much_gets_an_error() -> None:
    with Weights(object_bytes=8 * MIB).object("team") as hold:
        hold.add(4 * MIB)
        hold.add(4 * MIB)
        with pytest.raises(ProviderError) as refused:
            hold.add(1)
    assert refused.value.reason is ErrorReason.PAYLOAD_TOO_LARGE
    assert "8 MiB" in refused.value.message


def test_a_namespace_that_holds_most_is_refused_and_its_neighbour_is_not() -> None:
    weights = Weights(object_bytes=8 * MIB, total_bytes=64 * MIB)
    with ExitStack() as runs:
        for _ in range(6):
            runs.enter_context(weights.object("greedy")).add(8 * MIB)
        seventh = runs.enter_context(weights.object("greedy"))
        with pytest.raises(ProviderError) as refused:
            seventh.add(8 * MIB)
        runs.enter_context(weights.object("neighbour")).add(8 * MIB)
    assert refused.value.reason is ErrorReason.BACKEND_UNAVAILABLE
    assert '"greedy"' in refused.value.message


def test_bytes_of_a_try_that_failed_are_not_counted_twice() -> None:
    weights = Weights(object_bytes=8 * MIB)
    with weights.object("team") as hold:
        hold.add(MIB)
        for _ in range(3):
            with pytest.raises(RuntimeError), hold.released_on_error():
                _read_and_fail(hold)
        assert hold.bytes == weights.held.taken == MIB


def _read_and_fail(hold: Hold) -> None:
    hold.add(5 * MIB)
    raise RuntimeError("the stream ended")


def test_a_run_releases_its_share_when_it_ends() -> None:
    weights = Weights(object_bytes=8 * MIB, total_bytes=16 * MIB)
    for _ in range(100):
        with weights.object("team") as hold:
            hold.add(8 * MIB)
    assert weights.held.taken == 0


def test_an_answer_after_the_run_is_not_counted() -> None:
    weights = Weights()
    with weights.object("team") as hold:
        pass
    hold.add(MIB)
    assert weights.held.taken == 0


async def test_the_reads_of_a_reconcile_are_its_own() -> None:
    weights = Weights()
    seen: list[int] = []

    async def reconcile(_: ObjectKey, __: ReconcileContext) -> Result:
        hold = current_hold()
        assert hold is not None
        hold.add(5)
        seen.append(weights.held.held("team"))
        return Done()

    await weights.weighed(reconcile)(ObjectKey("team", "a"), ReconcileContext(START))
    assert seen == [5]
    assert current_hold() is None
