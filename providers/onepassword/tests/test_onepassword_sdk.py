"""1Password with a service account. Only the native core of the vendor's SDK is replaced; its Python code is real."""

from __future__ import annotations

import asyncio
import base64
import socket
import subprocess
import sys
import threading

import pytest
from onepassword.client import Client

from eso_api.values import SecretBytes
from eso_provider_onepassword.account import checked_token, error_of
from eso_provider_onepassword.testing.core import RATE_LIMITED, CoreError, FakeAccount, token_of
from eso_provider_onepassword.testing.sessions import (
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
from eso_wire.values import Operation, RemoteRef, ValidationState
from kubebase.testing.clock import VirtualClock

# --- reading ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("stocked")
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
    ("ref", "reason", "text"),
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
    ref: RemoteRef | str, reason: ErrorReason, text: str, stocked: FakeAccount, provider: InMemory
) -> None:
    team = stocked.vault("team")
    for number in ("1", "2"):
        team.store({"title": "twice", "id": number * 26, "fields": []})

    error = await failure(provider, sdk(), ref)

    assert error.reason is reason
    assert text in error.message


@pytest.mark.usefixtures("stocked")
async def test_a_vault_that_the_account_does_not_see_is_no_missing_item(provider: InMemory) -> None:
    error = await failure(provider, sdk(vault="taem"), "login/password")

    assert error.reason is ErrorReason.CONFIG_INVALID
    assert "team" in error.message.replace("taem", "")


async def test_a_vault_may_be_named_by_its_id(stocked: FakeAccount, provider: InMemory) -> None:
    assert await read(provider, sdk(vault=stocked.vault("team").id), "login/password") == [b"first"]


@pytest.mark.usefixtures("stocked")
async def test_maps_have_fields_or_files(provider: InMemory) -> None:
    assert await read_map(provider, sdk(), "login") == {"username": b"anna", "password": b"first"}
    assert await read_map(provider, sdk(), "login#username") == {"username": b"anna"}
    assert await read_map(provider, sdk(), "certificate") == {"tls.crt": b"\x00cert"}


@pytest.mark.usefixtures("stocked")
async def test_finds(provider: InMemory) -> None:
    assert await find(provider, sdk(), name_regexp="^user") == {"username": b"anna"}
    assert await find(provider, sdk(), tags={"prod": ""}) == {"username": b"anna", "password": b"first"}
    assert await find(provider, sdk(), path="sectioned") == {"password": b"inside"}


async def test_a_find_reads_fifty_items_in_a_call(stocked: FakeAccount, provider: InMemory) -> None:
    for number in range(60):
        stocked.vault("team").put(f"many-{number}", {f"field-{number}": "x"})

    found = await find(provider, sdk(), name_regexp="^field-")

    assert len(found) == 60
    assert stocked.calls.count("ItemsGetAll") == 2


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


async def test_a_change_is_seen_at_the_next_read(stocked: FakeAccount, provider: InMemory) -> None:
    call = sdk()
    await read(provider, call, "login/password")
    stocked.vault("team").put("login", {"password": "second"})

    assert await read(provider, call, "login/password") == [b"second"]


async def test_one_time_passwords_are_asked_for_every_time(stocked: FakeAccount, provider: InMemory) -> None:
    call = sdk(cache={"ttl": "1h"})
    for _ in range(2):
        await read(provider, call, "login/password?attribute=otp")

    assert stocked.calls.count("SecretsResolveAll") == 2


async def test_the_cache_answers_without_a_call_until_its_time_is_over(
    stocked: FakeAccount, timed: InMemory, clock: VirtualClock
) -> None:
    call = sdk(cache={"ttl": "2m"})
    await read(timed, call, "login/password")
    await read_map(timed, call, "login")
    stocked.vault("team").put("login", {"password": "second"})
    stocked.calls.clear()

    within = [await read(timed, call, "login/password"), await read_map(timed, call, "login")]
    quiet = [*stocked.calls]
    await clock.advance(121)
    after = [await read(timed, call, "login/password"), await read_map(timed, call, "login")]

    assert within == [[b"first"], {"username": b"anna", "password": b"first"}]
    assert quiet == []
    assert after == [[b"second"], {"password": b"second"}]


async def test_the_cache_holds_no_more_than_its_size(stocked: FakeAccount, provider: InMemory) -> None:
    call = sdk(cache={"ttl": "1h", "maxSize": 1})
    await read(provider, call, "login/password")
    await read(provider, call, "login/username")
    stocked.calls.clear()

    await read(provider, call, "login/username")
    quiet = [*stocked.calls]
    await read(provider, call, "login/password")

    assert (quiet, stocked.calls) == ([], ["VaultsList"])


@pytest.mark.usefixtures("stocked")
async def test_a_push_is_read_in_spite_of_the_cache(provider: InMemory) -> None:
    call = sdk(cache={"ttl": "1h"})
    await read(provider, call, "login/password")

    await push(provider, call, item("login", b"pushed"))

    assert await read(provider, call, "login/password") == [b"pushed"]


