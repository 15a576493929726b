"""Pushes to a Connect server: one write for each item, which changes nothing but the fields it names."""

from __future__ import annotations

import re
from typing import Any

import pytest

from eso_provider_onepassword.testing.connect import TOKEN, ConnectServer
from eso_provider_onepassword.testing.sessions import connect, delete, envelope, item, pumped, push, read
from eso_sdk.testing import InMemory
from eso_sdk.testing.standin import StandinResponse
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import PushOutcome
from kubebase.testing.clock import VirtualClock

CREATED, UPDATED, UNCHANGED = PushOutcome.CREATED, PushOutcome.UPDATED, PushOutcome.UNCHANGED
WRITES = ("POST *", "PUT *", "DELETE *")


def written(server: ConnectServer) -> list[str]:
    return [call.method for pattern in WRITES for call in server.requests(pattern)]


def stored(server: ConnectServer, title: str, vault: str = "team") -> dict[str, Any]:
    found = [each.shown for each in server.vault(vault).items.values() if each.shown and each.shown["title"] == title]
    assert len(found) == 1
    return dict(found[0])


async def test_a_new_item_is_a_server_in_the_first_vault_with_concealed_fields(
    server: ConnectServer, provider: InMemory
) -> None:
    server.vault("second")
    server.vault("team")

    outcomes = await push(
        provider, connect(server, "team", "second"), item("app", b"secret"), item("app", b"anna", "user")
    )

    assert outcomes == [CREATED, CREATED]
    assert server.vault("team").values("app") == {"password": "secret", "user": "anna"}
    assert stored(server, "app")["category"] == "SERVER"
    assert {each["type"] for each in stored(server, "app")["fields"]} == {"CONCEALED"}
    assert written(server) == ["POST"]


async def test_a_new_field_has_an_id_of_its_own(server: ConnectServer, provider: InMemory) -> None:
    call = connect(server)
    server.vault("team")

    await push(provider, call, item("app", b"1", "one"), item("app", b"2", "two"))
    await push(provider, call, item("app", b"3", "three"))

    sent = [
        each
        for pattern in ("POST *", "PUT *")
        for request in server.requests(pattern)
        for each in request.json()["fields"]
    ]
    ids = {each["label"]: each["id"] for each in sent}
    assert len(set(ids.values())) == len(ids) == 3
    assert all(re.fullmatch(r"[0-9a-z]{26}", each) for each in ids.values())
    assert {each["label"]: each["id"] for each in stored(server, "app")["fields"]} == ids


async def test_a_vault_without_write_access_denies_the_push_and_no_read(
    server: ConnectServer, provider: InMemory
) -> None:
    server.vault("team").put("app", {"password": "old"})
    server.script("PUT *", StandinResponse(401, {"status": 401, "message": "the token may not write to the vault"}))
    call = connect(server)

    (outcome,) = await push(provider, call, item("app", b"new"))

    assert isinstance(outcome, ProviderError)
    assert outcome.reason is ErrorReason.PERMISSION_DENIED
    assert await read(provider, call, "app") == [b"old"]


async def test_a_push_changes_one_field_and_keeps_everything_else(server: ConnectServer, provider: InMemory) -> None:
    urls, sections = [{"href": "https://example.com"}], [{"id": "s1", "label": "more"}]
    fields = [{"id": "f1", "label": "password", "value": "old", "type": "CONCEALED", "section": {"id": "s1"}}]
    server.vault("team").put("app", fields=[*fields, {"label": "user", "value": "anna"}], urls=urls, sections=sections)
    server.vault("team").put("app", fields=[*fields, {"label": "user", "value": "anna"}], tags=["kept"])

    outcomes = await push(provider, connect(server), item("app", b"new"))

    found = stored(server, "app")
    assert outcomes == [UPDATED]
    assert server.vault("team").values("app") == {"password": "new", "user": "anna"}
    assert (found["urls"], found["sections"], found["tags"]) == (urls, sections, ["kept"])
    assert found["fields"][0] | {"value": ""} == fields[0] | {"value": ""}


