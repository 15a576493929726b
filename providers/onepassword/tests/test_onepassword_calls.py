"""What reads cost at a Connect server, and that its sporadic refusals are hidden."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from eso_provider_onepassword.connect import ConnectItem
from eso_provider_onepassword.items import Field, Item, Overview
from eso_provider_onepassword.testing.connect import ConnectServer
from eso_provider_onepassword.testing.sessions import connect, failure, find, item, pumped, push, read, read_map
from eso_provider_onepassword.writing import Draft
from eso_sdk.testing import InMemory
from eso_sdk.testing.standin import StandinResponse
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Context, GetItem, PushOutcome, RemoteRef, Shape, ValidationState
from kubebase.testing.clock import VirtualClock

ITEMS, FIELDS = 10, 5
REFS = [f"item-{number}#field-{at}" for number in range(ITEMS) for at in range(FIELDS)]


@pytest.fixture
def filled(server: ConnectServer) -> ConnectServer:
    for number in range(ITEMS):
        fill(server, number, "first")
    return server


def fill(server: ConnectServer, number: int, value: str) -> None:
    server.vault("team").put(f"item-{number}", {f"field-{at}": f"{value} {number}.{at}" for at in range(FIELDS)})


async def calls_of(server: ConnectServer, provider: InMemory, call: Context, *refs: str) -> tuple[int, int]:
    """Read; return the number of values and of calls."""
    before = len(server.calls)
    found = await read(provider, call, *refs)
    return sum(isinstance(each, bytes) for each in found), len(server.calls) - before


async def test_fifty_keys_of_ten_items_cost_twelve_calls_and_one_if_nothing_changed(
    filled: ConnectServer, provider: InMemory
) -> None:
    call = connect(filled)

    first = await calls_of(filled, provider, call, *REFS)
    again = await calls_of(filled, provider, call, *REFS)

    assert (first, again) == ((50, 12), (50, 1))


async def test_only_the_items_that_changed_are_read_again(filled: ConnectServer, provider: InMemory) -> None:
    call = connect(filled)
    await read(provider, call, *REFS)
    fill(filled, 3, "second")

    cost = await calls_of(filled, provider, call, *REFS)
    values = await read(provider, call, "item-3#field-0", "item-4#field-0")

    assert cost == (50, 3)
    assert values == [b"second 3.0", b"first 4.0"]


async def test_values_and_maps_of_one_call_share_the_check(filled: ConnectServer, provider: InMemory) -> None:
    call = connect(filled)
    await read(provider, call, *REFS)
    before = len(filled.calls)
    shapes = [GetItem("value", RemoteRef("item-1", property="field-1"))]
    shapes += [GetItem(f"map {at}", RemoteRef(f"item-{at}"), Shape.MAP) for at in range(ITEMS)]

    results = await provider.get(call, tuple(shapes))

    assert not [result for result in results if isinstance(result.outcome, ProviderError)]
    assert len(filled.calls) - before == 1


async def test_a_find_of_unchanged_items_costs_one_call(filled: ConnectServer, provider: InMemory) -> None:
    call = connect(filled)
    await find(provider, call, name_regexp="^field-0$")
    before = len(filled.calls)

    assert await find(provider, call, name_regexp="^field-0$") == {"field-0": b"first 0.0"}
    assert len(filled.calls) - before == 1


async def test_the_content_of_an_unchanged_file_is_kept(server: ConnectServer, provider: InMemory) -> None:
    server.vault("team").attach("certificate", {"tls.crt": b"cert"})
    call = connect(server)
    await read(provider, call, "certificate")

    assert await calls_of(server, provider, call, "certificate") == (1, 1)


async def test_many_calls_at_once_get_the_same_values(filled: ConnectServer, provider: InMemory) -> None:
    call = connect(filled)
    found = await asyncio.gather(*(read(provider, call, *REFS) for _ in range(5)))
    first = len(filled.requests("GET /v1/vaults/*/items"))
    filled.calls.clear()

    again = await asyncio.gather(*(read(provider, call, *REFS) for _ in range(5)))

    assert all(each == found[0] for each in (*found, *again))
    assert first == 1
    assert [each.line for each in filled.calls] == ["GET /v1/vaults"] * 5


async def test_a_listing_is_trusted_for_an_hour_only(
    filled: ConnectServer, timed: InMemory, clock: VirtualClock
) -> None:
    """A server that forgets to change the version of a vault is found out."""
    call = connect(filled)
    await read(timed, call, *REFS)
    fill(filled, 3, "second")
    filled.vault("team").version -= 1
    for _ in range(7):
        await clock.advance(599)  # a session that is not used for ten minutes is closed
        await read(timed, call, "item-3#field-0")

    assert await read(timed, call, "item-3#field-0") == [b"second 3.0"]


async def test_a_missing_item_costs_one_call_a_minute(
    filled: ConnectServer, timed: InMemory, clock: VirtualClock
) -> None:
    call = connect(filled)
    await read(timed, call, *REFS)
    before = len(filled.calls)

    for _ in range(60):
        error = await failure(timed, call, "no-such-item")
        await clock.advance(5)

    assert error.reason is ErrorReason.SECRET_NOT_FOUND
    assert len(filled.calls) - before == 5


async def test_a_missing_item_appears_within_a_minute(
    filled: ConnectServer, timed: InMemory, clock: VirtualClock
) -> None:
    call = connect(filled)
    await failure(timed, call, "late")
    filled.vault("team").put("late", {"password": "here"})
    await clock.advance(61)

    assert await read(timed, call, "late") == [b"here"]


async def test_an_item_that_is_listed_but_cannot_be_read_is_not_missing(
    filled: ConnectServer, provider: InMemory
) -> None:
    """Deletion policies act on "not found": only a listing may prove it."""
    call = connect(filled)
    filled.script("GET /v1/vaults/*/items/*", StandinResponse(404))

    error = await failure(provider, call, "item-0#field-0")

    assert error.reason is ErrorReason.BACKEND_UNAVAILABLE
    assert await read(provider, call, "item-0#field-0") == [b"first 0.0"]


async def test_a_server_that_lists_no_items_of_a_full_vault_does_not_make_them_missing(
    filled: ConnectServer, provider: InMemory
) -> None:
    filled.script("GET /v1/vaults/*/items", StandinResponse(200, []))

    error = await failure(provider, connect(filled), "item-0#field-0")

    assert error.reason is ErrorReason.BACKEND_UNAVAILABLE


async def test_an_empty_vault_has_no_items(server: ConnectServer, provider: InMemory) -> None:
    server.vault("team")

    assert (await failure(provider, connect(server), "item-0")).reason is ErrorReason.SECRET_NOT_FOUND


async def test_a_missing_vault_costs_one_call_a_minute(
    filled: ConnectServer, timed: InMemory, clock: VirtualClock
) -> None:
    call = connect(filled, "no-such-vault")
    for _ in range(24):
        await failure(timed, call, "item-0")
        await clock.advance(5)

    assert len(filled.calls) == 2


async def test_a_bad_token_costs_one_call_a_minute(filled: ConnectServer, timed: InMemory, clock: VirtualClock) -> None:
    call = connect(filled, token="wrong")
    for _ in range(24):
        error = await failure(timed, call, "item-0")
        await clock.advance(5)

    assert error.reason is ErrorReason.CREDENTIALS_REJECTED
    assert "wrong" not in error.message
    assert len(filled.calls) == 2


async def test_two_sporadic_refusals_of_three_are_not_seen(
    filled: ConnectServer, timed: InMemory, clock: VirtualClock
) -> None:
    filled.flaky = True
    call = connect(filled)

    validated = [(await pumped(clock, timed.validate(call))).state for _ in range(5)]
    found = [await pumped(clock, read(timed, call, "item-1#field-1", "item-2#field-2")) for _ in range(5)]
    pushed = [await pumped(clock, push(timed, call, item("item-0", b"new"))) for _ in range(2)]
    mapped = await pumped(clock, read_map(timed, call, "item-5"))

    assert validated == [ValidationState.READY] * 5
    assert found == [[b"first 1.1", b"first 2.2"]] * 5
    assert pushed == [[PushOutcome.CREATED], [PushOutcome.UNCHANGED]]
    assert isinstance(mapped, dict)


async def test_a_refusal_that_stays_is_reported(filled: ConnectServer, timed: InMemory, clock: VirtualClock) -> None:
    refusal = StandinResponse(403, {"status": 403, "message": "Authorization: CANARY"})
    filled.script("GET /v1/vaults", *[refusal] * 4)

    error = await pumped(clock, failure(timed, connect(filled), "item-0"))

    assert error.reason is ErrorReason.PERMISSION_DENIED
    assert "CANARY" not in error.message
    assert len(filled.calls) == 4


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        pytest.param(StandinResponse(429, {"m": "CANARY"}, {"Retry-After": "7"}), ErrorReason.RATE_LIMITED, id="429"),
        pytest.param(StandinResponse(500, {"m": "CANARY"}), ErrorReason.BACKEND_UNAVAILABLE, id="500"),
        pytest.param(StandinResponse(200, b"CANARY"), ErrorReason.BACKEND_ERROR, id="no JSON"),
        pytest.param(StandinResponse(200, {"id": "CANARY"}), ErrorReason.BACKEND_ERROR, id="other JSON"),
        pytest.param(StandinResponse(403, {"m": "CANARY"}), ErrorReason.PERMISSION_DENIED, id="403 without the word"),
    ],
)
async def test_failures_of_the_server_have_their_reason_and_quote_nothing(
    response: StandinResponse, reason: ErrorReason, filled: ConnectServer, provider: InMemory
) -> None:
    filled.script("GET /v1/vaults", response)

    error = await failure(provider, connect(filled), "item-0")

    assert error.reason is reason
    assert "CANARY" not in error.message
    assert len(filled.calls) == 1


async def test_calls_are_counted_and_nothing_secret_is_logged_or_counted(
    filled: ConnectServer, provider: InMemory, capsys: pytest.CaptureFixture[str]
) -> None:
    filled.vault("team").put("secret", {"password": "CANARY-value"})
    filled.tokens["CANARY-token"] = None

    assert await read(provider, connect(filled, token="CANARY-token"), "secret", "none") != []

    counted = provider.metrics.exposition().decode()
    for call in ("ListVaults", "ListItems", "GetItem"):
        labels = f'call="{call}",provider="1Password/Connect",status="success"'
        assert f"externalsecret_provider_api_calls_count{{{labels}}} 1.0" in counted
    assert "CANARY" not in counted + "".join(capsys.readouterr())


def test_values_are_not_printed() -> None:
    described = {"id": "i", "fields": [{"label": "password", "value": "CANARY"}]}
    overview = Overview("i", "v", "title", "1")
    values = (
        msgspec.convert(described, ConnectItem),
        Item(overview, "LOGIN", (Field("password", "CANARY"),), origin=described),
        Draft("title", values={"password": "CANARY"}),
    )

    assert "CANARY" not in repr(values)


async def test_two_namespaces_with_other_tokens_never_see_each_others_values(
    server: ConnectServer, provider: InMemory
) -> None:
    """Both have a vault of the same name in their configuration, and the same keys."""
    server.tokens = {"of-a": {"a"}, "of-b": {"b"}}
    for name in ("a", "b"):
        server.vault(name).put("login", {"password": f"of {name}"})
    first, second = (connect(server, n, token=f"of-{n}", namespace=n) for n in ("a", "b"))
    crossed = connect(server, "a", token="of-b", namespace="b")

    values = [await read(provider, call, "login") for call in (first, second, first)]
    denied = await failure(provider, crossed, "login")

    assert values == [[b"of a"], [b"of b"], [b"of a"]]
    assert denied.reason is ErrorReason.CONFIG_INVALID
    assert {call.headers["authorization"] for call in server.calls} == {"Bearer of-a", "Bearer of-b"}
