"""The fake provider behind real sockets: in this process, and as the process that `eso-provider-fake` starts."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from grpc import aio

from eso_api.values import SecretBytes
from eso_provider_fake.faults import Oversize, Rule
from eso_provider_fake.provider import fake_provider
from eso_provider_fake.store import World
from eso_sdk.testing import Client, ProviderServer
from eso_sdk.testing.server import CLIENT_ID, SERVER_ID, SERVER_NAME, Authority, ChannelTransport, write_material
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.options import CLIENT_OPTIONS
from eso_wire.status import TransportError
from eso_wire.tls import channel_credentials
from eso_wire.values import GetItem, RemoteRef

EXIT_WAIT = 20.0


async def test_values_are_read_through_mutual_tls(fake: Any) -> None:
    async with ProviderServer(fake.provider) as server:
        result = await server.client.get_one(fake.context(), "plain")

    assert result.outcome == SecretBytes(b"hello")


async def test_an_answer_larger_than_clients_take_reaches_them_on_request(fake: Any) -> None:
    world = World()
    world.faults.add(Rule(fault=Oversize(size=20_000_000)))
    provider = fake_provider(world, max_message_bytes=64 * 1024 * 1024)

    async with ProviderServer(provider) as server:
        with pytest.raises(ProviderError) as caught:
            await server.client.get_one(fake.context(), "plain")

    assert "larger" in caught.value.message.lower()


@asynccontextmanager
async def _process(folder: Path, script: str) -> AsyncIterator[tuple[Client, asyncio.subprocess.Process, Path]]:
    """The command with a fault file, and a client for it."""
    authority = Authority.make()
    write_material(folder / "tls", authority.leaf(SERVER_ID))
    faults, ready = folder / "faults.yaml", folder / "ready.json"
    faults.write_text(script)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", "from eso_provider_fake.main import main; main()"),
        *("--listen", "127.0.0.1:0", "--metrics", "", "--tls-dir", str(folder / "tls")),
        *("--allowed-client", CLIENT_ID, "--ready-file", str(ready), "--faults", str(faults)),
        stderr=asyncio.subprocess.DEVNULL,
        env=os.environ,
    )
    try:
        async with asyncio.timeout(EXIT_WAIT):
            while not ready.exists() and process.returncode is None:  # noqa: ASYNC110 - another process writes the file
                await asyncio.sleep(0.02)
        address = json.loads(ready.read_text())["address"]
        options = [*CLIENT_OPTIONS, ("grpc.ssl_target_name_override", SERVER_NAME)]
        credentials = channel_credentials(authority.leaf(CLIENT_ID))
        async with aio.secure_channel(address, credentials, options=options) as channel:
            yield Client(ChannelTransport(channel)), process, faults
    finally:
        if process.returncode is None:
            process.terminate()
        await asyncio.wait_for(process.wait(), EXIT_WAIT)


async def test_the_command_serves_with_faults_from_a_file_until_one_ends_it(fake: Any, tmp_path: Path) -> None:
    script = "protocols: ['2.1', '2.2']\nrules: [{method: get, first: 1, fault: {type: error, reason: BACKEND_ERROR}}]"

    async with _process(tmp_path, script) as (client, process, faults):
        failed = await client.get_one(fake.context(), "plain")
        passed = await client.get_one(fake.context(), "plain")
        faults.write_text("rules: [{method: get, level: call, fault: {type: exit, code: 7}}]")
        with pytest.raises(TransportError):
            await client.get_one(fake.context(), "plain")
        code = await asyncio.wait_for(process.wait(), EXIT_WAIT)

    assert isinstance(failed.outcome, ProviderError)
    assert passed.outcome == SecretBytes(b"hello")
    assert code == 7


async def test_the_command_can_speak_an_unknown_protocol_version(tmp_path: Path) -> None:
    async with _process(tmp_path, "protocols: ['9.0']") as (client, process, _):
        handshake = await client.handshake()
        process.terminate()
        code = await asyncio.wait_for(process.wait(), EXIT_WAIT)

    assert handshake.selected is None
    assert code == 0


def _children(pid: int) -> str:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")


async def test_expensive_properties_of_one_namespace_do_not_delay_the_reads_of_another(
    fake: Any, tmp_path: Path
) -> None:
    value = '{"password":"' + "CANARY" * 130_000 + '"}'
    attacker = fake.context({"data": [{"key": "app", "value": value}]}, namespace="crowd")
    neighbour = fake.context(namespace="neighbour")
    path = "|".join(["@pretty|@ugly"] * 15)
    items = [GetItem(str(number), RemoteRef("app", property=f"{path}|x{number}")) for number in range(200)]

    async with _process(tmp_path, "rules: []") as (client, process, _):
        await client.get_one(neighbour, "plain")
        attack = asyncio.create_task(client.get(attacker, items))
        while not _children(process.pid) and not attack.done():  # noqa: ASYNC110 - another process starts one
            await asyncio.sleep(0.02)
        found = await client.get_one(neighbour, "doc", property="deep.x.1")
        was_over = attack.done()
        results = await attack

    assert found.outcome == SecretBytes(b"2")
    assert not was_over, "the neighbour was answered after the attack"
    errors = [one.outcome for one in results if isinstance(one.outcome, ProviderError)]
    assert len(errors) == 200
    assert {error.reason for error in errors} == {ErrorReason.PROPERTY_NOT_FOUND, ErrorReason.INVALID_REQUEST}
    assert not any("CANARY" in error.message for error in errors)
