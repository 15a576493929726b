"""The v1 `fake` behaviour, over the wire codec: data with versions, properties, find, push, delete, validation."""

from __future__ import annotations

from typing import Any

import pytest

from eso_api.values import SecretBytes
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import (
    ChangeEvent,
    ChangeType,
    FindQuery,
    GetItem,
    Heartbeat,
    NotModified,
    Operation,
    PushOutcome,
    PushPrecondition,
    RemoteRef,
    Shape,
    SubscribeOpen,
    ValidationState,
    WatchItem,
)


@pytest.mark.parametrize(
    ("key", "ref", "expected"),
    [
        pytest.param("plain", {}, "hello", id="a value by its key"),
        pytest.param("db/a", {"version": "v1"}, "old", id="a value by key and version"),
        pytest.param("db/a", {}, ErrorReason.VERSION_NOT_FOUND, id="no version finds only entries without one"),
        pytest.param("plain", {"version": "v1"}, ErrorReason.VERSION_NOT_FOUND, id="a version must match exactly"),
        pytest.param("db/av", {"version": "1"}, ErrorReason.SECRET_NOT_FOUND, id="key and version are compared apart"),
        pytest.param("nope", {}, ErrorReason.SECRET_NOT_FOUND, id="a missing key is not found"),
        pytest.param("doc", {"property": "user"}, "jane", id="a property"),
        pytest.param("doc", {"property": "deep.x.1"}, "2", id="a property by gjson path"),
        pytest.param("doc", {"property": "n"}, "1.5", id="a number as go writes it"),
        pytest.param("doc", {"property": "null"}, "", id="null is there and empty"),
        pytest.param("doc", {"property": "no"}, ErrorReason.PROPERTY_NOT_FOUND, id="a missing property is not found"),
        pytest.param("plain", {"property": "x"}, ErrorReason.PROPERTY_NOT_FOUND, id="a text has no properties"),
        pytest.param("doc", {"property": "[@this]|" * 120}, ErrorReason.INVALID_REQUEST, id="a path beyond bounds"),
    ],
)
async def test_get(fake: Any, key: str, ref: dict[str, str], expected: object) -> None:
    assert await fake.read(key, **ref) == expected


async def test_a_map_holds_the_members_of_a_json_object(fake: Any) -> None:
    result = await fake.client.get_one(fake.context(), "doc", shape=Shape.MAP)

    members = {name: value.reveal() for name, value in result.outcome.items()}
    assert members == {"user": b"jane", "n": b"1.50", "deep": b'{"x":[1,2]}', "null": b""}


async def test_a_value_map_is_a_json_object(fake: Any) -> None:
    context = fake.context({"data": [{"key": "login", "valueMap": {"user": "jane", "age": "7"}}]})

    whole = await fake.client.get_one(context, "login")
    parts = await fake.client.get_one(context, "login", shape=Shape.MAP)

    assert whole.outcome.reveal() == b'{"age":"7","user":"jane"}'
    assert {name: value.reveal() for name, value in parts.outcome.items()} == {"user": b"jane", "age": b"7"}


async def test_a_map_of_a_text_fails(fake: Any) -> None:
    result = await fake.client.get_one(fake.context(), "plain", shape=Shape.MAP)

    assert isinstance(result.outcome, ProviderError)
    assert not result.outcome.is_not_found


async def test_a_value_that_did_not_change_is_not_sent_again(fake: Any) -> None:
    first = await fake.client.get_one(fake.context(), "plain")
    again = GetItem("only", RemoteRef("plain"), if_version_differs=first.metadata.provider_version)

    (unchanged,) = await fake.client.get(fake.context(), [again])
    (changed,) = await fake.client.get(fake.context({"data": [{"key": "plain", "value": "other"}]}), [again])

    assert isinstance(unchanged.outcome, NotModified)
    assert isinstance(changed.outcome, SecretBytes)


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        pytest.param("^db/", {"db/a": "new", "db/b": "only"}, id="the last version by the alphabet wins"),
        pytest.param("o", {"doc": None}, id="the pattern may match anywhere"),
        pytest.param("v1", {}, id="versions are not part of the name"),
    ],
)
async def test_find(fake: Any, pattern: str, found: dict[str, str | None]) -> None:
    result = await fake.client.find(fake.context(), FindQuery(name_regexp=pattern))

    assert {one.key: one.value.reveal().decode() if found.get(one.key) else None for one in result} == found


