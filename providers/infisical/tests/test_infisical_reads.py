"""Reads of single values, maps and whole folders."""

from __future__ import annotations

from typing import Any

import pytest

from eso_provider_infisical.secrets import SecretLocation, location_of
from eso_provider_infisical.testing.server import CLIENT_ID, CLIENT_SECRET, MAIN, Identity, InfisicalServer, store
from eso_sdk.testing import InMemory
from eso_sdk.testing.server import exists, found, read, read_map
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import FindQuery, RemoteRef, ValidationState
from kubebase.testing.clock import VirtualClock

LOGIN = "POST /api/v1/auth/*/login"


def reason(outcome: object) -> ErrorReason:
    assert isinstance(outcome, ProviderError)
    return outcome.reason


@pytest.mark.parametrize(
    ("key", "scope", "location"),
    [
        pytest.param("NAME", "/", SecretLocation("/", "NAME"), id="a name, in the root"),
        pytest.param("NAME", "/app/", SecretLocation("/app", "NAME"), id="a name, in the folder of the scope"),
        pytest.param("/A/B/NAME", "/app", SecretLocation("/A/B", "NAME"), id="an absolute key ignores the scope"),
        pytest.param("/NAME", "/app", SecretLocation("/", "NAME"), id="an absolute key of the root"),
        pytest.param("A/NAME", "/app", SecretLocation("/app/A", "NAME"), id="a path is below the scope"),
        pytest.param("A//B/NAME", "", SecretLocation("/A/B", "NAME"), id="empty parts of a path do not count"),
    ],
)
def test_a_key_names_a_folder_and_a_secret(key: str, scope: str, location: SecretLocation) -> None:
    assert location_of(key, scope) == location


@pytest.mark.parametrize("key", ["", "/", "A/", "A/.."])
def test_a_key_without_a_name_is_refused(key: str) -> None:
    with pytest.raises(ProviderError, match="does not end with the name of a secret"):
        location_of(key, "/")


async def test_values_of_all_forms_of_keys_are_read(provider: InMemory, server: InfisicalServer) -> None:
    for path in ("/NAME", "/app/NAME", "/app/sub/NAME"):
        server.project().put(path, f"value of {path}")

    values = await read(provider, store(server, secretsPath="/app"), "NAME", "/NAME", "sub/NAME")

    assert values == [b"value of /app/NAME", b"value of /NAME", b"value of /app/sub/NAME"]


async def test_many_keys_of_one_folder_cost_one_list(provider: InMemory, server: InfisicalServer) -> None:
    for number in range(50):
        server.project().put(f"/app/KEY_{number}", f"v{number}")

    values = await read(provider, store(server, secretsPath="/app"), *(f"KEY_{number}" for number in range(50)))

    assert values == [f"v{number}".encode() for number in range(50)]
    assert (len(server.lists()), len(server.singles()), len(server.requests(LOGIN))) == (1, 0, 1)


async def test_an_unchanged_folder_is_not_sent_again(provider: InMemory, server: InfisicalServer) -> None:
    server.project().put("/A", "1")
    server.project().put("/B", "2")
    call = store(server)
    await read(provider, call, "A", "B")

    again = await read(provider, call, "A", "B")
    server.project().put("/A", "3")
    changed = await read(provider, call, "A", "B")

    assert (again, changed) == ([b"1", b"2"], [b"3", b"2"])
    assert ["if-none-match" in request.headers for request in server.lists()] == [False, True, True]


@pytest.mark.parametrize(
    ("property_path", "value"),
    [
        pytest.param("user", b"anna", id="a text"),
        pytest.param("port", b"5432", id="a number, which the operator in Go reads as nothing"),
        pytest.param("nested.on", b"true", id="a truth value at a path"),
        pytest.param("nested", b'{"on": true}', id="an object, as it is written"),
    ],
)
async def test_a_property_of_any_type_is_read(
    provider: InMemory, server: InfisicalServer, property_path: str, value: bytes
) -> None:
    server.project().put("/DB", '{"user": "anna", "port": 5432, "nested": {"on": true}}')

    assert await read(provider, store(server), RemoteRef("DB", property=property_path)) == [value]


async def test_a_missing_property_is_not_a_missing_secret(provider: InMemory, server: InfisicalServer) -> None:
    server.project().put("/DB", '{"user": "anna"}')

    (outcome,) = await read(provider, store(server), RemoteRef("DB", property="password"))

    assert reason(outcome) is ErrorReason.PROPERTY_NOT_FOUND


async def test_a_map_has_the_members_of_the_value(provider: InMemory, server: InfisicalServer) -> None:
    server.project().put("/DB", '{"user": "anna", "port": 5432}')

    assert await read_map(provider, store(server), "DB") == {"user": b"anna", "port": b"5432"}


