"""Pushes and deletions."""

from __future__ import annotations

from typing import Any

import pytest

from eso_provider_infisical.testing.server import CLIENT_ID, CLIENT_SECRET, MAIN, Identity, InfisicalServer, store
from eso_sdk.testing import InMemory
from eso_sdk.testing.server import delete, push, read
from eso_sdk.testing.standin import StandinResponse
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import PushOutcome


def reason(outcome: object) -> ErrorReason:
    assert isinstance(outcome, ProviderError)
    return outcome.reason


async def test_a_value_is_created_updated_and_left_alone_if_equal(provider: InMemory, server: InfisicalServer) -> None:
    call = store(server, secretsPath="/app")
    server.project().folder("dev", "/app")

    outcomes = [await push(provider, call, ("KEY", "", value)) for value in ("one", "one", "two")]

    assert outcomes == [[PushOutcome.CREATED], [PushOutcome.UNCHANGED], [PushOutcome.UPDATED]]
    assert server.project().find("/app/KEY") == "two"
    assert [request.method for request in server.writes()] == ["POST", "PATCH"]


async def test_all_pushes_of_a_folder_are_one_list_and_one_batch_if_the_server_has_them(
    provider: InMemory, server: InfisicalServer
) -> None:
    keys = [f"KEY_{number}" for number in range(12)]
    server.project().folder("dev", "/app")
    call = store(server, secretsPath="/app")

    created = await push(provider, call, *((key, "", "one") for key in keys))
    first = (len(server.lists()), len(server.singles()), len(server.writes()))
    server.calls.clear()
    updated = await push(provider, call, *((key, "", "two") for key in keys))
    second = (len(server.lists()), len(server.singles()), len(server.writes()))

    assert (created, updated) == ([PushOutcome.CREATED] * 12, [PushOutcome.UPDATED] * 12)
    assert {server.project().find(f"/app/{key}") for key in keys} == {"two"}
    assert first == second == (1, 0, 1 if server.has_v4 else 12)


async def test_a_batch_of_creations_updates_and_deletions_keeps_to_their_folders(
    provider: InMemory, server: InfisicalServer
) -> None:
    for path in ("/A", "/B", "/app/A", "/app/B"):
        server.project().put(path, "old")
    call = store(server)

    outcomes = await push(
        provider, call, ("A", "", "new"), ("C", "", "new"), ("D", "", "new"), ("/app/A", "", "new"), ("B", "", "old")
    )
    existed = await delete(provider, call, ("B", ""), ("/app/B", ""), ("GONE", ""))

    assert outcomes == [
        PushOutcome.UPDATED,
        PushOutcome.CREATED,
        PushOutcome.CREATED,
        PushOutcome.UPDATED,
        PushOutcome.UNCHANGED,
    ]
    assert existed == [True, True, False]
    assert [server.project().find(path) for path in ("/A", "/B", "/C", "/D", "/app/A", "/app/B")] == [
        "new",
        None,
        "new",
        "new",
        "new",
        None,
    ]


async def test_one_secret_that_may_not_be_changed_spoils_no_other_of_its_batch(
    provider: InMemory, server: InfisicalServer
) -> None:
    for name in "ABC":
        server.project().put(f"/{name}", "old")
    server.logins[f"{CLIENT_ID}:{CLIENT_SECRET}"] = Identity("writer", frozenset({MAIN}), unwritten=frozenset({"B"}))

    outcomes = await push(provider, store(server), *((name, "", "new") for name in "ABC"))

    assert (outcomes[0], outcomes[2]) == (PushOutcome.UPDATED, PushOutcome.UPDATED)
    assert reason(outcomes[1]) is ErrorReason.PERMISSION_DENIED
    assert '"B"' in str(outcomes[1])
    assert [server.project().find(f"/{name}") for name in "ABC"] == ["new", "old", "new"]