async def test_a_missing_item_costs_one_call_a_minute(
    stocked: FakeAccount, timed: InMemory, clock: VirtualClock
) -> None:
    call = sdk()
    await read(timed, call, "login/password", "no-such/password")
    stocked.calls.clear()

    for _ in range(24):
        await failure(timed, call, "no-such/password")
        await clock.advance(5)

    assert stocked.calls == ["VaultsList"]
    stocked.vault("team").put("no-such", {"password": "here now"})
    await clock.advance(61)
    assert await read(timed, call, "no-such/password") == [b"here now"]


async def test_a_bad_token_costs_one_call_a_minute(stocked: FakeAccount, timed: InMemory, clock: VirtualClock) -> None:
    token = token_of("wrong")
    call = sdk(token=token)
    for _ in range(24):
        error = await failure(timed, call, "login/password")
        await clock.advance(5)

    assert error.reason is ErrorReason.CREDENTIALS_REJECTED
    assert token not in error.message
    assert stocked.calls == ["Authenticate"] * 2


async def test_a_session_that_expired_is_renewed_at_once(stocked: FakeAccount, provider: InMemory) -> None:
    call = sdk()
    await read(provider, call, "login/password")
    stocked.failures = [CoreError("session expired")]

    assert await read(provider, call, "login/username") == [b"anna"]
    assert stocked.calls.count("Authenticate") == 2


async def test_stores_with_one_token_share_one_client(stocked: FakeAccount, provider: InMemory) -> None:
    for namespace in ("a", "b", "c"):
        await read(provider, sdk(namespace=namespace), "login/password")

    assert stocked.calls.count("Authenticate") == 1


@pytest.mark.parametrize(
    "failure_",
    [RATE_LIMITED, CoreError("error resolving secret reference: rate limit exceeded")],
    ids=["typed", "text"],
)
async def test_a_rate_limit_pauses_the_account(
    failure_: Exception, stocked: FakeAccount, timed: InMemory, clock: VirtualClock
) -> None:
    call = sdk()
    await read(timed, call, "login/password")
    stocked.failures = [failure_]

    first = await failure(timed, call, "login/password")
    calls = len(stocked.calls)
    second = await failure(timed, call, "login/password")
    await clock.advance(61)

    assert (first.reason, second.reason) == (ErrorReason.RATE_LIMITED, ErrorReason.RATE_LIMITED)
    assert first.retry_after > 0
    assert len(stocked.calls) == calls
    assert await read(timed, call, "login/password") == [b"first"]


async def test_calls_run_in_threads_and_end_at_a_deadline(
    stocked: FakeAccount, timed: InMemory, clock: VirtualClock
) -> None:
    stocked.hang = threading.Event()
    try:
        waiting = asyncio.ensure_future(failure(timed, sdk(), "login/password"))
        while not stocked.calls:  # noqa: ASYNC110 - the call arrives in another thread
            await asyncio.sleep(0.01)
        await clock.advance(31)
        error = await waiting
    finally:
        stocked.hang.set()

    assert error.reason is ErrorReason.BACKEND_TIMEOUT
    assert threading.main_thread().name not in stocked.threads


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