async def test_references_are_replaced_unless_the_scope_says_otherwise(
    provider: InMemory, server: InfisicalServer
) -> None:
    server.project().put("/HOST", "db.example.com")
    server.project().put("/URL", "postgres://${HOST}/shop")

    expanded = await read(provider, store(server), "URL")
    raw = await read(provider, store(server, expandSecretReferences=False), "URL")

    assert (expanded, raw) == ([b"postgres://db.example.com/shop"], [b"postgres://${HOST}/shop"])


async def test_versions_are_read_by_number(provider: InMemory, server: InfisicalServer) -> None:
    server.project().put("/A", "first")
    server.project().put("/A", "second")
    refs = [RemoteRef("A", version=version) for version in ("1", "", "9", "latest")]

    first, newest, missing, wrong = await read(provider, store(server), *refs)

    assert (first, newest) == (b"first", b"second")
    assert {reason(missing), reason(wrong)} == {ErrorReason.VERSION_NOT_FOUND}


@pytest.mark.parametrize("alone", [pytest.param(True, id="alone"), pytest.param(False, id="with another key")])
async def test_an_import_counts_if_the_folder_itself_lacks_the_name_and_the_last_import_wins(
    provider: InMemory, server: InfisicalServer, alone: bool
) -> None:
    project = server.project()
    for path, value in (("/one/A", "one"), ("/two/A", "two"), ("/two/B", "two"), ("/B", "own")):
        project.put(path, value)
    project.folder("dev", "/").imports += ["/one", "/two"]
    keys = ("A",) if alone else ("A", "B")

    values = await read(provider, store(server), *keys)

    assert values == ([b"two"] if alone else [b"two", b"own"])


# --- the version of the API ------------------------------------------------------------------------------------------


async def test_the_newest_api_of_a_server_is_found_once_for_all_stores(
    provider: InMemory, server: InfisicalServer
) -> None:
    server.project().put("/A", "1")

    for number in range(5):
        assert await read(provider, store(server, namespace=f"team-{number}", secretsPath=f"/{number}"), "/A") == [b"1"]

    version = "v4" if server.has_v4 else "v3"
    assert {request.segments[1] for request in server.singles()} == {version}
    assert len([request for request in server.requests("GET /api/v4/secrets") if not request.query]) == 1


async def test_a_newer_server_is_noticed_within_an_hour(
    provider: InMemory, server: InfisicalServer, clock: VirtualClock
) -> None:
    server.has_v4 = False
    server.project().put("/A", "1")
    await read(provider, store(server), "A")
    server.has_v4 = True
    server.calls.clear()

    await clock.advance(3601)
    server.skew += 3601

    assert await read(provider, store(server), "A") == [b"1"]
    assert [request.segments[1] for request in server.singles()] == ["v4"]


async def test_an_older_server_in_place_of_a_newer_one_makes_no_secret_look_deleted(
    provider: InMemory, server: InfisicalServer
) -> None:
    server.has_v4 = True
    server.project().put("/A", "1")
    server.project().put("/B", "2")
    call = store(server)
    await read(provider, call, "A")
    server.has_v4 = False

    one, many = await read(provider, call, "A"), await read(provider, call, "A", "B")

    assert (one, many) == ([b"1"], [b"1", b"2"])


async def test_a_project_made_anew_under_its_slug_is_read_again(
    provider: InMemory, server: InfisicalServer, clock: VirtualClock
) -> None:
    call = store(server)
    server.project().put("/A", "old")
    await read(provider, call, "A")
    server.projects.clear()
    server.project().id = "another-id"
    server.project().put("/A", "new")
    server.project().put("/B", "new")
    await clock.advance(601)

    assert await read(provider, call, "A") == [b"new"]
    assert await read(provider, call, "A", "B") == [b"new"] * 2


# --- absent and denied -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", [pytest.param(("GONE",), id="alone"), pytest.param(("GONE", "A"), id="in a list")])
async def test_a_missing_secret_is_reported_as_not_found(
    provider: InMemory, server: InfisicalServer, keys: tuple[str, ...]
) -> None:
    server.project().put("/A", "1")

    outcomes = await read(provider, store(server), *keys)

    assert reason(outcomes[0]) is ErrorReason.SECRET_NOT_FOUND
    assert outcomes[1:] == [b"1"] * (len(keys) - 1)


async def test_a_missing_folder_means_not_found(provider: InMemory, server: InfisicalServer) -> None:
    outcomes = await read(provider, store(server), "/none/A", "/none/B")

    assert [reason(each) for each in outcomes] == [ErrorReason.SECRET_NOT_FOUND] * 2


@pytest.mark.parametrize("scope", [{"projectSlug": "gone"}, {"environmentSlug": "gone"}])
async def test_a_wrong_slug_never_looks_like_a_deleted_secret(
    provider: InMemory, server: InfisicalServer, scope: dict[str, Any]
) -> None:
    outcomes = await read(provider, store(server, **scope), "A", "B", "/app/C")

    assert {reason(each) for each in outcomes} == {ErrorReason.CONFIG_INVALID}


