"""The results of recent generator calls are known until they are revoked or too old."""

from __future__ import annotations

from eso_provider_vault.dynamic import STATE_SECONDS, Generations, LeaseState
from kubebase.testing.clock import VirtualClock

STATE = LeaseState(lease_id="lease")


async def test_a_result_is_found_by_the_key_of_its_call_for_an_hour() -> None:
    clock = VirtualClock()
    generations = Generations(clock)

    generations.add("key", STATE)
    await clock.advance(STATE_SECONDS - 1)
    before = generations.of("key")
    await clock.advance(1)

    assert (before, generations.of("key"), generations.of("another")) == (STATE, None, None)


def test_a_result_that_was_revoked_is_not_found() -> None:
    generations = Generations(VirtualClock())

    generations.add("key", STATE)
    generations.forget("key")

    assert generations.of("key") is None


def test_a_call_without_a_key_is_not_remembered() -> None:
    generations = Generations(VirtualClock())

    generations.add("", STATE)

    assert generations.of("") is None
