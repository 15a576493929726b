"""The rate of rewrites of an object that another writer changes back."""

from eso_operator.controllers.contention import BURST, REFILL_SECONDS, Contention
from kubebase.meta import ObjectKey
from kubebase.testing.clock import VirtualClock


async def test_rewrites_are_limited_and_a_new_wish_is_written_at_once() -> None:
    clock = VirtualClock()
    contention = Contention(clock)
    one, other = ObjectKey("a", "db"), ObjectKey("b", "db")

    assert [contention.allows(one, "desired") for _ in range(BURST + 1)] == [True] * BURST + [False]
    assert contention.allows(other, "desired")
    await clock.advance(REFILL_SECONDS)
    assert [contention.allows(one, "desired") for _ in range(2)] == [True, False]
    assert contention.allows(one, "another")


async def test_only_what_was_rewritten_counts() -> None:
    contention = Contention(VirtualClock(), burst=1)
    key = ObjectKey("a", "db")

    assert [contention.exhausted(key, "desired") for _ in range(3)] == [False] * 3
    contention.count(key, "desired")
    assert contention.exhausted(key, "desired")


async def test_objects_at_peace_are_forgotten() -> None:
    clock = VirtualClock()
    contention = Contention(clock)
    for index in range(100):
        contention.allows(ObjectKey(f"n{index}", "db"), "desired")

    await clock.advance(REFILL_SECONDS * BURST)
    contention.allows(ObjectKey("last", "db"), "desired")

    assert len(contention._buckets) == 1