async def test_a_secret_that_the_identity_cannot_see_is_neither_created_nor_reported_as_deleted(
    provider: InMemory, server: InfisicalServer
) -> None:
    server.project().put("/A", "theirs")
    server.project().put("/B", "ours")
    server.logins[f"{CLIENT_ID}:{CLIENT_SECRET}"] = Identity("writer", frozenset({MAIN}), unseen=frozenset({"A"}))
    call = store(server)

    pushed = await push(provider, call, ("A", "", "new"), ("B", "", "new"), ("C", "", "new"))
    deleted = await delete(provider, call, ("A", ""), ("B", ""), ("C", ""))

    assert isinstance(pushed[0], ProviderError)
    assert pushed[1:] == [PushOutcome.UPDATED, PushOutcome.CREATED]
    assert reason(deleted[0]) is ErrorReason.PERMISSION_DENIED
    assert deleted[1:] == [True, True]
    assert server.project().find("/A") == "theirs"


async def test_a_throttled_batch_is_not_taken_apart(provider: InMemory, server: InfisicalServer) -> None:
    server.script("POST /api/v[34]/*", *[StandinResponse(429, {"message": "slow down"}, {"Retry-After": "9"})] * 3)

    outcomes = await push(provider, store(server), *((name, "", "new") for name in "ABC"))

    assert {reason(each) for each in outcomes} == {ErrorReason.RATE_LIMITED}
    assert len(server.writes()) <= (1 if server.has_v4 else 3)


async def test_many_large_values_are_sent_in_parts(provider: InMemory, server: InfisicalServer) -> None:
    value = "x" * 100_000

    outcomes = await push(provider, store(server), *((f"KEY_{number}", "", value) for number in range(6)))

    assert outcomes == [PushOutcome.CREATED] * 6
    assert max(len(request.body) for request in server.writes()) < 300_000


async def test_a_write_names_the_project_by_its_id_which_is_looked_up_once(
    provider: InMemory, server: InfisicalServer
) -> None:
    call = store(server)

    await push(provider, call, ("A", "", "1"))
    await push(provider, call, ("B", "", "2"))

    member = "projectId" if server.has_v4 else "workspaceId"
    assert {request.json()[member] for request in server.writes()} == {"id-of-shop"}
    assert len(server.requests("GET /api/v1/projects/slug/shop")) == 1


async def test_older_servers_look_projects_up_elsewhere(provider: InMemory, server: InfisicalServer) -> None:
    server.old_lookup = True

    assert await push(provider, store(server), ("A", "", "1")) == [PushOutcome.CREATED]


async def test_a_project_made_anew_under_its_slug_is_looked_up_again(
    provider: InMemory, server: InfisicalServer
) -> None:
    call = store(server)
    await push(provider, call, ("A", "", "1"))
    server.projects.clear()
    server.project().id = "another-id"
    server.project().put("/A", "0")

    assert await push(provider, call, ("A", "", "2")) == [PushOutcome.UPDATED]
    assert server.project().find("/A") == "2"


async def test_a_whole_secret_is_a_sorted_json_object(provider: InMemory, server: InfisicalServer) -> None:
    await push(provider, store(server), ("A", "", {"user": "<anna>", "password": "p"}))

    assert server.project().find("/A") == '{"password":"p","user":"<anna>"}'


async def test_properties_of_one_key_are_one_write_and_keep_the_rest(
    provider: InMemory, server: InfisicalServer
) -> None:
    server.project().put("/DB", '{"keep":1,"user":"old"}')

    outcomes = await push(provider, store(server), ("DB", "user", "anna"), ("DB", "deep.er", "x"))

    assert outcomes == [PushOutcome.UPDATED] * 2
    assert server.project().find("/DB") == '{"keep":1,"user":"anna","deep":{"er":"x"}}'
    assert len(server.writes()) == 1


async def test_a_property_of_a_value_that_is_not_json_is_refused(provider: InMemory, server: InfisicalServer) -> None:
    server.project().put("/A", "plain")

    (outcome,) = await push(provider, store(server), ("A", "user", "anna"))

    assert reason(outcome) is ErrorReason.INVALID_REQUEST
    assert server.project().find("/A") == "plain"


