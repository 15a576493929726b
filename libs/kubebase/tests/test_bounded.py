"""A bounded mapping evicts the entry that was written or used longest ago, or whose time is over."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubebase.bounded import BoundedDict, ExpiringDict
from kubebase.testing.clock import VirtualClock


def three() -> BoundedDict[str, int]:
    known: BoundedDict[str, int] = BoundedDict(3)
    known.update(a=1, b=2, c=3)
    return known


def write(known: BoundedDict[str, int]) -> None:
    known["a"] = 5


@pytest.mark.parametrize(
    ("happens", "left"),
    [
        pytest.param(lambda _: None, ["b", "c", "d"], id="the first that was written"),
        pytest.param(write, ["c", "a", "d"], id="an entry that is written again stays"),
        pytest.param(lambda known: known.use("a"), ["c", "a", "d"], id="an entry that is used stays"),
        pytest.param(lambda known: known.get("a"), ["b", "c", "d"], id="a look is no use"),
        pytest.param(lambda known: known.setdefault("a", 7), ["b", "c", "d"], id="nor is a default that is not needed"),
        pytest.param(lambda known: known.pop("b"), ["a", "c", "d"], id="nothing while there is room"),
    ],
)
def test_a_write_above_the_bound_evicts_the_oldest(
    happens: Callable[[BoundedDict[str, int]], object], left: list[str]
) -> None:
    known = three()

    happens(known)
    known["d"] = 4

    assert list(known) == left


def test_an_entry_that_is_used_is_returned_and_a_missing_one_is_none() -> None:
    assert (three().use("b"), three().use("x")) == (2, None)


def test_evicted_entries_are_told_and_deleted_ones_are_not() -> None:
    told: list[tuple[str, int]] = []
    known: BoundedDict[str, int] = BoundedDict(1, lambda key, value: told.append((key, value)))

    known["deleted"] = 0
    del known["deleted"]
    known.update(a=1, b=2, c=3)

    assert told == [("a", 1), ("b", 2)]
    assert dict(known) == {"c": 3}


def test_a_listener_already_finds_the_new_entry_and_no_longer_the_old_one() -> None:
    seen: list[list[str]] = []
    known: BoundedDict[str, int] = BoundedDict(1, lambda _key, _value: seen.append(list(known)))

    known.update(a=1, b=2)

    assert seen == [["b"]]


@given(limit=st.integers(0, 5), keys=st.lists(st.integers(0, 9)))
def test_the_bound_always_holds_and_the_last_written_are_there(limit: int, keys: list[int]) -> None:
    known: BoundedDict[int, int] = BoundedDict(limit)

    for at, key in enumerate(keys):
        known[key] = at
        assert len(known) <= limit

    recent = list(dict.fromkeys(reversed(keys)))[:limit]
    assert list(known) == recent[::-1]


def two(clock: VirtualClock) -> ExpiringDict[str, int]:
    known: ExpiringDict[str, int] = ExpiringDict(2, clock)
    known.put("short", 1, 10.0)
    known.put("long", 2, 20.0)
    return known


@pytest.mark.parametrize(
    ("seconds", "live"),
    [
        pytest.param(0.0, {"short": 1, "long": 2}, id="both at first"),
        pytest.param(9.9, {"short": 1, "long": 2}, id="both before the first one expires"),
        pytest.param(10.0, {"long": 2}, id="not the one whose time is over"),
        pytest.param(20.0, {}, id="none in the end"),
    ],
)
async def test_an_entry_is_found_until_its_time_is_over(seconds: float, live: dict[str, int]) -> None:
    clock = VirtualClock()
    known = two(clock)

    await clock.advance(seconds)

    assert {key: known.get(key) for key in known} == live
    assert [key in known for key in ("short", "long")] == [key in live for key in ("short", "long")]
    assert known.get("short") == live.get("short")


def test_an_entry_without_a_value_is_there_until_it_is_discarded() -> None:
    known: ExpiringDict[str, None] = ExpiringDict(2, VirtualClock())

    known.put("a", None, 1.0)
    before = "a" in known
    known.discard("a")
    known.discard("never there")

    assert (before, "a" in known) == (True, False)


async def test_an_entry_that_is_put_again_lives_longer() -> None:
    clock = VirtualClock()
    known = two(clock)

    await clock.advance(5.0)
    known.put("short", 3, 10.0)
    await clock.advance(9.0)

    assert known.get("short") == 3


def test_an_entry_above_the_bound_evicts_the_oldest_even_if_it_is_live() -> None:
    known = two(VirtualClock())

    known.put("new", 3, 1.0)

    assert list(known) == ["long", "new"]


async def test_a_write_frees_the_memory_of_expired_entries() -> None:
    clock = VirtualClock()
    known: ExpiringDict[int, int] = ExpiringDict(100, clock)
    for number in range(10):
        known.put(number, number, 1.0)

    await clock.advance(1.0)
    known.put(10, 10, 1.0)

    assert len(known._entries) == 1


def test_an_entry_that_lives_no_time_is_never_found() -> None:
    known: ExpiringDict[str, int] = ExpiringDict(1, VirtualClock())

    known.put("a", 1, 0.0)

    assert known.get("a") is None
