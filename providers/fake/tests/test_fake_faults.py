"""Scripted faults: when rules strike, what they do to items and calls, and the files they come from (R106)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eso_provider_fake.faults import Error, FaultFile, Faults, Point, Rule, Script, ScriptError, read, rule_of_key
from eso_provider_fake.main import serve
from eso_sdk.testing import InMemory
from eso_wire.errors import ErrorReason, ProviderError, RetryClass
from eso_wire.values import (
    ChangeEvent,
    ChangeType,
    FindQuery,
    GetItem,
    Hello,
    RemoteRef,
    SubscribeOpen,
    ValidationState,
    WatchItem,
)
from eso_wire.versions import SUPPORTED
from kubebase.testing.clock import VirtualClock

ERROR = {"type": "error", "reason": "BACKEND_ERROR"}


def rule(**fields: Any) -> Rule:
    return msgspec.convert({"fault": ERROR} | fields, Rule)


async def _struck(faults: Faults, calls: int, clock: VirtualClock, point: Point) -> str:
    """One character for each call: x when it was struck."""
    marks = ""
    for _ in range(calls):
        try:
            await faults.strike(point, clock)
        except ProviderError:
            marks += "x"
        else:
            marks += "."
        await clock.advance(1)
    return marks


@pytest.mark.parametrize(
    ("fields", "marks"),
    [
        pytest.param({}, "xxxxxx", id="always"),
        pytest.param({"nth": 2}, ".x....", id="the second"),
        pytest.param({"every": 3}, "..x..x", id="each third"),
        pytest.param({"first": 2}, "xx....", id="the first two"),
        pytest.param({"flap": [2, 1]}, "..x..x", id="two pass, one is struck"),
        pytest.param({"forSeconds": 2.5}, "xxx...", id="for two and a half seconds"),
        pytest.param({"every": 2, "first": 4}, ".x.x..", id="choices add up"),
    ],
)
async def test_a_rule_strikes_the_calls_it_chose(fields: dict[str, Any], marks: str) -> None:
    faults = Faults([rule(**fields)])

    assert await _struck(faults, 6, VirtualClock(), Point("get", "store", "key")) == marks


@pytest.mark.parametrize(
    ("fields", "struck"),
    [
        pytest.param({"method": "get"}, True, id="its method"),
        pytest.param({"method": "push"}, False, id="another method"),
        pytest.param({"key": "db/*"}, True, id="its key"),
        pytest.param({"key": "DB/*"}, False, id="another key"),
        pytest.param({"store": "st?re"}, True, id="its store"),
        pytest.param({"store": "other"}, False, id="another store"),
        pytest.param({"level": "call"}, False, id="calls, not items"),
    ],
)
async def test_a_rule_means_what_it_names(fields: dict[str, Any], struck: bool) -> None:
    marks = await _struck(Faults([rule(**fields)]), 1, VirtualClock(), Point("get", "store", "db/a"))

    assert (marks == "x") is struck


@pytest.mark.parametrize("reason", list(ErrorReason))
async def test_every_reason_can_be_scripted_for_an_item(fake: Any, reason: ErrorReason) -> None:
    fake.world.faults.add(Rule(fault=Error(reason=reason, retry=RetryClass.NEVER, retry_after=7.0), key="plain"))

    struck, spared = await fake.client.get(
        fake.context(), [GetItem("a", RemoteRef("plain")), GetItem("b", RemoteRef("doc"))]
    )

    assert isinstance(struck.outcome, ProviderError)
    assert not isinstance(spared.outcome, ProviderError)
    assert (struck.outcome.reason, struck.outcome.retry, struck.outcome.retry_after) == (reason, RetryClass.NEVER, 7.0)


@pytest.mark.parametrize("method", ["get", "check", "push", "delete", "find", "validate"])
async def test_a_call_fails_as_a_whole(fake: Any, method: str) -> None:
    fake.world.faults.add(rule(method=method, level="call", fault={"type": "error", "reason": "RATE_LIMITED"}))
    calls: dict[str, Callable[[], Any]] = {
        "get": lambda: fake.read("plain"),
        "check": lambda: fake.client.check(fake.context(), [GetItem("a", RemoteRef("plain"))]),
        "push": lambda: fake.push("new", "x"),
        "delete": lambda: fake.delete("new"),
        "find": lambda: fake.client.find(fake.context(), FindQuery(name_regexp="x")),
        "validate": lambda: fake.client.validate(fake.context()),
    }

    for name, call in calls.items():
        if name != method:
            await call()
    with pytest.raises(ProviderError) as caught:
        await calls[method]()

    assert caught.value.reason is ErrorReason.RATE_LIMITED


async def test_a_validation_can_be_turned_down(fake: Any) -> None:
    fake.world.faults.add(rule(method="validate", fault={"type": "error", "reason": "CREDENTIALS_REJECTED"}))

    assert (await fake.client.validate(fake.context())).state is ValidationState.INVALID


async def test_latency_delays_and_then_answers(fake: Any) -> None:
    fake.world.faults.add(rule(method="get", fault={"type": "latency", "seconds": 5}))

    async with asyncio.TaskGroup() as group:
        reading = group.create_task(fake.read("plain"))
        await fake.clock.advance(4)
        early = reading.done()
        await fake.clock.advance(2)

    assert (early, reading.result()) == (False, "hello")


@pytest.mark.parametrize("level", ["item", "call"])
async def test_a_hang_ends_at_the_deadline(fake: Any, level: str) -> None:
    fake.world.faults.add(rule(method="get", level=level, fault={"type": "hang"}))

    async with asyncio.TaskGroup() as group:
        failing = group.create_task(_reason(fake.read("plain")))
        await fake.clock.advance(61)

    assert failing.result() is ErrorReason.BACKEND_TIMEOUT


async def _reason(call: Any) -> object:
    try:
        return await call
    except ProviderError as exc:
        return exc.reason


@pytest.mark.parametrize(("after", "keys"), [(0, []), (1, []), (9, ["db/a"])])
async def test_a_truncated_find_has_no_last_page(fake: Any, after: int, keys: list[str]) -> None:
    fake.world.faults.add(rule(method="find", fault={"type": "truncate", "after": after}))

    pages = [page async for page in fake.client.pages(fake.context(), FindQuery(name_regexp="^db/", page_size=1))]

    # The page that was being filled is lost with the stream.
    assert not any(page.last for page in pages)
    assert [found.key for page in pages for found in page.found] == keys


async def test_an_oversize_answer_is_refused_by_a_good_server(fake: Any) -> None:
    fake.world.faults.add(rule(method="get", key="plain", fault={"type": "oversize", "size": 20_000_000}))

    assert await fake.read("plain") is ErrorReason.PAYLOAD_TOO_LARGE
    assert await fake.read("db/a", version="v1") == "old"


async def test_an_exit_ends_the_process(no_exit: Any) -> None:
    faults = Faults([rule(fault={"type": "exit", "code": 3})], leave=no_exit)

    with pytest.raises(RuntimeError, match="left with 3"):
        await faults.strike(Point("get", "store", "key"), VirtualClock())


@pytest.mark.parametrize("change", ["UPDATED", "RESYNC"])
async def test_a_storm_of_events_reaches_every_subscription(fake: Any, change: str) -> None:
    fake.world.faults.add(rule(method="subscribe", fault={"type": "events", "count": 500, "change": change}))

    async def messages() -> Any:
        yield SubscribeOpen(fake.context(), (WatchItem("one", RemoteRef("plain")),))
        await fake.clock.sleep(1e6)

    count = 0
    events = fake.client.subscribe(messages())
    async for event in events:
        count += isinstance(event, ChangeEvent) and event.type is ChangeType(change)
        if count == 500:
            break
    await events.aclose()

    assert count == 500


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        pytest.param("fault:error:PERMISSION_DENIED", ErrorReason.PERMISSION_DENIED, id="an error"),
        pytest.param("fault:latency:0", "fault", id="latency, and then a value"),
        pytest.param("fault:oversize:20000000", ErrorReason.PAYLOAD_TOO_LARGE, id="oversize"),
        pytest.param("fault:error:NONSENSE", ErrorReason.SECRET_NOT_FOUND, id="no such reason"),
        pytest.param("fault:exit", ErrorReason.SECRET_NOT_FOUND, id="whoever reads may not end the process"),
        pytest.param("fault:", ErrorReason.SECRET_NOT_FOUND, id="nothing"),
    ],
)
async def test_reserved_keys(fake: Any, key: str, expected: object) -> None:
    assert await fake.read(key) == expected


async def test_a_reserved_key_can_say_when_to_come_back(fake: Any) -> None:
    result = await fake.client.get_one(fake.context(), "fault:error:RATE_LIMITED:2.5")

    assert result.outcome.retry_after == 2.5


async def test_a_reserved_key_flaps(fake: Any) -> None:
    read = [await fake.read("fault:flap:1:2") for _ in range(4)]

    down = ErrorReason.BACKEND_UNAVAILABLE
    assert read == ["fault", down, down, "fault"]


async def test_a_value_of_the_store_is_stronger_than_a_reserved_key(fake: Any) -> None:
    await fake.push("fault", "x")
    spec = {"data": [{"key": "fault:hang", "value": "fine"}]}

    assert await fake.read("fault:hang", fake.context(spec)) == "fine"


def test_a_key_that_is_not_reserved_means_nothing() -> None:
    assert rule_of_key("default:hang") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(b"rules: [{fault: {type: hang}, methd: get}]", "methd", id="an unknown field"),
        pytest.param(b"rules: [{fault: {type: explode}}]", "explode", id="an unknown fault"),
        pytest.param(b"rules: [{fault: {type: error, reason: NOPE}}]", "NOPE", id="an unknown reason"),
        pytest.param(b"rules: [{fault: {type: hang}, level: call, key: a}]", "has no key", id="a call with a key"),
        pytest.param(b"rules: [{fault: {type: truncate}, level: call}]", "truncate", id="a truncated call"),
        pytest.param(b"protocols: [two]", "two", id="a version that is none"),
        pytest.param(b"{", "no YAML", id="no yaml"),
        pytest.param(b"[1]", "Expected", id="no object"),
        pytest.param(b" " * 1_048_577, "bytes", id="too large"),
    ],
)
def test_a_script_that_makes_no_sense_is_refused(text: bytes, message: str) -> None:
    with pytest.raises(ScriptError, match=message):
        read(text)


def test_an_empty_script_has_no_rules() -> None:
    assert read(b"") == Script()


async def test_a_file_is_read_again_when_it_changes(fake: Any, tmp_path: Path) -> None:
    path = tmp_path / "faults.yaml"
    path.write_text("rules: []")
    file = FaultFile(path, fake.world.faults)
    file.load()
    fake.world.files.append(file)
    before = await fake.read("plain")

    path.write_text("rules: [{method: get, fault: {type: error, reason: BACKEND_ERROR}}]")
    during = await fake.read("plain")
    path.write_text("rules: [{nonsense")
    broken = await fake.read("plain")
    path.write_text('{"rules": []}')
    after = await fake.read("plain")

    assert [before, during, broken, after] == ["hello", ErrorReason.BACKEND_ERROR, ErrorReason.BACKEND_ERROR, "hello"]


@pytest.mark.parametrize(
    ("text", "selected"),
    [
        pytest.param(b"protocols: ['9.0']", None, id="nothing in common"),
        pytest.param(b"protocols: ['2.0', '2.1']", (2, 1), id="one minor older"),
        pytest.param(b"protocols: ['2.2', '2.3']", (2, 2), id="one minor newer"),
    ],
)
async def test_other_protocols(fake: Any, text: bytes, selected: tuple[int, int] | None) -> None:
    async with InMemory(fake.provider, protocols=read(text).versions) as client:
        handshake = await client.handshake(Hello("test", SUPPORTED))

    assert handshake.selected == selected


def test_the_command_refuses_a_file_it_cannot_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = serve(["--faults", str(tmp_path / "missing.yaml")], {})

    assert code == 2
    assert "cannot be read" in capsys.readouterr().err
