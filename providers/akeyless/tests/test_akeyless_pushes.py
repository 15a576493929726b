"""Pushes and deletions: what is written, what is left alone, and how many requests it takes."""

from __future__ import annotations

import json

import pytest

from eso_provider_akeyless.testing.server import AkeylessServer
from eso_provider_akeyless.testing.sessions import store
from eso_sdk.testing import InMemory
from eso_sdk.testing.server import delete, exists, push, read
from eso_sdk.testing.standin import StandinResponse
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import PushOutcome

CANARY = "CANARY-77d2"
MARK = "k8s-external-secrets"


def reason(outcome: object) -> ErrorReason:
    assert isinstance(outcome, ProviderError), outcome
    assert CANARY not in outcome.message
    return outcome.reason


async def test_a_push_creates_with_the_mark_updates_and_leaves_an_equal_value_alone(
    provider: InMemory, server: AkeylessServer
) -> None:
    outcomes = [(await push(provider, store(server.url), ("/a", "", text)))[0] for text in ("1", "1", "2")]

    assert outcomes == [PushOutcome.CREATED, PushOutcome.UNCHANGED, PushOutcome.UPDATED]
    assert server.items["/a"].versions == ["1", "2"]
    assert server.items["/a"].tags == [MARK]
    assert len(server.commands("create-secret")) == len(server.commands("update-secret-val")) == 1


async def test_a_whole_secret_is_pushed_as_json(provider: InMemory, server: AkeylessServer) -> None:
    await push(provider, store(server.url), ("/a", "", {"b": "2", "a": "<1>"}))

    assert server.value("/a") == '{"a":"<1>","b":"2"}'


async def test_all_properties_of_one_key_become_one_version(provider: InMemory, server: AkeylessServer) -> None:
    server.put("/a", '{"kept":true}', tags=(MARK,))

    outcomes = await push(provider, store(server.url), ("/a", "b.c", "2"), ("/a", "d", "3"))

    assert outcomes == [PushOutcome.UPDATED] * 2
    assert json.loads(server.value("/a")) == {"kept": True, "b": {"c": "2"}, "d": "3"}
    assert len(server.items["/a"].versions) == 2


@pytest.mark.parametrize("tags", [(), ("managed-by-others",)], ids=["without a tag", "with the tag of others"])
async def test_an_item_of_others_is_neither_overwritten_nor_deleted(
    provider: InMemory, server: AkeylessServer, tags: tuple[str, ...]
) -> None:
    server.put("/a", CANARY, tags=tags)

    (pushed,) = await push(provider, store(server.url), ("/a", "", "mine"))
    deleted = await delete(provider, store(server.url), ("/a", ""))

    assert reason(pushed) is ErrorReason.OWNERSHIP_CONFLICT
    assert deleted == [False]
    assert server.items["/a"].versions == [CANARY]


async def test_an_item_that_appears_meanwhile_is_not_overwritten(provider: InMemory, server: AkeylessServer) -> None:
    server.script("POST /v2/create-secret", StandinResponse(409, {"error": CANARY}))

    (pushed,) = await push(provider, store(server.url), ("/a", "", "mine"))

    assert reason(pushed) is ErrorReason.ALREADY_EXISTS


async def test_only_static_secrets_are_written(provider: InMemory, server: AkeylessServer) -> None:
    server.put("/a", {}, item_type="ROTATED_SECRET", tags=(MARK,))

    (pushed,) = await push(provider, store(server.url), ("/a", "", "mine"))

    assert reason(pushed) is ErrorReason.INVALID_REQUEST


@pytest.mark.parametrize(
    ("name", "value", "held"),
    [
        pytest.param("", b"\xff" + CANARY.encode(), "{}", id="a binary value"),
        pytest.param("part", "x", CANARY, id="a property of a value that is not JSON"),
    ],
)
async def test_what_cannot_be_written_is_refused_without_quoting_it(
    provider: InMemory, server: AkeylessServer, name: str, value: str | bytes, held: str
) -> None:
    server.put("/a", held, tags=(MARK,))

    (pushed,) = await push(provider, store(server.url), ("/a", name, value))

    assert reason(pushed) is ErrorReason.INVALID_REQUEST
    assert server.items["/a"].versions == [held]


async def test_a_key_is_deleted_once(provider: InMemory, server: AkeylessServer) -> None:
    server.put("/a", "1", tags=(MARK,))

    outcomes = [(await delete(provider, store(server.url), ("/a", "")))[0] for _ in range(2)]

    assert outcomes == [True, False]
    assert server.items == {}


async def test_the_last_property_takes_the_item_with_it(provider: InMemory, server: AkeylessServer) -> None:
    server.put("/a", '{"b":"1","c":"2"}', tags=(MARK,))

    first = await delete(provider, store(server.url), ("/a", "b"), ("/a", "none"))
    left = server.value("/a")
    second = await delete(provider, store(server.url), ("/a", "c"))

    assert (first, second) == ([True, False], [True])
    assert json.loads(left) == {"c": "2"}
    assert server.items == {}


async def test_a_pushed_key_is_found_although_it_was_missing_before(provider: InMemory, server: AkeylessServer) -> None:
    (missing,) = await read(provider, store(server.url), "/a")
    await push(provider, store(server.url), ("/a", "", "1"))

    assert reason(missing) is ErrorReason.SECRET_NOT_FOUND
    assert await read(provider, store(server.url), "/a") == [b"1"]


async def test_an_existing_key_costs_a_description_and_a_read(provider: InMemory, server: AkeylessServer) -> None:
    server.put("/a", "1", tags=(MARK,))

    await push(provider, store(server.url), ("/a", "", "1"))

    assert [call.path.rpartition("/")[2] for call in server.commands()] == ["describe-item", "get-secret-value"]


async def test_a_deletion_of_a_whole_item_reads_no_value(provider: InMemory, server: AkeylessServer) -> None:
    server.put("/a", "1", tags=(MARK,))
    server.unreadable.add("/a")

    assert await delete(provider, store(server.url), ("/a", "")) == [True]
    assert server.items == {}


async def test_writes_and_checks_see_items_that_were_missing_a_moment_ago(
    provider: InMemory, server: AkeylessServer
) -> None:
    await read(provider, store(server.url), "/a")
    server.put("/a", "of another process", tags=(MARK,))

    known = await exists(provider, store(server.url), "/a")
    await read(provider, store(server.url), "/b")
    server.put("/b", "of another process", tags=(MARK,))
    outcomes = [
        *await push(provider, store(server.url), ("/a", "", "2")),
        *await delete(provider, store(server.url), ("/b", "")),
    ]

    assert known is True
    assert outcomes == [PushOutcome.UPDATED, True]
