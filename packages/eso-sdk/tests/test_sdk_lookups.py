"""Lookups of properties: cheap ones run at once, expensive ones in worker processes and within budgets."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from eso_api.values import SecretBytes
from eso_sdk.lookups import (
    INLINE_WORK,
    NAMESPACE_SECONDS,
    SMALL_WORK,
    CallLookups,
    Job,
    LookupWorkers,
    perform,
)
from eso_sdk.testing import InMemory, call_context
from eso_sdk.testing.scripted import SCRIPTED, Script, Scripted
from eso_wire.errors import ErrorReason, ProviderError, RetryClass
from eso_wire.values import GetItem, RemoteRef
from kubebase.clock import SystemClock

CLOCK = SystemClock()
PEOPLE = json.dumps({"people": [{"name": f"CANARY-{number}", "age": number} for number in range(500)]}).encode()
WIDE = json.dumps({f"key-{number}": f"value {number} of a long list" for number in range(20_000)}).encode()
ESCAPES = b'{"a":"%s"}' % (b"\\n" * 400_000)
"""It counts as much work and takes little time."""
SLOW = "|".join(["@pretty|@ugly"] * 6)
"""On WIDE, more than a second of work."""


class LaterClock(SystemClock):
    """A clock that a test moves forward."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


def of_call(namespace: str = "team", *, seconds: float = 60.0, **budget: int) -> CallLookups:
    return CallLookups(CLOCK, namespace, CLOCK.monotonic() + seconds, **budget)


def children() -> set[int]:
    listed = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii")
    return {int(pid) for pid in listed.split()}


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(Job("get", PEOPLE, "people.3.name"), id="a path"),
        pytest.param(Job("get", PEOPLE, "people.#(age>400)#.name"), id="a query"),
        pytest.param(Job("get", PEOPLE, "[people.0.age,people.#]|@pretty"), id="a multipath"),
        pytest.param(Job("get", PEOPLE, "@tostr"), id="a modifier"),
        pytest.param(Job("get", PEOPLE, "nobody"), id="no such property"),
        pytest.param(Job("get", b'{"a":null}', "a"), id="null"),
        pytest.param(Job("get", b'{"a":"\xff\xc3\xbc"}', "a"), id="bytes that are not UTF-8"),
        pytest.param(Job("get", b"{}", "a" * 5000), id="a path that is too long"),
        pytest.param(Job("set", PEOPLE, "people.0.name", b"new"), id="a change"),
        pytest.param(Job("set", PEOPLE, "people.#.name", b"new"), id="a change that names no single place"),
        pytest.param(Job("delete", PEOPLE, "people.0"), id="a removal"),
    ],
)
async def test_a_worker_gives_the_same_result_as_the_event_loop(job: Job) -> None:
    here = perform(job)

    there = await LookupWorkers(CLOCK).run(job, of_call(), "key")

    assert there == here


async def test_ordinary_lookups_of_a_call_start_no_process() -> None:
    script = Script.new(values={"people": json.dumps({"name": "jane", "ports": [1, 2]}).encode()})
    items = [GetItem(str(number), RemoteRef("people", property="ports.1")) for number in range(500)]

    async with InMemory(SCRIPTED) as provider:
        before = children()
        results = await provider.get(call_context(Scripted, {"script": script.name}), items)
        after = children()

    assert [result.outcome for result in results] == [SecretBytes(b"2")] * 500
    assert after <= before


async def test_a_small_lookup_stays_on_the_event_loop_when_the_call_has_spent_its_share() -> None:
    call = of_call(work=0)
    call.take_inline(INLINE_WORK)
    small = Job("get", b'{"a":"b"}', "a")

    outcome = await call.run(small)

    assert outcome.value == b"b"
    assert 0 < outcome.work < SMALL_WORK


async def test_expensive_paths_of_a_call_are_refused_and_its_other_items_are_answered() -> None:
    value = b'{"password":"%s","port":"5432"}' % (b"CANARY" * 130_000)
    path = "|".join(["@pretty|@ugly"] * 15)
    script = Script.new(values={"app": value, "db": b'{"port":"5432"}'})
    items = [GetItem(f"{number}", RemoteRef("app", property=f"{path}|x{number}")) for number in range(200)]

    async with InMemory(SCRIPTED) as provider:
        context = call_context(Scripted, {"script": script.name})
        results = await provider.get(context, [*items, GetItem("db", RemoteRef("db", property="port"))])

    *attack, ordinary = [result.outcome for result in results]
    assert ordinary == SecretBytes(b"5432")
    refused = [one for one in attack if isinstance(one, ProviderError) and one.reason is ErrorReason.INVALID_REQUEST]
    assert refused
    assert {one.reason for one in attack if isinstance(one, ProviderError)} <= {
        ErrorReason.INVALID_REQUEST,
        ErrorReason.PROPERTY_NOT_FOUND,
    }
    for error in refused:
        assert error.retry in {RetryClass.AFTER_CHANGE, RetryClass.BACKOFF}  # too much work; too slow on a busy machine
        assert 'property "@pretty|@ugly' in error.message
        assert 'of "app"' in error.message
        assert "shorten the path, or split the value" in error.message
        assert "CANARY" not in error.message