async def test_a_secret_that_the_list_hides_is_denied_and_not_missing(
    provider: InMemory, server: InfisicalServer
) -> None:
    server.project().put("/A", "1")
    server.project().put("/B", "2")
    server.logins[f"{CLIENT_ID}:{CLIENT_SECRET}"] = Identity("reader", frozenset({MAIN}), unseen=frozenset({"B"}))

    first, second = await read(provider, store(server), "A", "B")

    assert (first, reason(second)) == (b"1", ErrorReason.PERMISSION_DENIED)


async def test_a_placeholder_for_a_hidden_value_never_becomes_a_value(
    provider: InMemory, server: InfisicalServer
) -> None:
    server.project().put("/A", "1")
    server.project().put("/B", "2")
    server.logins[f"{CLIENT_ID}:{CLIENT_SECRET}"] = Identity("reader", frozenset({MAIN}), masked=frozenset({"B"}))

    first, second = await read(provider, store(server), "A", "B")

    assert (first, reason(second)) == (b"1", ErrorReason.PERMISSION_DENIED)
    with pytest.raises(ProviderError, match='denies access to "B"'):
        await found(provider, store(server), FindQuery(name_regexp="."))


async def test_an_identity_that_may_not_list_reads_secret_by_secret(
    provider: InMemory, server: InfisicalServer
) -> None:
    for name in "ABC":
        server.project().put(f"/{name}", name)
    server.logins[f"{CLIENT_ID}:{CLIENT_SECRET}"] = Identity("reader", frozenset({MAIN}), unread=frozenset({"C"}))
    call = store(server)

    first = await read(provider, call, "A", "B", "C")
    second = await read(provider, call, "A", "B")

    assert first[:2] == second == [b"A", b"B"]
    assert reason(first[2]) is ErrorReason.PERMISSION_DENIED
    assert (len(server.lists()), len(server.singles())) == (1, 5)


@pytest.mark.parametrize(
    ("key", "property_path", "there"),
    [("DB", "", True), ("DB", "user", True), ("DB", "gone", False), ("GONE", "", False)],
)
async def test_a_check_tells_what_exists(
    provider: InMemory, server: InfisicalServer, key: str, property_path: str, there: bool
) -> None:
    server.project().put("/DB", '{"user": "anna"}')

    assert await exists(provider, store(server), RemoteRef(key, property=property_path)) is there


# --- find and validation ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "recursive", "keys"),
    [
        pytest.param(FindQuery(name_regexp="^A"), False, {"A1", "A2"}, id="a name, in one folder"),
        pytest.param(FindQuery(name_regexp="^A"), True, {"A1", "A2", "A3"}, id="a name, in the folders below too"),
        pytest.param(FindQuery(path="/app/sub"), True, {"A3", "B2"}, id="a path"),
        pytest.param(FindQuery(name_regexp="^A", path="/app/sub"), True, {"A3"}, id="both"),
        pytest.param(FindQuery(name_regexp="^Z"), True, set(), id="nothing"),
    ],
)
async def test_a_find_is_one_list(
    provider: InMemory, server: InfisicalServer, query: FindQuery, recursive: bool, keys: set[str]
) -> None:
    for path in ("/A0", "/app/A1", "/app/A2", "/app/B1", "/app/sub/A3", "/app/sub/B2"):
        server.project().put(path, path)

    values = await found(provider, store(server, secretsPath="/app", recursive=recursive), query)

    assert set(values) == keys
    assert (len(server.lists()), len(server.singles())) == (1, 0)


async def test_a_find_by_tags_is_refused(provider: InMemory, server: InfisicalServer) -> None:
    with pytest.raises(ProviderError) as refused:
        await found(provider, store(server), FindQuery(tags={"a": "b"}))

    assert refused.value.reason is ErrorReason.UNSUPPORTED_OPERATION


async def test_a_store_is_valid_if_its_folder_can_be_listed(provider: InMemory, server: InfisicalServer) -> None:
    assert (await provider.validate(store(server))).state is ValidationState.READY


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        pytest.param({"secretsPath": "/none"}, ErrorReason.CONFIG_INVALID, id="no such folder"),
        pytest.param({"projectSlug": "other"}, ErrorReason.PERMISSION_DENIED, id="a project of others"),
    ],
)
async def test_a_store_that_cannot_be_listed_is_not_valid(
    provider: InMemory, server: InfisicalServer, scope: dict[str, Any], expected: ErrorReason
) -> None:
    server.project("other").folder("dev", "/")

    verdict = await provider.validate(store(server, **scope))

    assert (verdict.state, reason(verdict.error)) == (ValidationState.INVALID, expected)