async def test_a_push_does_not_replace_references_of_the_stored_value(
    provider: InMemory, server: InfisicalServer
) -> None:
    server.project().put("/HOST", "db")
    server.project().put("/DB", '{"host":"${HOST}"}')

    await push(provider, store(server), ("DB", "user", "anna"))

    assert server.project().find("/DB") == '{"host":"${HOST}","user":"anna"}'


async def test_an_imported_secret_is_not_mistaken_for_an_own_one(provider: InMemory, server: InfisicalServer) -> None:
    server.project().put("/shared/A", "imported")
    server.project().folder("dev", "/").imports.append("/shared")

    assert await push(provider, store(server), ("A", "", "own")) == [PushOutcome.CREATED]
    assert (server.project().find("/A"), server.project().find("/shared/A")) == ("own", "imported")


@pytest.mark.parametrize("value", [" blanks ", "lines\n", "lines\n\n"])
async def test_blanks_that_infisical_removes_do_not_cause_a_write_each_time(
    provider: InMemory, server: InfisicalServer, value: str
) -> None:
    call = store(server)

    outcomes = [await push(provider, call, ("A", "", value)) for _ in range(2)]

    assert outcomes == [[PushOutcome.CREATED], [PushOutcome.UNCHANGED]]


async def test_a_binary_value_is_refused_without_quoting_it(provider: InMemory, server: InfisicalServer) -> None:
    (outcome,) = await push(provider, store(server), ("A", "", b"\xff\x00CANARY"))

    assert reason(outcome) is ErrorReason.INVALID_REQUEST
    assert "CANARY" not in str(outcome)


async def test_a_change_that_waits_for_approval_is_not_reported_as_written_and_requested_once(
    provider: InMemory, server: InfisicalServer
) -> None:
    server.project().protected = True
    call = store(server)

    outcomes = [each for _ in range(3) for each in await push(provider, call, ("A", "", "1"))]

    assert {reason(each) for each in outcomes} == {ErrorReason.PERMISSION_DENIED}
    assert "change request" in str(outcomes[0])
    assert len(server.writes()) == 1


async def test_a_deletion_that_waits_for_approval_is_requested_once(
    provider: InMemory, server: InfisicalServer
) -> None:
    server.project().put("/A", "1")
    server.project().protected = True
    call = store(server)

    outcomes = [each for _ in range(3) for each in await delete(provider, call, ("A", ""))]

    assert {reason(each) for each in outcomes} == {ErrorReason.PERMISSION_DENIED}
    assert len(server.requests("DELETE *")) == 1


async def test_a_deletion_in_a_project_that_is_gone_is_done(provider: InMemory, server: InfisicalServer) -> None:
    assert await delete(provider, store(server, projectSlug="gone"), ("A", "")) == [False]


@pytest.mark.parametrize(
    ("stored", "items", "left", "existed"),
    [
        pytest.param("plain", [("A", "")], None, [True], id="a whole value"),
        pytest.param('{"a":"1","b":"2"}', [("A", "a")], '{"b":"2"}', [True], id="a property keeps the rest"),
        pytest.param('{"a":"1"}', [("A", "a")], None, [True], id="the last property takes the secret with it"),
        pytest.param('{"a":"1","b":"2"}', [("A", "a"), ("A", "b")], None, [True, True], id="all properties at once"),
        pytest.param('{"a":"1"}', [("A", "z")], '{"a":"1"}', [False], id="an absent property"),
        pytest.param(None, [("A", "")], None, [False], id="an absent secret"),
    ],
)
async def test_deletions(
    provider: InMemory,
    server: InfisicalServer,
    stored: str | None,
    items: list[tuple[str, str]],
    *,
    left: str | None,
    existed: list[bool],
) -> None:
    if stored is not None:
        server.project().put("/A", stored)

    assert await delete(provider, store(server), *items) == existed
    assert server.project().find("/A") == left


async def test_a_pushed_value_is_read_at_once_although_it_was_missing(
    provider: InMemory, server: InfisicalServer
) -> None:
    call: Any = store(server)
    (missing,) = await read(provider, call, "A")
    await push(provider, call, ("A", "", "1"))

    assert reason(missing) is ErrorReason.SECRET_NOT_FOUND
    assert await read(provider, call, "A") == [b"1"]
