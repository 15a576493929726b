"""Reads and writes through the companion server."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from eso_provider_bitwarden.testing.server import OTHER, PROJECT, TOKEN, CompanionServer, store
from eso_sdk.testing import InMemory
from eso_sdk.testing.server import delete, exists, found, push, read, read_map
from eso_sdk.testing.standin import StandinResponse
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import FindQuery, PushOutcome, RemoteRef, ValidationState
from kubebase.testing.clock import VirtualClock

NO_SUCH_ID = "00000000-0000-4000-8000-000000000000"


def reason(outcome: object) -> ErrorReason:
    assert isinstance(outcome, ProviderError)
    return outcome.reason


def lines(server: CompanionServer) -> list[str]:
    return [request.line.replace("/rest/api/1/", "") for request in server.calls]


# --- reads -----------------------------------------------------------------------------------------------------------


async def test_a_request_carries_token_addresses_and_a_json_body(provider: InMemory, server: CompanionServer) -> None:
    made = server.put("db", "value")
    call = store(server, apiURL="https://api.bitwarden.eu/", identityURL="https://identity.bitwarden.eu/")

    assert await read(provider, call, made) == [b"value"]

    (request,) = server.calls
    assert (request.line, request.json()) == ("GET /rest/api/1/secret", {"id": made})
    assert request.headers["warden-access-token"] == TOKEN
    assert request.headers["warden-api-url"] == "https://api.bitwarden.eu"
    assert request.headers["warden-identity-url"] == "https://identity.bitwarden.eu"


async def test_names_are_found_in_the_project_with_one_list_and_one_read(
    provider: InMemory, server: CompanionServer
) -> None:
    for number in range(20):
        server.put(f"name-{number}", f"v{number}")
        server.put(f"name-{number}", "of another project", project=OTHER)

    values = await read(provider, store(server), *(f"name-{number}" for number in range(20)))

    assert values == [f"v{number}".encode() for number in range(20)]
    assert lines(server) == ["GET secrets", "GET secrets-by-ids"]


async def test_an_old_server_is_asked_for_one_secret_at_a_time(provider: InMemory, server: CompanionServer) -> None:
    server.old = True
    server.put("a", "1")
    server.put("b", "2")
    server.put("b", "other", project=OTHER)
    call = store(server)

    assert await read(provider, call, "a", "b") == [b"1", b"2"]
    assert await read(provider, call, "a", "b") == [b"1", b"2"]
    assert lines(server).count("GET secrets-by-ids") == 1


async def test_ids_count_whatever_their_project(provider: InMemory, server: CompanionServer) -> None:
    ids = [server.put("a", "1"), server.put("b", "2", project=OTHER)]

    assert await read(provider, store(server), *ids) == [b"1", b"2"]
    assert lines(server) == ["GET secrets-by-ids"]


async def test_two_secrets_of_one_name_in_the_project_are_an_error(provider: InMemory, server: CompanionServer) -> None:
    server.put("twice", "1")
    server.put("twice", "2")

    (outcome,) = await read(provider, store(server), "twice")

    assert reason(outcome) is ErrorReason.INVALID_REQUEST
    assert "use the id of one" in str(outcome)


@pytest.mark.parametrize("old", [pytest.param(False, id="new server"), pytest.param(True, id="old server")])
async def test_a_missing_secret_is_not_found_while_the_account_sees_the_project(
    provider: InMemory, server: CompanionServer, old: bool
) -> None:
    server.old = old
    made = server.put("there", "1")

    outcomes = await read(provider, store(server), "gone", NO_SUCH_ID, "there", made)

    assert [reason(each) for each in outcomes[:2]] == [ErrorReason.SECRET_NOT_FOUND] * 2
    assert outcomes[2:] == [b"1", b"1"]


@pytest.mark.parametrize("key", ["name", NO_SUCH_ID])
@pytest.mark.parametrize("old", [pytest.param(False, id="new server"), pytest.param(True, id="old server")])
async def test_an_account_that_lost_its_project_never_makes_secrets_look_deleted(
    provider: InMemory, server: CompanionServer, key: str, old: bool
) -> None:
    server.old = old
    server.put("name", "1")
    server.put("elsewhere", "2", project=OTHER)
    server.tokens[TOKEN] = frozenset({OTHER})

    (outcome,) = await read(provider, store(server), key)

    assert reason(outcome) is ErrorReason.PERMISSION_DENIED


async def test_a_property_selects_a_member(provider: InMemory, server: CompanionServer) -> None:
    server.put("db", '{"user": "anna", "port": 5432}')
    refs = [RemoteRef("db", property=name) for name in ("port", "gone")]

    port, gone = await read(provider, store(server), *refs)

    assert (port, reason(gone)) == (b"5432", ErrorReason.PROPERTY_NOT_FOUND)


@pytest.mark.parametrize(
    ("value", "members"),
    [
        pytest.param("user: anna\npin: 007\n", {"user": b"anna", "pin": b"007"}, id="YAML; a number as it is written"),
        pytest.param("on: true\nnone: ~\n", {"on": b"true", "none": b""}, id="YAML; a truth value, and null"),
        pytest.param("deep:\n  b: 1\n  a: [x]\n", {"deep": b"a:\n- x\nb: 1"}, id="YAML; a mapping stays YAML"),
        pytest.param('{"user": "anna", "deep": {"b": 1}}', {"user": b"anna", "deep": b"b: 1"}, id="JSON is YAML"),
        pytest.param('{"tab":\t"x"}', {"tab": b"x"}, id="JSON that is not YAML"),
        pytest.param("file: !!binary aGVsbG8=\n", {"file": b"hello"}, id="YAML; binary"),
    ],
)
async def test_a_map_is_yaml_first_then_json(
    provider: InMemory, server: CompanionServer, value: str, members: dict[str, bytes]
) -> None:
    server.put("map", value)

    assert await read_map(provider, store(server), "map") == members


@pytest.mark.parametrize("value", ["just text", "- a\n- b\n", "? [a]\n: b\n", ""])
async def test_a_value_that_is_no_map_is_refused_without_quoting_it(
    provider: InMemory, server: CompanionServer, value: str
) -> None:
    server.put("map", value)

    outcome = await read_map(provider, store(server), "map")

    assert reason(outcome) is ErrorReason.BACKEND_ERROR
    assert "neither a YAML mapping nor a JSON object" in str(outcome)


@pytest.mark.parametrize(("key", "there"), [("db", True), ("gone", False)])
async def test_a_check_tells_what_exists(provider: InMemory, server: CompanionServer, key: str, there: bool) -> None:
    server.put("db", "1")

    assert await exists(provider, store(server), key) is there


async def test_a_find_is_restricted_by_name_and_gives_ids(provider: InMemory, server: CompanionServer) -> None:
    ids = [server.put("db-user", "anna"), server.put("db-password", "p", project=OTHER)]
    server.put("other", "x")

    values = await found(provider, store(server), FindQuery(name_regexp="^db-"))

    assert values == {ids[0]: b"anna", ids[1]: b"p"}
    assert lines(server) == ["GET secrets", "GET secrets-by-ids"]


async def test_a_find_without_a_match_reads_nothing(provider: InMemory, server: CompanionServer) -> None:
    server.put("a", "1")

    assert await found(provider, store(server), FindQuery(name_regexp="^z")) == {}
    assert lines(server) == ["GET secrets"]


@pytest.mark.parametrize("query", [FindQuery(tags={"a": "b"}), FindQuery(path="/a")])
async def test_a_find_by_tags_or_path_is_refused(provider: InMemory, server: CompanionServer, query: FindQuery) -> None:
    with pytest.raises(ProviderError) as refused:
        await found(provider, store(server), query)

    assert refused.value.reason is ErrorReason.UNSUPPORTED_OPERATION


# --- writes ----------------------------------------------------------------------------------------------------------


async def test_a_value_is_created_updated_and_left_alone_if_equal(provider: InMemory, server: CompanionServer) -> None:
    call = store(server)

    outcomes = [await push(provider, call, ("db", "", value)) for value in ("one", "one", "two")]

    assert outcomes == [[PushOutcome.CREATED], [PushOutcome.UNCHANGED], [PushOutcome.UPDATED]]
    assert server.values("db") == ["two"]


@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param({"note": "ours"}, id="as the operator in Go has it"),
        pytest.param({"kind": "PushSecretMetadata", "spec": {"note": "ours"}}, id="in an envelope"),
    ],
)
async def test_a_note_is_part_of_what_is_compared(
    provider: InMemory, server: CompanionServer, metadata: dict[str, Any]
) -> None:
    server.put("db", "theirs", note="theirs")
    server.put("db", "elsewhere", note="ours", project=OTHER)
    call = store(server)

    created = await push(provider, call, ("db", "", "1"), provider_metadata=metadata)
    updated = await push(provider, call, ("db", "", "2"), provider_metadata=metadata)

    assert (created, updated) == ([PushOutcome.CREATED], [PushOutcome.UPDATED])
    assert server.values("db") == ["theirs", "elsewhere", "2"]


async def test_properties_of_one_name_are_one_write_and_keep_the_rest(
    provider: InMemory, server: CompanionServer
) -> None:
    server.put("db", '{"keep":1}')

    await push(provider, store(server), ("db", "user", "anna"), ("db", "password", "p"))

    assert server.values("db") == ['{"keep":1,"user":"anna","password":"p"}']
    assert lines(server).count("PUT secret") == 1


async def test_a_whole_secret_is_a_json_object(provider: InMemory, server: CompanionServer) -> None:
    await push(provider, store(server), ("db", "", {"user": "anna", "password": "p"}))

    assert server.values("db") == ['{"password":"p","user":"anna"}']


@pytest.mark.parametrize(
    ("item", "more", "text"),
    [
        pytest.param((PROJECT, "", "x"), {}, "push to a name", id="an id"),
        pytest.param(("a", "", b"\xff"), {}, "binary", id="a binary value"),
        pytest.param(("a", "", "x"), {"provider_metadata": {"note": 7}}, "note must be a text", id="a number as note"),
    ],
)
async def test_a_push_that_cannot_work_is_refused(
    provider: InMemory, server: CompanionServer, item: tuple[str, str, Any], more: dict[str, Any], text: str
) -> None:
    (outcome,) = await push(provider, store(server), item, **more)

    assert reason(outcome) is ErrorReason.INVALID_REQUEST
    assert text in str(outcome)
    assert server.entries == {}


@pytest.mark.parametrize(
    ("key", "name", "existed", "left"),
    [
        pytest.param("db", "", True, [], id="by name"),
        pytest.param("db", "a", True, ['{"b":"2"}'], id="a property keeps the rest"),
        pytest.param("gone", "", False, ['{"a":"1","b":"2"}'], id="an absent one is fine"),
    ],
)
async def test_deletions(
    provider: InMemory, server: CompanionServer, key: str, name: str, *, existed: bool, left: list[str]
) -> None:
    server.put("db", '{"a":"1","b":"2"}')
    server.put("keeps the project visible", "x")

    assert await delete(provider, store(server), (key, name)) == [existed]
    assert server.values("db") == left


@pytest.mark.parametrize("key", ["gone", NO_SUCH_ID])
async def test_an_absent_secret_of_an_empty_project_is_deleted_too(
    provider: InMemory, server: CompanionServer, key: str
) -> None:
    assert await delete(provider, store(server), (key, "")) == [False]


async def test_a_secret_is_deleted_by_its_id(provider: InMemory, server: CompanionServer) -> None:
    made = server.put("db", "1")

    assert await delete(provider, store(server), (made, "")) == [True]
    assert server.entries == {}


# --- trust, failures, sharing ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoded", [pytest.param(False, id="PEM"), pytest.param(True, id="PEM in base64")])
async def test_the_bundle_is_text(tls_server: CompanionServer, provider: InMemory, encoded: bool) -> None:
    made = tls_server.put("a", "1")
    bundle = base64.b64encode(tls_server.ca) if encoded else tls_server.ca

    assert await read(provider, store(tls_server, caBundle=bundle.decode()), made) == [b"1"]


async def test_without_a_bundle_the_authorities_of_the_system_count(
    tls_server: CompanionServer, provider: InMemory
) -> None:
    with pytest.raises(ProviderError, match="unknown certificate authority; set caBundle or caProvider") as failed:
        await read(provider, store(tls_server), tls_server.put("a", "1"))

    assert failed.value.reason is ErrorReason.BACKEND_UNAVAILABLE


async def test_a_valid_store_can_list(provider: InMemory, server: CompanionServer) -> None:
    assert (await provider.validate(store(server))).state is ValidationState.READY


async def test_a_wrong_token_costs_one_call_a_minute_and_quotes_nothing(
    provider: InMemory, server: CompanionServer, clock: VirtualClock
) -> None:
    call = store(server, token="0.wrong.CANARY:x")

    verdicts = [await provider.validate(call) for _ in range(3)]
    before = len(server.calls)
    await clock.advance(61)
    await provider.validate(call)

    assert {reason(verdict.error) for verdict in verdicts} == {ErrorReason.CREDENTIALS_REJECTED}
    assert "CANARY" not in str(verdicts[0].error)
    assert (before, len(server.calls)) == (1, 2)


async def test_a_missing_id_costs_one_call_a_minute(
    provider: InMemory, server: CompanionServer, clock: VirtualClock
) -> None:
    call = store(server)
    await read(provider, call, server.put("a", "1"))
    server.calls.clear()

    outcomes = [each for _ in range(3) for each in await read(provider, call, NO_SUCH_ID)]
    before = len(server.calls)
    await clock.advance(61)
    await read(provider, call, NO_SUCH_ID)

    assert {reason(each) for each in outcomes} == {ErrorReason.SECRET_NOT_FOUND}
    assert (before, len(server.calls)) == (1, 2)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("401 Unauthorized", ErrorReason.CREDENTIALS_REJECTED),
        ("403 Forbidden", ErrorReason.PERMISSION_DENIED),
        ("429 Too Many Requests", ErrorReason.RATE_LIMITED),
        ("503 Service Unavailable", ErrorReason.BACKEND_UNAVAILABLE),
        ("422 Unprocessable", ErrorReason.BACKEND_ERROR),
    ],
)
async def test_what_bitwarden_answered_decides_and_not_the_status_of_the_companion(
    provider: InMemory, server: CompanionServer, status: str, expected: ErrorReason
) -> None:
    text = f'failed to get secret: API error: Received error message from server: [{status}] {{"value":"CANARY"}}'
    server.script("GET *", StandinResponse(400, text.encode()))

    with pytest.raises(ProviderError) as failed:
        await read(provider, store(server), NO_SUCH_ID)

    assert failed.value.reason is expected
    assert "CANARY" not in str(failed.value)


async def test_namespaces_with_different_tokens_never_see_each_others_values(
    provider: InMemory, server: CompanionServer
) -> None:
    mine, theirs = server.put("a", "mine"), server.put("a", "theirs", project=OTHER)
    server.tokens = {"0.one.token:x": frozenset({PROJECT}), "0.two.token:x": frozenset({OTHER})}
    one = store(server, token="0.one.token:x", namespace="one")
    two = store(server, token="0.two.token:x", namespace="two", projectID=OTHER)

    first = await read(provider, one, mine, theirs)
    second = await read(provider, two, mine, theirs)

    assert (first[0], reason(first[1])) == (b"mine", ErrorReason.SECRET_NOT_FOUND)
    assert (reason(second[0]), second[1]) == (ErrorReason.SECRET_NOT_FOUND, b"theirs")


@pytest.mark.parametrize(
    ("field", "text"),
    [
        pytest.param("organizationID", "x", id="no id of an organization"),
        pytest.param("projectID", "", id="no project"),
        pytest.param("bitwardenServerSDKURL", "ftp://x", id="another scheme"),
        pytest.param("bitwardenServerSDKURL", "http://[x", id="no URL"),
        pytest.param("apiURL", "http://bitwarden.example.com/api", id="an API without TLS"),
        pytest.param("identityURL", "http://bitwarden.example.com/identity", id="an identity service without TLS"),
        pytest.param("identityURL", "https:///identity", id="no host"),
        pytest.param("caBundle", "no bundle", id="no bundle"),
    ],
)
async def test_a_configuration_that_cannot_work_is_refused(
    provider: InMemory, server: CompanionServer, field: str, text: str
) -> None:
    verdict = await provider.validate(store(server, **{field: text}))

    assert reason(verdict.error) is ErrorReason.CONFIG_INVALID
    assert str(verdict.error).startswith(f"/{field}: ")
    assert server.calls == []