@pytest.mark.parametrize(
    "host",
    [
        pytest.param("127.0.0.1:{port}", id="a loopback address"),
        pytest.param("https://127.0.0.1:{port}", id="a loopback address as a URL"),
        pytest.param("localhost:{port}", id="a name of this machine"),
        pytest.param("[::ffff:127.0.0.1]:{port}", id="a loopback address inside an IPv6 one"),
        pytest.param("my.1password.com:{port}", id="another port of a host of 1Password"),
        pytest.param("my.1password.com@127.0.0.1:{port}", id="a host of 1Password as the name of a user"),
        pytest.param("127.0.0.1:{port}/.1password.com", id="a host of 1Password as a path"),
        pytest.param("127.0.0.1:{port}#my.1password.com", id="a host of 1Password as a fragment"),
        pytest.param("my.1password.com.example.com", id="a host of 1Password as the beginning of another"),
        pytest.param("evil1password.com", id="a name that ends like 1Password's"),
        pytest.param("169.254.169.254", id="the metadata service"),
        pytest.param("metadata.google.internal", id="the metadata service by name"),
        pytest.param("[fe80::1]", id="a link-local address"),
    ],
)
async def test_a_token_that_names_another_host_is_refused_without_a_packet(host: str, provider: InMemory) -> None:
    """The native core is the real one: it would dial what the token names. `provider` allows loopback addresses."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        token = token_of("attacker", host.format(port=listening.getsockname()[1]))

        error = await failure(provider, sdk(token=token), "login/password")

        with pytest.raises(BlockingIOError):
            listening.accept()
    assert error.reason is ErrorReason.CONFIG_INVALID
    assert "/auth/serviceAccountSecretRef" in error.message
    assert "1password.com" in error.message
    assert "127.0.0.1" not in error.message


@pytest.mark.parametrize(
    "host", ["my.1password.com", "team.1password.eu", "team.1password.ca", "https://team.ent.1password.com/"]
)
async def test_hosts_of_1password_are_accepted(host: str) -> None:
    token = token_of("example", host)

    assert checked_token(SecretBytes(f"{token}\n".encode())) == token


async def test_the_sdk_gets_the_address_that_was_checked() -> None:
    """Of two members of one name, a parser may take either."""
    twice = b'{"signInAddress":"127.0.0.1","signInAddress":"my.1password.com"}'

    found = checked_token(SecretBytes(b"ops_" + base64.urlsafe_b64encode(twice).rstrip(b"=")))

    assert b"127.0.0.1" not in base64.urlsafe_b64decode(found.removeprefix("ops_") + "==")


def test_connect_stores_do_not_load_the_sdk() -> None:
    program = "import sys, eso_provider_onepassword.provider; sys.exit('onepassword' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


async def test_a_missing_sdk_is_explained(provider: InMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onepassword.client", None)

    error = await failure(provider, sdk(), "login/password")

    assert error.reason is ErrorReason.CONFIG_INVALID
    assert "eso-provider-onepassword[sdk]" in error.message


# --- identity --------------------------------------------------------------------------------------------------------


async def test_token_and_integration_are_sent(stocked: FakeAccount, provider: InMemory) -> None:
    await read(provider, sdk(), "login/password")
    await read(provider, sdk(integrationInfo={"name": "ours", "version": "v2"}), "login/password")

    assert stocked.integrations == [("1Password SDK", "v1.0.0"), ("ours", "v2")]


async def test_two_namespaces_with_other_tokens_never_see_each_others_values(
    account: FakeAccount, provider: InMemory
) -> None:
    for name in ("a", "b"):
        account.vault("team", token_of(name)).put("login", {"password": f"of {name}"})
    calls = [sdk(token=token_of(name), namespace=name, cache={"ttl": "1h"}) for name in ("a", "b")]

    values = [await read(provider, call, "login/password") for call in (*calls, *calls)]

    assert values == [[b"of a"], [b"of b"], [b"of a"], [b"of b"]]


async def test_calls_are_counted_and_nothing_secret_is_logged_or_counted(
    account: FakeAccount, provider: InMemory, capsys: pytest.CaptureFixture[str]
) -> None:
    token = token_of("canary")
    account.vault("team", token).put("login", {"password": "CANARY-value"})

    assert await read(provider, sdk(token=token), "login/password", "no/password") != []

    counted = provider.metrics.exposition().decode()
    for call in ("Authenticate", "VaultsList", "SecretsResolveAll"):
        labels = f'call="{call}",provider="1Password/SDK",status="success"'
        assert f"externalsecret_provider_api_calls_count{{{labels}}} 1.0" in counted
    shown = counted + "".join(capsys.readouterr())
    assert [each for each in ("CANARY", token) if each in shown] == []


async def test_validation_makes_no_call(stocked: FakeAccount, provider: InMemory) -> None:
    verdict = await provider.validate(sdk(token=token_of("wrong")))

    assert (verdict.state, stocked.calls) == (ValidationState.READY, [])


# --- environments ----------------------------------------------------------------------------------------------------


async def test_variables_of_an_environment_are_read_by_name(stocked: FakeAccount, provider: InMemory) -> None:
    stocked.environments["env1"] = {"DB_URL": "postgres://", "DB_JSON": '{"user":"anna"}', "OTHER": "x"}
    call = sdk(environment="env1")

    assert await read(provider, call, "DB_URL", "OTHER") == [b"postgres://", b"x"]
    assert stocked.calls == ["Authenticate", "EnvironmentsGetVariables"]
    assert await read_map(provider, call, "DB_JSON") == {"user": b"anna"}
    assert (await find(provider, call, name_regexp="^DB_")).keys() == {"DB_URL", "DB_JSON"}
    assert (await failure(provider, call, "DB_URI")).reason is ErrorReason.SECRET_NOT_FOUND


async def test_an_environment_cannot_be_written(stocked: FakeAccount, provider: InMemory) -> None:
    stocked.environments["env1"] = {}
    call = sdk(environment="env1")

    verdict = await provider.validate(call)
    (outcome,) = await push(provider, call, item("A", b"x"))

    assert verdict.operations is not None
    assert Operation.PUSH not in verdict.operations
    assert isinstance(outcome, ProviderError)
    assert "set vault instead" in outcome.message


@pytest.mark.usefixtures("stocked")
async def test_an_unknown_environment_is_no_missing_variable(provider: InMemory) -> None:
    error = await failure(provider, sdk(environment="no-such"), "A")

    assert error.reason is ErrorReason.CONFIG_INVALID
