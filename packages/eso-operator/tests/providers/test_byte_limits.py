"""Bytes that reconciles hold: bounded for each object, and in all."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from eso_operator.providers.bytelimits import MIB, ByteLimits, HeldBytes
from eso_wire.errors import ErrorReason, ProviderError


def test_an_object_that_reads_too_much_gets_an_error() -> None:
    with ByteLimits(object_bytes=8 * MIB).of_object("team") as held:
        held.add(4 * MIB)
        held.add(4 * MIB)
        with pytest.raises(ProviderError) as refused:
            held.add(1)
    assert refused.value.reason is ErrorReason.PAYLOAD_TOO_LARGE
    assert "8 MiB" in refused.value.message


def test_a_namespace_that_holds_most_is_refused_and_its_neighbour_is_not() -> None:
    limits = ByteLimits(object_bytes=8 * MIB, total_bytes=64 * MIB)
    with ExitStack() as runs:
        for _ in range(6):
            runs.enter_context(limits.of_object("greedy")).add(8 * MIB)
        seventh = runs.enter_context(limits.of_object("greedy"))
        with pytest.raises(ProviderError) as refused:
            seventh.add(8 * MIB)
        runs.enter_context(limits.of_object("neighbour")).add(8 * MIB)
    assert refused.value.reason is ErrorReason.BACKEND_UNAVAILABLE
    assert '"greedy"' in refused.value.message


def test_bytes_of_a_try_that_failed_are_not_counted_twice() -> None:
    limits = ByteLimits(object_bytes=8 * MIB)
    with limits.of_object("team") as held:
        held.add(MIB)
        for _ in range(3):
            with pytest.raises(RuntimeError), held.released_on_error():
                _read_and_fail(held)
        assert held.bytes == limits.held.taken == MIB


def _read_and_fail(held: HeldBytes) -> None:
    held.add(5 * MIB)
    raise RuntimeError("the stream ended")


def test_a_run_releases_its_share_when_it_ends() -> None:
    limits = ByteLimits(object_bytes=8 * MIB, total_bytes=16 * MIB)
    for _ in range(100):
        with limits.of_object("team") as held:
            held.add(8 * MIB)
    assert limits.held.taken == 0


def test_an_answer_after_the_run_is_not_counted() -> None:
    limits = ByteLimits()
    with limits.of_object("team") as held:
        pass
    held.add(MIB)
    assert limits.held.taken == 0
