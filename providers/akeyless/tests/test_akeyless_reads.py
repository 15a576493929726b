"""Reads and finds: what is returned, and how many requests it takes."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from eso_provider_akeyless.testing.server import ACCESS_KEY, AkeylessServer, Identity
from eso_provider_akeyless.testing.sessions import store
from eso_sdk.testing import InMemory
from eso_sdk.testing.server import exists, found, read, read_map
from eso_sdk.testing.standin import StandinResponse
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import FindQuery, RemoteRef
from kubebase.testing.clock import VirtualClock

CANARY = "CANARY-44b1"


def reason(outcome: object) -> ErrorReason:
    assert isinstance(outcome, ProviderError), outcome
    assert CANARY not in outcome.message
    assert ACCESS_KEY not in outcome.message
    return outcome.reason


def called(server: AkeylessServer) -> list[str]:
    return [call.path.rpartition("/")[2] for call in server.commands()]


# --- static secrets --------------------------------------------------------------------------------------------------


async def test_a_refresh_of_many_static_secrets_costs_one_request(provider: InMemory, server: AkeylessServer) -> None:
    names = [f"/shop/key-{number}" for number in range(40)]
    for name in names:
        server.put(name, f"value of {name}")
    call = store(server.url)
    await read(provider, call, *names)
    server.calls.clear()

    values = await read(provider, call, *names)

    assert values == [f"value of {name}".encode() for name in names]
    assert called(server) == ["get-secret-value"]
    assert sorted(server.calls[0].json()["names"]) == sorted(names)


async def test_types_are_asked_for_again_after_two_hours(
    provider: InMemory, server: AkeylessServer, clock: VirtualClock
) -> None:
    server.put("/a", "1")
    await read(provider, store(server.url), "/a")
    await clock.advance(2 * 3600 + 1)
    server.skew += 2 * 3600 + 1

    await read(provider, store(server.url), "/a")

    assert called(server) == ["describe-item", "get-secret-value"] * 2


async def test_keys_may_be_written_without_the_leading_slash(provider: InMemory, server: AkeylessServer) -> None:
    server.put("/a/b", "1")
    server.script("POST /v2/get-secret-value", StandinResponse(200, {"/a/b": "1"}))

    assert await read(provider, store(server.url), "a/b") == [b"1"]


@pytest.mark.parametrize(
    ("ref", "value"),
    [
        pytest.param(RemoteRef("/login", property="user"), b"anna", id="a member"),
        pytest.param(RemoteRef("/login", property="a.b"), b"literal", id="a member whose name has a dot comes first"),
        pytest.param(RemoteRef("/login", property="list.1"), b"2", id="a path"),
        pytest.param(RemoteRef("/login", version="1"), b"first", id="an earlier version"),
        pytest.param(RemoteRef("/login", property="user", version="latest"), b"anna", id="the latest version"),
        pytest.param(RemoteRef("/json"), b'{"user": "x"}', id="a value that the service sends as an object"),
    ],
)
async def test_a_reference_selects_a_version_and_a_property(
    provider: InMemory, server: AkeylessServer, ref: RemoteRef, value: bytes
) -> None:
    server.put("/login", "first", json.dumps({"user": "anna", "a.b": "literal", "a": {"b": "path"}, "list": [1, 2]}))
    server.put("/json", {"user": "x"})

    (outcome,) = await read(provider, store(server.url), ref)

    assert isinstance(outcome, bytes)
    assert outcome.replace(b" ", b"") == value.replace(b" ", b"")


@pytest.mark.parametrize(
    ("ref", "expected"),
    [
        pytest.param(RemoteRef("/none"), ErrorReason.SECRET_NOT_FOUND, id="no item"),
        pytest.param(RemoteRef("/login", version="7"), ErrorReason.VERSION_NOT_FOUND, id="no version"),
        pytest.param(RemoteRef("/login", version="new"), ErrorReason.VERSION_NOT_FOUND, id="not a version"),
        pytest.param(RemoteRef("/login", property="none"), ErrorReason.PROPERTY_NOT_FOUND, id="no property"),
        pytest.param(RemoteRef("/key"), ErrorReason.INVALID_REQUEST, id="an item without a value"),
    ],
)
async def test_what_cannot_be_read_is_said(
    provider: InMemory, server: AkeylessServer, ref: RemoteRef, expected: ErrorReason
) -> None:
    server.put("/login", f'{{"user":"{CANARY}"}}')
    server.put("/key", item_type="AES256GCM")

    (outcome,) = await read(provider, store(server.url), ref)

    assert reason(outcome) is expected


async def test_a_map_has_the_members_of_a_json_value(provider: InMemory, server: AkeylessServer) -> None:
    server.put("/login", '{"user":"anna","age":7,"none":null}')

    members = await read_map(provider, store(server.url), "/login")

    assert members == {"user": b"anna", "age": b"7", "none": b""}


async def test_a_missing_key_costs_one_request_a_minute(
    provider: InMemory, server: AkeylessServer, clock: VirtualClock
) -> None:
    reasons = [reason((await read(provider, store(server.url), "/late"))[0]) for _ in range(5)]
    before = called(server)
    server.put("/late", "here")
    await clock.advance(61)

    assert reasons == [ErrorReason.SECRET_NOT_FOUND] * 5
    assert before == ["describe-item"]
    assert await read(provider, store(server.url), "/late") == [b"here"]


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        pytest.param(lambda server: server.items.pop("/shop/5"), ErrorReason.SECRET_NOT_FOUND, id="deleted"),
        pytest.param(lambda server: server.unreadable.add("/shop/5"), ErrorReason.PERMISSION_DENIED, id="denied"),
    ],
)
async def test_one_secret_that_cannot_be_read_does_not_spoil_the_others(
    provider: InMemory, server: AkeylessServer, spoil: Callable[[AkeylessServer], object], expected: ErrorReason
) -> None:
    names = [f"/shop/{number}" for number in range(8)]
    for name in names:
        server.put(name, "v")
    call = store(server.url)
    await read(provider, call, *names)
    spoil(server)
    server.calls.clear()

    outcomes = await read(provider, call, *names)

    assert reason(outcomes[5]) is expected
    assert [value for value in outcomes if value != outcomes[5]] == [b"v"] * 7
    assert len(server.calls) <= 9


async def test_a_static_secret_that_became_a_rotated_one_is_read_at_the_next_try(
    provider: InMemory, server: AkeylessServer
) -> None:
    server.put("/a", "old")
    await read(provider, store(server.url), "/a")
    server.put("/a", {"value": {"payload": "new"}}, item_type="ROTATED_SECRET")

    first, second = [(await read(provider, store(server.url), "/a"))[0] for _ in range(2)]

    assert reason(first) is ErrorReason.BACKEND_ERROR
    assert second == b"new"


async def test_an_item_that_was_deleted_may_come_back_as_another_type(
    provider: InMemory, server: AkeylessServer, clock: VirtualClock
) -> None:
    server.put("/a", "old")
    await read(provider, store(server.url), "/a")
    del server.items["/a"]
    (missing,) = await read(provider, store(server.url), "/a")
    server.put("/a", {"value": {"payload": "new"}}, item_type="ROTATED_SECRET")
    await clock.advance(61)

    assert reason(missing) is ErrorReason.SECRET_NOT_FOUND
    assert await read(provider, store(server.url), "/a") == [b"new"]


async def test_reads_pass_the_cache_of_the_gateway_if_the_store_says_so(
    provider: InMemory, server: AkeylessServer
) -> None:
    server.put("/a", "1")

    await read(provider, store(server.url, ignoreCache=True), "/a")

    (request,) = server.commands("get-secret-value")
    assert request.json()["ignore-cache"] == "true"


# --- other types -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("response", "value"),
    [
        pytest.param({"value": {"payload": "p", "target_value": {"a": 1}}}, b"p", id="payload"),
        pytest.param({"value": {"target_value": {"a": 1}}}, b'{"a":1}', id="target"),
        pytest.param({"value": {"user": "x"}}, b'{"user":"x"}', id="the whole value"),
        pytest.param({"user": "x"}, b'{"user":"x"}', id="the whole answer"),
    ],
)
async def test_a_rotated_secret_is_its_payload_or_what_it_has_for_its_target(
    provider: InMemory, server: AkeylessServer, response: object, value: bytes
) -> None:
    server.put("/r", response, item_type="ROTATED_SECRET")

    assert await read(provider, store(server.url), "/r") == [value]


async def test_a_certificate_is_an_object_with_its_parts(provider: InMemory, server: AkeylessServer) -> None:
    server.put("/c", {"certificate_pem": "PEM", "private_key_pem": "KEY"}, item_type="CERTIFICATE")

    outcome = await read(provider, store(server.url), RemoteRef("/c", property="certificate_pem"))

    assert outcome == [b"PEM"]


async def test_user_and_password_of_a_dynamic_secret_belong_together(
    provider: InMemory, server: AkeylessServer
) -> None:
    server.put("/d", item_type="DYNAMIC_SECRET")
    refs = [RemoteRef("/d", property="user"), RemoteRef("/d", property="password")]

    first = await read(provider, store(server.url), *refs)
    second = await read(provider, store(server.url), *refs)

    assert (first, second) == ([b"tmp-1", b"pw-1"], [b"tmp-2", b"pw-2"])


async def test_a_dynamic_secret_has_no_versions(provider: InMemory, server: AkeylessServer) -> None:
    server.put("/d", item_type="DYNAMIC_SECRET")

    (outcome,) = await read(provider, store(server.url), RemoteRef("/d", version="1"))

    assert reason(outcome) is ErrorReason.INVALID_REQUEST
    assert server.items["/d"].versions == []


async def test_a_check_reads_no_value(provider: InMemory, server: AkeylessServer) -> None:
    server.put("/d", item_type="DYNAMIC_SECRET")
    server.put("/s", '{"a":"1"}')

    responses = [
        await exists(provider, store(server.url), ref)
        for ref in ("/d", "/none", "/s", RemoteRef("/s", property="a"), RemoteRef("/s", property="b"))
    ]

    assert responses == [True, False, True, True, False]
    assert server.items["/d"].versions == []


# --- finding ---------------------------------------------------------------------------------------------------------


def furnish(server: AkeylessServer) -> None:
    server.put("/shop/db", "1", tags=("prod", "db"))
    server.put("/shop/web", "2", tags=("prod",))
    server.put("/other/shop/db", "3", tags=("db",))
    server.put("/shop/cert", {}, item_type="CERTIFICATE", tags=("prod",))


@pytest.mark.parametrize(
    ("query", "keys"),
    [
        pytest.param(FindQuery(name_regexp="db$"), {"/shop/db", "/other/shop/db"}, id="by name"),
        pytest.param(FindQuery(name_regexp=".", path="shop"), {"/shop/db", "/shop/web"}, id="by folder"),
        pytest.param(FindQuery(tags={"any": "prod"}), {"/shop/db", "/shop/web"}, id="by tag"),
        pytest.param(FindQuery(tags={"a": "db", "b": "prod"}, path="/shop"), {"/shop/db", "/shop/web"}, id="any tag"),
        pytest.param(FindQuery(name_regexp="web", tags={"a": "db"}), {"/shop/web"}, id="a name excludes tags"),
        pytest.param(FindQuery(name_regexp="none"), set(), id="nothing"),
    ],
)
async def test_a_find_selects_by_name_folder_and_tag(
    provider: InMemory, server: AkeylessServer, query: FindQuery, keys: set[str]
) -> None:
    furnish(server)

    assert set(await found(provider, store(server.url), query)) == keys


async def test_a_find_costs_a_request_for_each_page_and_one_for_all_static_values(
    provider: InMemory, server: AkeylessServer
) -> None:
    furnish(server)
    server.page_size = 2

    values = await found(provider, store(server.url), FindQuery(name_regexp="."))

    assert values == {"/shop/db": b"1", "/shop/web": b"2", "/other/shop/db": b"3"}
    assert called(server) == ["list-items", "list-items", "get-secret-value"]


# --- rights ----------------------------------------------------------------------------------------------------------


async def test_two_identities_read_only_what_each_may(provider: InMemory, server: AkeylessServer) -> None:
    server.identities = {"p-a": Identity("key-a", folder="/a/"), "p-b": Identity("key-b", folder="/b/")}
    server.put("/a/x", "of a")
    server.put("/b/x", "of b")
    of_a, of_b = store(server.url, "key-a", "p-a"), store(server.url, "key-b", "p-b")

    own = [*await read(provider, of_a, "/a/x"), *await read(provider, of_b, "/b/x")]
    foreign = [*await read(provider, of_a, "/b/x"), *await read(provider, of_b, "/a/x")]

    assert own == [b"of a", b"of b"]
    assert [reason(outcome) for outcome in foreign] == [ErrorReason.PERMISSION_DENIED] * 2


async def test_many_items_that_the_role_may_not_see_cost_one_login_and_spoil_no_other(
    provider: InMemory, server: AkeylessServer
) -> None:
    server.identities["p-a"] = Identity("key-a", folder="/a/")
    server.put("/a/x", "of a")
    foreign = [f"/b/{number}" for number in range(12)]
    call = store(server.url, "key-a", "p-a")

    denied = await read(provider, call, *foreign)
    mixed = await read(provider, call, "/a/x", *foreign)

    assert {reason(outcome) for outcome in (*denied, *mixed[1:])} == {ErrorReason.PERMISSION_DENIED}
    assert mixed[0] == b"of a"
    assert len(server.commands("auth")) == 2


async def test_a_denied_item_is_named_with_what_to_do(provider: InMemory, server: AkeylessServer) -> None:
    server.identities["p-a"] = Identity("key-a", folder="/a/")

    (outcome,) = await read(provider, store(server.url, "key-a", "p-a"), "/b/x")

    assert reason(outcome) is ErrorReason.PERMISSION_DENIED
    assert 'item "/b/x" denies access: HTTP 401' in str(outcome)
    assert "check their rights" in str(outcome)


async def test_the_latest_version_of_a_dynamic_secret_is_new_credentials(
    provider: InMemory, server: AkeylessServer
) -> None:
    server.put("/d", item_type="DYNAMIC_SECRET")

    assert await read(provider, store(server.url), RemoteRef("/d", property="user", version="latest")) == [b"tmp-1"]


async def test_throttling_pauses_every_store_of_the_identity(provider: InMemory, server: AkeylessServer) -> None:
    server.put("/a", "1")
    server.script("POST /v2/describe-item", StandinResponse(429, {"error": CANARY}, {"Retry-After": "40"}))

    first, second = [(await read(provider, store(server.url), "/a"))[0] for _ in range(2)]

    assert reason(first) is reason(second) is ErrorReason.RATE_LIMITED
    assert len(server.commands()) == 1


@pytest.mark.parametrize(
    "response",
    [
        *(
            pytest.param(StandinResponse(each, {"error": f"not found {CANARY}"}), id=f"{each}")
            for each in (400, 403, 500, 503)
        ),
        pytest.param(StandinResponse(404, b"<html>default backend - 404</html>"), id="404 of a proxy"),
        pytest.param(StandinResponse(404), id="404 without a body"),
        pytest.param(StandinResponse(404, {"error": "unknown command"}), id="404 of another path"),
        pytest.param(StandinResponse(200, {}), id="an answer without an item"),
    ],
)
async def test_no_failure_counts_as_a_missing_key(
    provider: InMemory, server: AkeylessServer, response: StandinResponse
) -> None:
    server.put("/a", CANARY)
    server.script("POST /v2/describe-item", response)

    (outcome,) = await read(provider, store(server.url), "/a")

    assert reason(outcome) is not ErrorReason.SECRET_NOT_FOUND
    assert await read(provider, store(server.url), "/a") == [CANARY.encode()]
