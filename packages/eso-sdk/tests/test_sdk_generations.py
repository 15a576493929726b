"""States of recent generator calls: known by their key for an hour, in every session of the process."""

from __future__ import annotations

from eso_api.values import SecretBytes
from eso_sdk.processwide import KEEP_SECONDS, generations_of
from kubebase.testing.clock import VirtualClock

STATE = SecretBytes(b"{}")


async def test_a_call_is_known_in_every_session_until_it_is_forgotten_or_an_hour_old() -> None:
    clock = VirtualClock()
    for key in ("one", "two", ""):
        generations_of("tokens", clock).add(key, STATE)
    generations_of("tokens", clock).forget("one")

    assert [generations_of("tokens", clock).of(key) for key in ("one", "two", "")] == [None, STATE, None]
    assert generations_of("others", clock).of("two") is None
    await clock.advance(KEEP_SECONDS + 1)
    assert generations_of("tokens", clock).of("two") is None