async def test_a_find_says_how_many_keys_it_compared(fake: Any) -> None:
    context = fake.context()

    pages = [page async for page in fake.client.pages(context, FindQuery(name_regexp="no such key"))]
    all_keys = await fake.client.find(context, FindQuery(name_regexp="."))

    assert [(page.found, page.last, page.considered) for page in pages] == [((), True, len(all_keys))]
    assert all_keys


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        pytest.param(FindQuery(), ErrorReason.INVALID_REQUEST, id="without a name"),
        pytest.param(FindQuery(name_regexp="("), ErrorReason.INVALID_REQUEST, id="with a pattern that is none"),
        pytest.param(FindQuery(tags={"a": "b"}), ErrorReason.UNSUPPORTED_OPERATION, id="by tags"),
        pytest.param(FindQuery(path="db"), ErrorReason.UNSUPPORTED_OPERATION, id="by path"),
    ],
)
async def test_find_refuses(fake: Any, query: FindQuery, reason: ErrorReason) -> None:
    with pytest.raises(ProviderError) as caught:
        await fake.client.find(fake.context(), query)

    assert caught.value.reason is reason


async def test_a_pushed_value_is_read_found_and_there(fake: Any) -> None:
    pushed = await fake.push("new", "one", property="ignored")

    (checked,) = await fake.client.check(fake.context(), [GetItem("only", RemoteRef("new"))])
    (found,) = await fake.client.find(fake.context(), FindQuery(name_regexp="^new$"))
    assert pushed.outcome is PushOutcome.CREATED
    assert await fake.read("new") == "one"
    assert (checked.exists, checked.provider_version) == (True, pushed.provider_version)
    assert found.value == SecretBytes(b"one")


async def test_pushing_again_replaces(fake: Any) -> None:
    await fake.push("new", "one")

    updated, unchanged = await fake.push("new", "two"), await fake.push("new", "two")

    assert (updated.outcome, unchanged.outcome) == (PushOutcome.UPDATED, PushOutcome.UNCHANGED)
    assert updated.provider_version == unchanged.provider_version
    assert await fake.read("new") == "two"


async def test_a_configured_key_is_not_pushed_onto(fake: Any) -> None:
    refused = await fake.push("plain", "x")
    skipped = await fake.push("plain", "x", precondition=PushPrecondition.IF_ABSENT)

    assert refused.outcome.reason is ErrorReason.OWNERSHIP_CONFLICT
    assert "was not created by External Secrets" in refused.outcome.message
    assert skipped.outcome is PushOutcome.SKIPPED_EXISTS
    assert await fake.read("plain") == "hello"


async def test_a_whole_secret_leaves_an_empty_value(fake: Any) -> None:
    pushed = await fake.push("whole", {"a": "1"})

    assert pushed.outcome is PushOutcome.CREATED
    assert await fake.read("whole") == ""


async def test_a_key_that_appears_in_the_configuration_hides_what_was_pushed(fake: Any) -> None:
    await fake.push("new", "pushed")

    assert await fake.read("new", fake.context({"data": [{"key": "new", "value": "configured"}]})) == "configured"


async def test_if_absent_creates_once_r5(fake: Any) -> None:
    first = await fake.push("new", "one", precondition=PushPrecondition.IF_ABSENT)
    second = await fake.push("new", "two", precondition=PushPrecondition.IF_ABSENT)

    assert (first.outcome, second.outcome) == (PushOutcome.CREATED, PushOutcome.SKIPPED_EXISTS)
    assert await fake.read("new") == "one"