async def test_an_equal_push_writes_nothing(server: ConnectServer, provider: InMemory) -> None:
    call = connect(server)
    server.vault("team").put("app", {"password": "same"})

    assert await push(provider, call, item("app", b"same")) == [UNCHANGED]
    assert written(server) == []


async def test_what_was_pushed_is_read(server: ConnectServer, provider: InMemory) -> None:
    call = connect(server)
    server.vault("team")
    assert (await read(provider, call, "app"))[0] != b"one"

    await push(provider, call, item("app", b"one"))
    first = await read(provider, call, "app")
    await push(provider, call, item("app", b"two"))

    assert (first, await read(provider, call, "app")) == ([b"one"], [b"two"])


async def test_an_item_that_was_missing_a_moment_ago_is_not_created_twice(
    server: ConnectServer, provider: InMemory
) -> None:
    call = connect(server)
    server.vault("team")
    await read(provider, call, "app")
    server.vault("team").put("app", {"user": "made by a person"})

    await push(provider, call, item("app", b"one"))

    assert server.vault("team").titles() == ["app"]
    assert server.vault("team").values("app") == {"user": "made by a person", "password": "one"}


async def test_metadata_sets_tags_and_chooses_the_vault(server: ConnectServer, provider: InMemory) -> None:
    server.vault("team").put("app", {"password": "of team"})
    server.vault("second")
    call = connect(server, "team", "second")
    metadata = envelope(tags=["one", "two"], vault="second")

    outcomes = await push(provider, call, item("app", b"new", provider_metadata=metadata))
    again = await push(provider, call, item("app", b"new", provider_metadata=metadata))
    tagged = await push(provider, call, item("app", b"new", provider_metadata=envelope(tags=["one"], vault="second")))

    assert (outcomes, again, tagged) == ([CREATED], [UNCHANGED], [UPDATED])
    assert server.vault("team").values("app") == {"password": "of team"}
    assert stored(server, "app", "second")["tags"] == ["one"]
    assert await delete(provider, call, "app", metadata=metadata) == [True]
    assert (server.vault("team").titles(), server.vault("second").titles()) == (["app"], [])


@pytest.mark.parametrize(
    ("pushed", "reason", "text"),
    [
        pytest.param(
            item("app", b"x", provider_metadata=envelope(vault="foreign")),
            ErrorReason.INVALID_REQUEST,
            "not in /vaults of the store",
            id="a vault that the store does not have",
        ),
        pytest.param(
            item("app", b"x", provider_metadata=envelope(tag=["one"])),
            ErrorReason.INVALID_REQUEST,
            "does not have the expected form",
            id="an unknown field of the metadata",
        ),
        pytest.param(item("app", b"\xff\xfe"), ErrorReason.INVALID_REQUEST, "binary", id="a value that is no text"),
        pytest.param(
            item("app", {"all": b"keys"}), ErrorReason.UNSUPPORTED_OPERATION, "PUSH_WHOLE_SECRET", id="a whole Secret"
        ),
        pytest.param(item("app", b"x", "file/name"), ErrorReason.INVALID_REQUEST, "files cannot", id="a file"),
        pytest.param(item("doubled", b"x"), ErrorReason.INVALID_REQUEST, "several fields", id="two equal labels"),
    ],
)
async def test_what_cannot_be_pushed_is_explained(
    pushed: Any, reason: ErrorReason, text: str, server: ConnectServer, provider: InMemory
) -> None:
    server.vault("foreign")
    server.vault("team").put("doubled", fields=[{"label": "password", "value": "CANARY"}] * 2)

    (outcome,) = await push(provider, connect(server), pushed)

    assert isinstance(outcome, ProviderError)
    assert outcome.reason is reason
    assert text in outcome.message
    assert "CANARY" not in outcome.message
    assert written(server) == []


