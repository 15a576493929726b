"""Stores without a companion server: Bitwarden's SDK in threads, with its Python part as it is installed."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

from eso_provider_bitwarden import native as connection
from eso_provider_bitwarden.provider import PROVIDER
from eso_provider_bitwarden.testing.core import Core, Direct
from eso_provider_bitwarden.testing.server import OTHER, CompanionServer, store
from eso_sdk.addresses import AddressPolicy
from eso_sdk.testing import InMemory
from eso_sdk.testing.server import delete, found, push, read
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Context, FindQuery, PushOutcome, ValidationState
from kubebase.clock import SystemClock
from kubebase.testing.clock import VirtualClock

REAL = "0.4bdb2ab9-5d0f-4d2a-9d0c-0b1a8b1fa8d9.C2IgxjjLF7qSshsbwe8JGcbM075YXw:X8vbvA0bduihIDe/qrzIQQ=="
"""A token of the right form, which belongs to no account."""
NO_SUCH_ID = "00000000-0000-4000-8000-000000000000"


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> type[Core]:
    """Replace the binary of the SDK, and nothing else of it."""
    Core.reset()
    monkeypatch.setattr(import_module("bitwarden_py"), "BitwardenClient", Core)
    monkeypatch.setattr(connection, "Process", Direct)
    return Core


@pytest.fixture
def address() -> Iterator[str]:
    """An address of this machine that accepts connections and sends nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        yield f"https://127.0.0.1:{silent.getsockname()[1]}"


def native(address: str, **more: Any) -> Context:
    """Return a store that needs no companion server; its addresses lead to this machine."""
    return store(None, apiURL=address, identityURL=address, **more)


def reason(outcome: object) -> ErrorReason:
    assert isinstance(outcome, ProviderError)
    return outcome.reason


async def test_names_and_ids_are_read_with_one_login(provider: InMemory, address: str, core: type[Core]) -> None:
    made = core.server.put("a", "1")
    core.server.put("b", "2")
    core.server.put("b", "other", project=OTHER)
    call = native(address)

    first = await read(provider, call, "a", "b", made)
    second = await read(provider, native(address, namespace="another"), made)

    assert (first, second) == ([b"1", b"2", b"1"], [b"1"])
    assert core.commands == ["login", "list", "getByIds", "get"]
    assert core.settings[0]["apiUrl"] == core.settings[0]["identityUrl"] == address


@pytest.mark.usefixtures("core")
async def test_the_last_store_of_a_machine_account_ends_its_process(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    closed: list[Direct] = []

    class Closing(Direct):
        async def close(self) -> None:
            closed.append(self)

    monkeypatch.setattr(connection, "Process", Closing)
    async with InMemory(PROVIDER, addresses=AddressPolicy.parse(["loopback"])) as provider:
        await found(provider, native(address), FindQuery(name_regexp="."))
        assert closed == []

    assert len(closed) == 1


async def test_a_missing_secret_is_not_found(provider: InMemory, address: str, core: type[Core]) -> None:
    core.server.put("there", "1")

    outcomes = await read(provider, native(address), "gone", NO_SUCH_ID, "there")

    assert [reason(each) for each in outcomes[:2]] == [ErrorReason.SECRET_NOT_FOUND] * 2
    assert outcomes[2] == b"1"


async def test_secrets_are_written_found_and_deleted(provider: InMemory, address: str, core: type[Core]) -> None:
    call = native(address)

    outcomes = [await push(provider, call, ("db", "", value)) for value in ("one", "one", "two")]
    values = await found(provider, call, FindQuery(name_regexp="^db$"))
    existed = await delete(provider, call, ("db", ""))

    assert outcomes == [[PushOutcome.CREATED], [PushOutcome.UNCHANGED], [PushOutcome.UPDATED]]
    assert list(values.values()) == [b"two"]
    assert existed == [True]
    assert core.server.entries == {}


async def test_a_wrong_token_costs_one_login_a_minute_and_quotes_nothing(
    provider: InMemory, address: str, core: type[Core], clock: VirtualClock
) -> None:
    call = native(address, token="0.wrong.CANARY:x")

    verdicts = [await provider.validate(call) for _ in range(3)]
    before = list(core.commands)
    await clock.advance(61)
    await provider.validate(call)

    assert {reason(verdict.error) for verdict in verdicts} == {ErrorReason.CREDENTIALS_REJECTED}
    assert "CANARY" not in str(verdicts[0].error)
    assert (before, core.commands) == (["login"], ["login", "login"])


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"apiURL": "http://127.0.0.1:9"}, "/apiURL"),
        ({"identityURL": "http://127.0.0.1:9"}, "/identityURL"),
    ],
)
async def test_an_address_without_tls_is_refused(
    provider: InMemory, core: type[Core], changes: dict[str, Any], field: str
) -> None:
    verdict = await provider.validate(store(None, **changes))

    assert reason(verdict.error) is ErrorReason.CONFIG_INVALID
    assert str(verdict.error).startswith(field)
    assert core.commands == []


async def test_an_address_that_stores_may_not_reach_is_refused_before_the_login(
    provider: InMemory, core: type[Core]
) -> None:
    metadata = "https://169.254.169.254"

    verdict = await provider.validate(store(None, apiURL=metadata, identityURL=metadata))

    assert reason(verdict.error) is ErrorReason.CONFIG_INVALID
    assert "which stores may not reach" in str(verdict.error)
    assert core.commands == []


async def test_without_the_sdk_a_companion_server_is_needed(
    provider: InMemory, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "bitwarden_sdk", None)
    monkeypatch.setattr(connection, "Process", Direct)

    verdict = await provider.validate(native(address))

    assert reason(verdict.error) is ErrorReason.CONFIG_INVALID
    assert "eso-provider-bitwarden[native]" in str(verdict.error)


async def test_a_store_is_valid_if_it_can_list(provider: InMemory, address: str, core: type[Core]) -> None:
    assert (await provider.validate(native(address))).state is ValidationState.READY
    assert core.commands == ["login", "list"]


# --- the real binary, in its process ---------------------------------------------------------------------------------


async def test_the_real_binary_rejects_what_is_not_a_token(provider: InMemory, address: str) -> None:
    verdict = await provider.validate(native(address, token="CANARY"))

    assert reason(verdict.error) is ErrorReason.CREDENTIALS_REJECTED
    assert "CANARY" not in str(verdict.error)


async def test_a_server_that_stays_silent_is_given_up_and_blocks_nothing(
    monkeypatch: pytest.MonkeyPatch, server: CompanionServer, address: str
) -> None:
    """The binary blocks its interpreter for as long as the server is silent."""
    monkeypatch.setattr(connection, "SECONDS", 1.0)
    async with InMemory(PROVIDER, addresses=AddressPolicy.parse(["loopback"])) as provider:
        waiting = asyncio.ensure_future(provider.validate(native(address, token=REAL)))
        made = server.put("a", "1")

        meanwhile = await read(provider, store(server), made)

        with pytest.raises(ProviderError) as failed:
            await waiting

    assert meanwhile == [b"1"]
    assert failed.value.reason is ErrorReason.BACKEND_TIMEOUT


async def test_a_worker_that_ends_is_reported_and_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    channel = connection.Process(SystemClock())
    monkeypatch.setattr(connection, "COMMAND", (sys.executable, "-c", "raise SystemExit"))
    with pytest.raises(ProviderError, match="starts it again"):
        await channel.send({"login": {}})
    monkeypatch.undo()

    response = await channel.send({"call": "unknown", "arguments": []})
    await channel.close()

    assert "error" in response
