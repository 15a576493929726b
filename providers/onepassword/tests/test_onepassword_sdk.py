"""1Password with a service account. Only the native core of the vendor's SDK is replaced; its Python code is real."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from typing import Any

import pytest
from onepassword.client import Client

from eso_provider_onepassword.account import error_of
from eso_provider_onepassword.testing.core import RATE_LIMITED, CoreError, FakeAccount
from eso_provider_onepassword.testing.sessions import (
    delete,
    envelope,
    failure,
    find,
    item,
    push,
    read,
    read_map,
    sdk,
)
from eso_sdk.testing import InMemory
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import GetItem, Operation, PushOutcome, RemoteRef, ValidationState
from kubebase.testing.clock import VirtualClock

CREATED, UPDATED, UNCHANGED = PushOutcome.CREATED, PushOutcome.UPDATED, PushOutcome.UNCHANGED


@pytest.fixture
def filled(account: FakeAccount) -> FakeAccount:
    team = account.vault("team")
    team.put("login", {"username": "anna", "password": "first"}, tags=["blue", "prod"])
    team.put("sectioned", {"password": "inside"}, section="db", tags=["blue"])
    team.attach("certificate", {"tls.crt": b"\x00cert"})
    return account


# --- reading ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize(
    ("ref", "value"),
    [
        pytest.param("login/password", b"first", id="an item and a field"),
        pytest.param("sectioned/db/password", b"inside", id="with a section"),
        pytest.param("login", b"first", id="without a field: that to which a push writes"),
        pytest.param("login#username", b"anna", id="without a field, but a property"),
        pytest.param("login/username#password", b"anna", id="a property beside a field is ignored"),
    ],
)
async def test_keys_are_references(ref: str, value: bytes, provider: InMemory) -> None:
    assert await read(provider, sdk(), ref) == [value]


@pytest.mark.parametrize(
    ("ref", "reason", "words"),
    [
        pytest.param("no-such/password", ErrorReason.SECRET_NOT_FOUND, '"no-such/password"', id="no such item"),
        pytest.param("login/nothing", ErrorReason.PROPERTY_NOT_FOUND, "no such field", id="no such field"),
        pytest.param("login/no/password", ErrorReason.PROPERTY_NOT_FOUND, "no such section", id="no such section"),
        pytest.param("a/b/c/d", ErrorReason.INVALID_REQUEST, "ITEM/SECTION/FIELD", id="too many parts"),
        pytest.param("twice/password", ErrorReason.INVALID_REQUEST, "several items", id="two items of one title"),
        pytest.param(
            RemoteRef("login/password", version="2"), ErrorReason.VERSION_NOT_FOUND, "version", id="a version"
        ),
    ],
)
async def test_what_cannot_be_read_is_explained(
    ref: RemoteRef | str, reason: ErrorReason, words: str, filled: FakeAccount, provider: InMemory
) -> None:
    team = filled.vault("team")
    for number in ("1", "2"):
        team.store({"title": "twice", "id": number * 26, "fields": []})

    error = await failure(provider, sdk(), ref)

    assert error.reason is reason
    assert words in error.message


@pytest.mark.usefixtures("filled")
async def test_a_vault_that_the_account_does_not_see_is_no_missing_item(provider: InMemory) -> None:
    error = await failure(provider, sdk(vault="taem"), "login/password")

    assert error.reason is ErrorReason.CONFIG_INVALID
    assert "team" in error.message.replace("taem", "")


async def test_a_vault_may_be_named_by_its_id(filled: FakeAccount, provider: InMemory) -> None:
    assert await read(provider, sdk(vault=filled.vault("team").id), "login/password") == [b"first"]


@pytest.mark.usefixtures("filled")
async def test_maps_have_fields_or_files(provider: InMemory) -> None:
    assert await read_map(provider, sdk(), "login") == {"username": b"anna", "password": b"first"}
    assert await read_map(provider, sdk(), "login#username") == {"username": b"anna"}
    assert await read_map(provider, sdk(), "certificate") == {"tls.crt": b"\x00cert"}


@pytest.mark.usefixtures("filled")
async def test_finds(provider: InMemory) -> None:
    assert await find(provider, sdk(), name_regexp="^user") == {"username": b"anna"}
    assert await find(provider, sdk(), tags={"prod": ""}) == {"username": b"anna", "password": b"first"}
    assert await find(provider, sdk(), path="sectioned") == {"password": b"inside"}


async def test_a_find_reads_fifty_items_in_a_call(filled: FakeAccount, provider: InMemory) -> None:
    for number in range(60):
        filled.vault("team").put(f"many-{number}", {f"field-{number}": "x"})

    found = await find(provider, sdk(), name_regexp="^field-")

    assert len(found) == 60
    assert filled.calls.count("ItemsGetAll") == 2


# --- what it costs ---------------------------------------------------------------------------------------------------


async def test_fifty_keys_of_ten_items_cost_two_calls_and_one_if_nothing_changed(
    account: FakeAccount, provider: InMemory
) -> None:
    refs = [f"item-{number}/field-{at}" for number in range(10) for at in range(5)]
    for number in range(10):
        account.vault("team").put(f"item-{number}", {f"field-{at}": f"{number}.{at}" for at in range(5)})
    call = sdk()

    first = await read(provider, call, *refs)
    calls = [*account.calls]
    account.calls.clear()
    again = await read(provider, call, *refs)

    assert first == again == [ref.replace("item-", "").replace("/field-", ".").encode() for ref in refs]
    assert calls == ["Authenticate", "VaultsList", "SecretsResolveAll"]
    assert account.calls == ["VaultsList"]


async def test_a_change_is_seen_at_the_next_read(filled: FakeAccount, provider: InMemory) -> None:
    call = sdk()
    await read(provider, call, "login/password")
    filled.vault("team").put("login", {"password": "second"})

    assert await read(provider, call, "login/password") == [b"second"]


async def test_one_time_passwords_are_asked_for_every_time(filled: FakeAccount, provider: InMemory) -> None:
    call = sdk(cache={"ttl": "1h"})
    for _ in range(2):
        await read(provider, call, "login/password?attribute=otp")

    assert filled.calls.count("SecretsResolveAll") == 2


async def test_the_cache_answers_without_a_call_until_its_time_is_over(
    filled: FakeAccount, timed: InMemory, clock: VirtualClock
) -> None:
    call = sdk(cache={"ttl": "2m"})
    await read(timed, call, "login/password")
    await read_map(timed, call, "login")
    filled.vault("team").put("login", {"password": "second"})
    filled.calls.clear()

    within = [await read(timed, call, "login/password"), await read_map(timed, call, "login")]
    quiet = [*filled.calls]
    await clock.advance(121)
    after = [await read(timed, call, "login/password"), await read_map(timed, call, "login")]

    assert within == [[b"first"], {"username": b"anna", "password": b"first"}]
    assert quiet == []
    assert after == [[b"second"], {"password": b"second"}]


async def test_the_cache_holds_no_more_than_its_size(filled: FakeAccount, provider: InMemory) -> None:
    call = sdk(cache={"ttl": "1h", "maxSize": 1})
    await read(provider, call, "login/password")
    await read(provider, call, "login/username")
    filled.calls.clear()

    await read(provider, call, "login/username")
    quiet = [*filled.calls]
    await read(provider, call, "login/password")

    assert (quiet, filled.calls) == ([], ["VaultsList"])


@pytest.mark.usefixtures("filled")
async def test_a_push_is_read_in_spite_of_the_cache(provider: InMemory) -> None:
    call = sdk(cache={"ttl": "1h"})
    await read(provider, call, "login/password")

    await push(provider, call, item("login", b"pushed"))

    assert await read(provider, call, "login/password") == [b"pushed"]


async def test_a_missing_item_costs_one_call_a_minute(
    filled: FakeAccount, timed: InMemory, clock: VirtualClock
) -> None:
    call = sdk()
    await read(timed, call, "login/password", "no-such/password")
    filled.calls.clear()

    for _ in range(24):
        await failure(timed, call, "no-such/password")
        await clock.advance(5)

    assert filled.calls == ["VaultsList"]
    filled.vault("team").put("no-such", {"password": "here now"})
    await clock.advance(61)
    assert await read(timed, call, "no-such/password") == [b"here now"]


async def test_a_bad_token_costs_one_call_a_minute(filled: FakeAccount, timed: InMemory, clock: VirtualClock) -> None:
    call = sdk(token="ops_wrong")
    for _ in range(24):
        error = await failure(timed, call, "login/password")
        await clock.advance(5)

    assert error.reason is ErrorReason.CREDENTIALS_REJECTED
    assert "ops_wrong" not in error.message
    assert filled.calls == ["Authenticate"] * 2


async def test_a_session_that_expired_is_renewed_at_once(filled: FakeAccount, provider: InMemory) -> None:
    call = sdk()
    await read(provider, call, "login/password")
    filled.failures = [CoreError("session expired")]

    assert await read(provider, call, "login/username") == [b"anna"]
    assert filled.calls.count("Authenticate") == 2


async def test_stores_with_one_token_share_one_client(filled: FakeAccount, provider: InMemory) -> None:
    for namespace in ("a", "b", "c"):
        await read(provider, sdk(namespace=namespace), "login/password")

    assert filled.calls.count("Authenticate") == 1


@pytest.mark.parametrize(
    "failure_",
    [RATE_LIMITED, CoreError("error resolving secret reference: rate limit exceeded")],
    ids=["typed", "text"],
)
async def test_a_rate_limit_pauses_the_account(
    failure_: Exception, filled: FakeAccount, timed: InMemory, clock: VirtualClock
) -> None:
    call = sdk()
    await read(timed, call, "login/password")
    filled.failures = [failure_]

    first = await failure(timed, call, "login/password")
    calls = len(filled.calls)
    second = await failure(timed, call, "login/password")
    await clock.advance(61)

    assert (first.reason, second.reason) == (ErrorReason.RATE_LIMITED, ErrorReason.RATE_LIMITED)
    assert first.retry_after > 0
    assert len(filled.calls) == calls
    assert await read(timed, call, "login/password") == [b"first"]


async def test_calls_run_in_threads_and_end_at_a_deadline(
    filled: FakeAccount, timed: InMemory, clock: VirtualClock
) -> None:
    filled.hang = threading.Event()
    try:
        waiting = asyncio.ensure_future(failure(timed, sdk(), "login/password"))
        while not filled.calls:  # noqa: ASYNC110 - the call arrives in another thread
            await asyncio.sleep(0.01)
        await clock.advance(31)
        error = await waiting
    finally:
        filled.hang.set()

    assert error.reason is ErrorReason.BACKEND_TIMEOUT
    assert threading.main_thread().name not in filled.threads


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("rate limit exceeded", ErrorReason.RATE_LIMITED),
        ("bad service account token, please rotate it: CANARY", ErrorReason.CREDENTIALS_REJECTED),
        ("invalid user input: service account token had invalid format", ErrorReason.CREDENTIALS_REJECTED),
        ("you do not have the right permissions to perform this action: CANARY", ErrorReason.PERMISSION_DENIED),
        ("request timeout", ErrorReason.BACKEND_TIMEOUT),
        ("The submitted item is not up to date. Refetch the item.", ErrorReason.PRECONDITION_FAILED),
        ("a conflict occurred on the server", ErrorReason.PRECONDITION_FAILED),
        ("item couldn't be found", ErrorReason.SECRET_NOT_FOUND),
        ("CANARY", ErrorReason.BACKEND_ERROR),
    ],
)
def test_texts_of_the_sdk_become_reasons_and_are_not_quoted(text: str, reason: ErrorReason) -> None:
    error = error_of(Exception(text), "ItemsPut")

    assert error.reason is reason
    assert "CANARY" not in error.message


async def test_the_real_core_refuses_a_token_with_the_text_that_we_know() -> None:
    """The native library checks the form of a token before it connects."""
    with pytest.raises(Exception, match="service account token") as raised:
        await Client.authenticate("ops_not-a-token", "External Secrets", "v1")

    assert error_of(raised.value, "Authenticate").reason is ErrorReason.CREDENTIALS_REJECTED


def test_connect_stores_do_not_load_the_sdk() -> None:
    program = "import sys, eso_provider_onepassword.provider; sys.exit('onepassword' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


async def test_a_missing_sdk_is_explained(provider: InMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onepassword.client", None)

    error = await failure(provider, sdk(), "login/password")

    assert error.reason is ErrorReason.CONFIG_INVALID
    assert "eso-provider-onepassword[sdk]" in error.message


# --- identity --------------------------------------------------------------------------------------------------------


async def test_token_and_integration_are_sent(filled: FakeAccount, provider: InMemory) -> None:
    await read(provider, sdk(), "login/password")
    await read(provider, sdk(integrationInfo={"name": "ours", "version": "v2"}), "login/password")

    assert filled.integrations == [("1Password SDK", "v1.0.0"), ("ours", "v2")]


async def test_two_namespaces_with_other_tokens_never_see_each_others_values(
    account: FakeAccount, provider: InMemory
) -> None:
    for name in ("a", "b"):
        account.vault("team", f"ops_{name}").put("login", {"password": f"of {name}"})
    calls = [sdk(token=f"ops_{name}", namespace=name, cache={"ttl": "1h"}) for name in ("a", "b")]

    values = [await read(provider, call, "login/password") for call in (*calls, *calls)]

    assert values == [[b"of a"], [b"of b"], [b"of a"], [b"of b"]]


async def test_validation_makes_no_call(filled: FakeAccount, provider: InMemory) -> None:
    verdict = await provider.validate(sdk(token="ops_wrong"))

    assert (verdict.state, filled.calls) == (ValidationState.READY, [])


# --- environments ----------------------------------------------------------------------------------------------------


async def test_variables_of_an_environment_are_read_by_name(filled: FakeAccount, provider: InMemory) -> None:
    filled.environments["env1"] = {"DB_URL": "postgres://", "DB_JSON": '{"user":"anna"}', "OTHER": "x"}
    call = sdk(environment="env1")

    assert await read(provider, call, "DB_URL", "OTHER") == [b"postgres://", b"x"]
    assert filled.calls == ["Authenticate", "EnvironmentsGetVariables"]
    assert await read_map(provider, call, "DB_JSON") == {"user": b"anna"}
    assert (await find(provider, call, name_regexp="^DB_")).keys() == {"DB_URL", "DB_JSON"}
    assert (await failure(provider, call, "DB_URI")).reason is ErrorReason.SECRET_NOT_FOUND


async def test_an_environment_cannot_be_written(filled: FakeAccount, provider: InMemory) -> None:
    filled.environments["env1"] = {}
    call = sdk(environment="env1")

    verdict = await provider.validate(call)
    (outcome,) = await push(provider, call, item("A", b"x"))

    assert verdict.operations is not None
    assert Operation.PUSH not in verdict.operations
    assert isinstance(outcome, ProviderError)
    assert "set vault instead" in outcome.message


@pytest.mark.usefixtures("filled")
async def test_an_unknown_environment_is_no_missing_variable(provider: InMemory) -> None:
    error = await failure(provider, sdk(environment="no-such"), "A")

    assert error.reason is ErrorReason.CONFIG_INVALID


# --- writing ---------------------------------------------------------------------------------------------------------


def stored(account: FakeAccount, title: str) -> dict[str, Any]:
    (found,) = [each for each in account.vault("team").items.values() if each["title"] == title]
    return found


async def test_fields_are_pushed_as_one_write(filled: FakeAccount, provider: InMemory) -> None:
    call = sdk()
    metadata = envelope(tags=["one"], fieldType="text")

    created = await push(provider, call, item("app", b"x"), item("app", b"anna", "user", provider_metadata=metadata))
    updated = await push(provider, call, item("app", b"y"))
    unchanged = await push(provider, call, item("app", b"y"))

    assert (created, updated, unchanged) == ([CREATED, CREATED], [UPDATED], [UNCHANGED])
    assert filled.vault("team").values("app") == {"password": "y", "user": "anna"}
    assert (stored(filled, "app")["category"], stored(filled, "app")["tags"]) == ("Server", ["one"])
    assert {each["fieldType"] for each in stored(filled, "app")["fields"]} == {"Text"}
    assert [filled.calls.count(name) for name in ("ItemsCreate", "ItemsPut")] == [1, 1]


async def test_a_whole_secret_becomes_exactly_the_fields(filled: FakeAccount, provider: InMemory) -> None:
    call = sdk()

    first = await push(provider, call, item("app", {"a": b"1", "b": b"2"}))
    second = await push(provider, call, item("app", {"b": b"2", "c": b"3"}))
    values = filled.vault("team").values("app")

    assert (first, second) == ([CREATED], [UPDATED])
    assert values == {"b": "2", "c": "3"}
    assert await delete(provider, call, "app") == [True]
    assert await delete(provider, call, "app") == [False]


async def test_a_whole_secret_pushed_over_an_item_of_a_person_does_not_delete_it(
    filled: FakeAccount, provider: InMemory
) -> None:
    call = sdk()
    await push(provider, call, item("login", {"a": b"1"}))

    assert await delete(provider, call, "login") == [False]
    assert filled.vault("team").values("login") == {"a": "1"}


async def test_a_deletion_removes_a_field_and_the_item_with_the_last_one(
    filled: FakeAccount, provider: InMemory
) -> None:
    call = sdk()

    assert await delete(provider, call, "login", "username") == [True]
    assert filled.vault("team").values("login") == {"password": "first"}
    assert await delete(provider, call, "login") == [True]
    assert isinstance(await read_map(provider, call, "login"), ProviderError)


async def test_a_conflict_is_tried_again_with_the_newest_item(filled: FakeAccount, provider: InMemory) -> None:
    filled.failures = []
    call = sdk()
    await push(provider, call, item("app", b"x"))
    original = FakeAccount.answer

    def racing(self: FakeAccount, token: str, name: str, told: dict[str, Any]) -> Any:
        if name == "ItemsPut" and filled.calls.count("ItemsPut") == 1:
            filled.vault("team").put("app", {"password": "of another", "more": "kept"})
        return original(self, token, name, told)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(FakeAccount, "answer", racing)
        outcome = await push(provider, call, item("app", b"y"))

    assert outcome == [UPDATED]
    assert filled.vault("team").values("app") == {"password": "y", "more": "kept"}


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize(
    ("pushed", "words"),
    [
        pytest.param(item("app", b"\xff"), "binary", id="no text"),
        pytest.param(item("app", {"a": b"1"}, "named"), "remove remoteRef.property", id="a whole Secret as a property"),
        pytest.param(item("app", b"x", provider_metadata=envelope(fieldType="odd")), "metadata", id="an unknown type"),
        pytest.param(item("app", b"x", provider_metadata=envelope(vault="v")), "metadata", id="another vault"),
    ],
)
async def test_what_cannot_be_pushed_is_explained(pushed: Any, words: str, provider: InMemory) -> None:
    (outcome,) = await push(provider, sdk(), pushed)

    assert isinstance(outcome, ProviderError)
    assert (outcome.reason, words in outcome.message) == (ErrorReason.INVALID_REQUEST, True)


@pytest.mark.usefixtures("filled")
async def test_existence(provider: InMemory) -> None:
    there = [RemoteRef("login"), RemoteRef("login", property="username"), RemoteRef("login/username")]
    absent = [RemoteRef("no"), RemoteRef("login", property="no"), RemoteRef("login/no"), RemoteRef("no/username")]
    items = tuple(GetItem(str(at), ref) for at, ref in enumerate([*there, *absent]))

    results = await provider.check(sdk(), items)

    assert [result.exists for result in results] == [True] * 3 + [False] * 4
    assert [result.error for result in results] == [None] * 7