async def test_a_deletion_removes_a_field_and_the_item_with_the_last_one(
    server: ConnectServer, provider: InMemory
) -> None:
    call = connect(server)
    notes = {"label": "notesPlain", "purpose": "NOTES", "value": ""}
    fields = [{"label": "password", "value": "a"}, {"label": "user", "value": "b"}, notes]
    server.vault("team").put("app", fields=fields)

    first = await delete(provider, call, "app", "user", "nothing")
    left = server.vault("team").values("app")
    second = await delete(provider, call, "app")

    assert (first, second) == ([True, False], [True])
    assert left == {"password": "a", "notesPlain": ""}
    assert server.vault("team").titles() == []
    assert await delete(provider, call, "app") == [False]


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"files": [{"id": "f", "name": "n", "size": 1}]}, id="files"),
        pytest.param({"sections": [{"id": "s", "label": "more"}]}, id="sections"),
        pytest.param(
            {"fields": [{"label": "password", "value": "a"}, {"label": "n", "value": "written"}]}, id="fields"
        ),
    ],
)
async def test_an_item_with_something_left_in_it_is_not_deleted(
    more: dict[str, Any], server: ConnectServer, provider: InMemory
) -> None:
    server.vault("team").put("app", {"password": "a"}, **more)

    assert await delete(provider, connect(server), "app") == [True]
    assert server.vault("team").titles() == ["app"]


async def test_a_push_waits_until_the_server_shows_it(
    server: ConnectServer, timed: InMemory, clock: VirtualClock
) -> None:
    server.vault("team").put("app", {"password": "old"})
    server.lag = 4
    call = connect(server)

    outcomes = await pumped(clock, push(timed, call, item("app", b"new"), item("fresh", b"new")))
    values = await pumped(clock, read(timed, call, "app", "fresh"))

    assert (outcomes, values) == ([UPDATED, CREATED], [b"new", b"new"])


async def test_a_push_that_the_server_does_not_show_within_five_seconds_fails(
    server: ConnectServer, timed: InMemory, clock: VirtualClock
) -> None:
    server.vault("team").put("app", {"password": "old"})
    server.lag = 1000
    before = clock.monotonic()

    (outcome,) = await pumped(clock, push(timed, connect(server), item("app", b"new")))

    assert isinstance(outcome, ProviderError)
    assert outcome.reason is ErrorReason.BACKEND_TIMEOUT
    assert "does not show it yet" in outcome.message
    assert clock.monotonic() - before < 6


async def test_an_item_that_the_server_shows_late_is_not_created_twice(
    server: ConnectServer, timed: InMemory, clock: VirtualClock
) -> None:
    team, call = server.vault("team"), connect(server)
    server.lag = 1000

    outcomes = [(await pumped(clock, push(timed, call, item("app", b"new"))))[0] for _ in range(2)]
    server.lag = 0
    next(iter(team.items.values())).reads_left = 0
    outcomes.append((await pumped(clock, push(timed, call, item("app", b"newer"))))[0])

    assert [isinstance(each, ProviderError) for each in outcomes] == [True, True, False]
    assert len(server.requests("POST *")) == 1
    assert server.vault("team").values("app") == {"password": "newer"}


async def test_a_token_that_may_only_read_is_told_what_it_lacks(server: ConnectServer, provider: InMemory) -> None:
    server.vault("team").put("app", {"password": "old"})
    server.readers = {TOKEN}

    (outcome,) = await push(provider, connect(server), item("app", b"new"))

    assert isinstance(outcome, ProviderError)
    assert outcome.reason is ErrorReason.PERMISSION_DENIED
    assert "grant the token write access" in outcome.message
    assert len(server.requests("PUT *")) == 1


async def test_a_write_refused_as_invalid_quotes_nothing(server: ConnectServer, provider: InMemory) -> None:
    server.vault("team").put("app", {"password": "old"})
    server.script("PUT *", StandinResponse(400, {"message": "CANARY"}))

    (outcome,) = await push(provider, connect(server), item("app", b"new"))

    assert isinstance(outcome, ProviderError)
    assert (outcome.reason, "CANARY" in outcome.message) == (ErrorReason.INVALID_REQUEST, False)
