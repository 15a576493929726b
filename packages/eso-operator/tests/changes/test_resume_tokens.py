"""Saved positions of streams: loading, writing, and the size limit."""

import json

import msgspec
import pytest

from eso_operator.changes.resumetokens import ANNOTATION, MAX_BYTES, MAX_STREAMS, MAX_TOKEN, ResumeTokens, bounded
from eso_testkit.operator.changefeeds import MemoryLeases
from kubebase.meta import JsonObject, ObjectKey
from kubebase.testing.clock import VirtualClock
from kuberun.leader import LEASES

KEY = ObjectKey("core", "streams")


def tokens(leases: MemoryLeases) -> ResumeTokens:
    return ResumeTokens(leases, KEY, VirtualClock())


async def loaded(leases: MemoryLeases) -> ResumeTokens:
    made = tokens(leases)
    await made.load()
    return made


def on_record(leases: MemoryLeases) -> dict[str, str]:
    found: dict[str, str] = json.loads(leases.held[KEY.name]["metadata"]["annotations"][ANNOTATION])
    return found


async def test_a_successor_takes_each_saved_token_once() -> None:
    leases = MemoryLeases()
    await (await loaded(leases)).save({"a": "t1", "b": ""})

    successor = await loaded(leases)

    assert [successor.was_open(name) for name in ("a", "b", "c")] == [True, True, False]
    assert [successor.take(name) for name in ("a", "a", "b", "c")] == ["t1", "", "", ""]


async def test_saved_tokens_are_not_written_again() -> None:
    leases = MemoryLeases()
    first = await loaded(leases)
    await first.save({"a": "t1", "b": "t2"})
    await first.save({"b": "t2"})

    await (await loaded(leases)).save({"b": "t2", "a": "t1"})

    assert leases.writes == 1


async def test_streams_of_earlier_processes_stay_on_record() -> None:
    leases = MemoryLeases()
    await (await loaded(leases)).save({"a": "t1"})

    await (await loaded(leases)).save({"b": "t2"})

    assert on_record(leases) == {"a": "t1", "b": "t2"}


async def test_one_who_was_replaced_does_not_overwrite_its_successor_and_its_next_word_is_based_on_that() -> None:
    leases = MemoryLeases()
    old = await loaded(leases)
    await old.save({"a": "t1"})
    await (await loaded(leases)).save({"a": "t2"})

    await old.save({"a": "late"})
    kept = on_record(leases)
    await old.save({"a": "t3"})

    assert kept == {"a": "t2"}
    assert on_record(leases) == {"a": "t3"}


@pytest.mark.parametrize(
    "lease",
    [
        pytest.param({"metadata": {"name": KEY.name}}, id="no annotations"),
        pytest.param({"metadata": {"name": KEY.name, "annotations": {ANNOTATION: "{"}}}, id="no JSON"),
        pytest.param({"metadata": {"name": KEY.name, "annotations": {ANNOTATION: '{"a": 1}'}}}, id="another shape"),
    ],
)
async def test_a_record_that_cannot_be_read_is_an_empty_one(lease: JsonObject) -> None:
    leases = MemoryLeases()
    await leases.create(LEASES, lease)

    found = await loaded(leases)
    await found.save({"a": "t1"})

    assert not found.was_open("a")
    assert on_record(leases) == {"a": "t1"}


async def test_an_api_server_that_is_away_costs_the_record_and_nothing_else() -> None:
    leases = MemoryLeases(down=True)
    found = await loaded(leases)
    await found.save({"a": "t1"})
    leases.down = False

    await found.save({"a": "t1"})

    assert on_record(leases) == {"a": "t1"}


async def test_annotations_of_others_stay() -> None:
    leases = MemoryLeases()
    await leases.create(LEASES, {"metadata": {"name": KEY.name, "annotations": {"owner": "team"}}})

    await (await loaded(leases)).save({"a": "t1"})

    assert leases.held[KEY.name]["metadata"]["annotations"]["owner"] == "team"


def test_a_token_that_is_too_long_is_known_to_be_there_only() -> None:
    found = bounded({"a": "x" * MAX_TOKEN, "b": "x" * (MAX_TOKEN + 1)}, newest={})

    assert found == {"a": "x" * MAX_TOKEN, "b": ""}


def test_those_that_are_heard_now_go_last() -> None:
    old = {f"old-{number}": "t" for number in range(MAX_STREAMS)}
    new = {f"new-{number}": "t" for number in range(10)}

    found = bounded({**old, **new}, newest=new)

    assert len(found) == MAX_STREAMS
    assert new.keys() <= found.keys()


def test_the_record_is_bounded_and_the_longest_tokens_go_first() -> None:
    short = {f"short-{number}": "t" for number in range(100)}
    long = {f"long-{number}": '"' * MAX_TOKEN for number in range(400)}

    found = bounded({**short, **long}, newest={**short, **long})

    assert len(msgspec.json.encode(found)) <= MAX_BYTES
    assert len(found) == 500
    assert all(found[name] == "t" for name in short)
    assert any(found[name] for name in long)