async def test_if_version_compares_before_it_writes(fake: Any) -> None:
    made = await fake.push("new", "one")

    stale = await fake.push("new", "x", precondition=PushPrecondition.IF_VERSION, expected_version="other")
    fresh = await fake.push(
        "new", "two", precondition=PushPrecondition.IF_VERSION, expected_version=made.provider_version
    )

    assert stale.outcome.reason is ErrorReason.PRECONDITION_FAILED
    assert fresh.outcome is PushOutcome.UPDATED


async def test_a_value_of_another_owner_is_left_unchanged(fake: Any) -> None:
    await fake.push("new", "mine", owner_token="me")

    pushed = await fake.push("new", "yours", owner_token="you")
    deleted = await fake.delete("new", owner_token="you")

    assert pushed.outcome.reason is ErrorReason.OWNERSHIP_CONFLICT
    assert deleted.error.reason is ErrorReason.OWNERSHIP_CONFLICT
    assert await fake.read("new") == "mine"


async def test_delete_removes_what_was_pushed_r17(fake: Any) -> None:
    await fake.push("new", "one", owner_token="me")

    first, second = await fake.delete("new", owner_token="me"), await fake.delete("new", owner_token="me")

    assert (first.existed, second.existed) == (True, False)
    assert await fake.read("new") is ErrorReason.SECRET_NOT_FOUND


async def test_delete_leaves_the_configuration_alone(fake: Any) -> None:
    deleted = await fake.delete("plain")

    assert (deleted.existed, deleted.error) == (False, None)
    assert await fake.read("plain") == "hello"


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"namespace": "other"}, id="in another namespace"),
        pytest.param({"store": "other"}, id="of another name"),
        pytest.param({"uid": "uid-4"}, id="made anew under the same name"),
    ],
)
async def test_stores_share_nothing(fake: Any, other: dict[str, str]) -> None:
    await fake.push("new", "one")

    assert await fake.read("new", fake.context(**other)) is ErrorReason.SECRET_NOT_FOUND


async def test_exists_goes_by_key_alone(fake: Any) -> None:
    keys = ["plain", "db/a", "nope"]

    results = await fake.client.check(fake.context(), [GetItem(key, RemoteRef(key, property="x")) for key in keys])

    assert [result.exists for result in results] == [True, True, False]


@pytest.mark.parametrize(
    ("result", "state"),
    [(0, ValidationState.READY), (1, ValidationState.UNKNOWN), (2, ValidationState.INVALID)],
)
async def test_validation_says_what_the_configuration_says(fake: Any, result: int, state: ValidationState) -> None:
    validation = await fake.client.validate(fake.context({"data": [], "validationResult": result}))

    assert validation.state is state
    assert (validation.error is None) == (state is ValidationState.READY)


@pytest.mark.parametrize(("entry", "field"), [({"key": "", "value": "v"}, "key"), ({"key": "k", "value": ""}, "value")])
async def test_keys_and_values_must_not_be_empty(fake: Any, entry: dict[str, str], field: str) -> None:
    validation = await fake.client.validate(fake.context({"data": [{"key": "a", "value": "b"}, entry]}))

    assert validation.state is ValidationState.INVALID
    assert f"/data/1/{field}" in validation.error.message


async def test_the_handshake_offers_what_the_store_does(fake: Any) -> None:
    handshake = await fake.client.handshake()

    kinds = {info.kind.kind: info for info in handshake.kinds}
    assert set(kinds) == {"Fake", "ClusterFake"}
    assert kinds["Fake"].v1_provider_key == "fake"
    assert kinds["Fake"].operations == {
        Operation.GET,
        Operation.GET_MAP,
        Operation.METADATA_FETCH,
        Operation.NOT_FOUND_SEMANTICS,
        Operation.FIND_BY_NAME,
        Operation.EXISTS,
        Operation.PUSH,
        Operation.PUSH_WHOLE_SECRET,
        Operation.PUSH_IF_ABSENT,
        Operation.DELETE,
        Operation.SUBSCRIBE,
    }