@pytest.mark.parametrize(
    ("path", "call_work", "namespace_work", "words", "retry"),
    [
        pytest.param(
            "|".join(["@pretty|@ugly"] * 40), 2**40, 2**40, "too much work on this value", RetryClass.NEVER, id="a path"
        ),
        pytest.param("@pretty", 1000, 2**40, "too much work together", RetryClass.AFTER_CHANGE, id="a call"),
        pytest.param("@pretty", 0, 2**40, "too much work together", RetryClass.AFTER_CHANGE, id="a call, later"),
        pytest.param("@pretty", 2**40, 1000, 'namespace "team" used up', RetryClass.AFTER_CHANGE, id="a namespace"),
    ],
)
async def test_work_beyond_a_budget_is_refused(
    path: str, call_work: int, namespace_work: int, words: str, retry: RetryClass
) -> None:
    workers = LookupWorkers(CLOCK, namespace_work=namespace_work)

    with pytest.raises(ProviderError) as refused:
        await workers.run(Job("get", ESCAPES, path), of_call(work=call_work), "app")

    assert (refused.value.reason, refused.value.retry) == (ErrorReason.INVALID_REQUEST, retry)
    assert words in refused.value.message
    assert 'of "app" cannot be looked up' in refused.value.message


async def test_a_namespace_that_used_up_its_work_takes_nothing_from_others_and_may_work_again_later() -> None:
    clock = LaterClock()
    workers = LookupWorkers(clock, namespace_work=perform(Job("get", PEOPLE, "people.#")).work)
    job = Job("get", PEOPLE, "people.#")

    first = await workers.run(job, of_call("crowd"), "app")
    with pytest.raises(ProviderError, match='namespace "crowd" used up'):
        await workers.run(job, of_call("crowd"), "app")
    other = await workers.run(job, of_call("neighbour"), "app")
    clock.ahead = NAMESPACE_SECONDS
    later = await workers.run(job, of_call("crowd"), "app")

    assert first == other == later


async def test_a_lookup_that_takes_too_long_ends_with_its_process_before_the_call_does() -> None:
    before = children()
    warm = of_call()
    warm.take_inline(INLINE_WORK)
    await warm.run(Job("get", PEOPLE, "people.#.name"))
    (worker,) = children() - before
    call = of_call(seconds=0.2)

    with pytest.raises(ProviderError, match="take longer than they may") as refused:
        await call.run(Job("get", WIDE, SLOW), "app")

    assert refused.value.reason is ErrorReason.INVALID_REQUEST
    assert worker not in children()
    again = of_call()
    again.take_inline(INLINE_WORK)
    assert await again.run(Job("get", PEOPLE, "people.#")) == perform(Job("get", PEOPLE, "people.#"))


async def test_one_namespace_leaves_a_worker_to_the_others() -> None:
    workers = LookupWorkers(CLOCK)
    crowd = of_call("crowd")
    attack = [asyncio.create_task(workers.run(Job("get", WIDE, SLOW), crowd, "app")) for _ in range(4)]
    await asyncio.wait(attack, return_when=asyncio.FIRST_COMPLETED)

    await workers.run(Job("get", PEOPLE, "people.#"), of_call("neighbour"), "app")

    assert not all(task.done() for task in attack)
    for task in attack:
        task.cancel()
    await asyncio.gather(*attack, return_exceptions=True)


async def test_a_worker_has_no_value_in_its_command_or_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKEND_PASSWORD", "CANARY")
    workers = LookupWorkers(CLOCK)

    await workers.run(Job("get", PEOPLE, "people.0.name"), of_call(), "app")

    for pid in children():
        process = Path(f"/proc/{pid}")
        assert b"CANARY" not in (process / "environ").read_bytes() + (process / "cmdline").read_bytes()
    assert children()


def test_a_job_and_its_outcome_do_not_print_values() -> None:
    job = Job("get", PEOPLE, "people.0.name")

    assert "CANARY" not in f"{job!r} {perform(job)!r}"


async def test_the_name_that_was_meant_is_not_searched_in_a_large_value() -> None:
    small = json.dumps({"username": "jane"}).encode()
    script = Script.new(values={"large": WIDE, "small": small})

    async with InMemory(SCRIPTED) as provider:
        context = call_context(Scripted, {"script": script.name})
        large = (await provider.get_one(context, "large", property="key-x")).outcome
        near = (await provider.get_one(context, "small", property="usrname")).outcome

    assert isinstance(large, ProviderError)
    assert large.message == '"large" has no property "key-x"'
    assert isinstance(near, ProviderError)
    assert "username" in near.message