# --- changes ---------------------------------------------------------------------------------------------------------


async def _next_change(events: Any) -> ChangeEvent:
    async for event in events:
        if not isinstance(event, Heartbeat):
            assert isinstance(event, ChangeEvent)
            return event
    raise AssertionError("the stream ended")


def _opening(fake: Any, *items: WatchItem, token: str = "") -> Any:
    async def messages() -> Any:
        yield SubscribeOpen(fake.context(), items, token)
        await fake.clock.sleep(1e6)

    return fake.client.subscribe(messages())


async def test_subscribers_hear_of_pushes_and_deletions_of_their_keys(fake: Any) -> None:
    events = _opening(fake, WatchItem("one", RemoteRef("new")), WatchItem("all", name_regexp="^n"))
    assert isinstance(await anext(events), Heartbeat)

    await fake.push("else", "x")
    await fake.push("new", "x")
    pushed = await _next_change(events)
    await fake.delete("new")
    deleted = await _next_change(events)

    assert (pushed.type, pushed.watch_ids) == (ChangeType.UPDATED, ("one", "all"))
    assert (deleted.type, deleted.watch_ids) == (ChangeType.DELETED, ("one", "all"))
    await events.aclose()


async def test_a_subscriber_that_resumes_gets_the_missed_events(fake: Any) -> None:
    events = _opening(fake, WatchItem("one", RemoteRef("new")))
    await anext(events)
    await fake.push("new", "1")
    token = (await _next_change(events)).resume_token
    await events.aclose()

    await fake.push("new", "2")
    again = _opening(fake, WatchItem("one", RemoteRef("new")), token=token)

    missed = await _next_change(again)
    assert (missed.type, missed.watch_ids) == (ChangeType.UPDATED, ("one",))
    await again.aclose()


async def test_a_subscriber_that_heard_nothing_can_come_back_too(fake: Any) -> None:
    events = _opening(fake, WatchItem("one", RemoteRef("new")))
    token = ""
    while not token:
        token = (await anext(events)).resume_token
    await events.aclose()

    await fake.push("new", "1")
    again = _opening(fake, WatchItem("one", RemoteRef("new")), token=token)

    assert (await _next_change(again)).type is ChangeType.UPDATED
    await again.aclose()


@pytest.mark.parametrize("token", ["other-1", "nonsense", "x-99999999999999999999999"])
async def test_a_token_of_another_process_means_a_resync(fake: Any, token: str) -> None:
    events = _opening(fake, WatchItem("one", RemoteRef("new")), token=token)

    assert (await _next_change(events)).type is ChangeType.RESYNC
    await events.aclose()


async def test_a_known_version_that_is_no_longer_the_present_one_is_reported(fake: Any) -> None:
    events = _opening(fake, WatchItem("one", RemoteRef("plain"), known_version="old"))

    assert (await _next_change(events)).watch_ids == ("one",)
    await events.aclose()


async def test_no_value_prints(fake: Any) -> None:
    await fake.push("new", "CANARY-1")
    entry = fake.world.memory.of(("team", "store", "uid-3")).entries["new"]

    assert "CANARY" not in repr(entry) + repr(fake.world) + repr(fake.provider)


async def test_the_memory_has_an_end(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eso_provider_fake.store.MAX_BYTES", 1000)
    await fake.push("new", "x" * 500)

    refused = await fake.push("more", "x" * 500)
    await fake.delete("new")
    accepted = await fake.push("more", "x" * 500)

    assert refused.outcome.reason is ErrorReason.BACKEND_ERROR
    assert accepted.outcome is PushOutcome.CREATED


async def test_a_subscriber_that_was_away_too_long_gets_a_resync(fake: Any) -> None:
    token = fake.world.memory.of(("team", "store", "uid-3")).changes.token(0)
    for number in range(1100):
        await fake.push("new", str(number))

    events = _opening(fake, WatchItem("one", RemoteRef("new")), token=token)

    assert (await _next_change(events)).type is ChangeType.RESYNC
    await events.aclose()
