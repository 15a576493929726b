"""A provider as its own process: flags, ready file, logs, certificates, and signals."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from grpc import aio

from eso_api.values import SecretBytes
from eso_sdk.testing import Client, call_context
from eso_sdk.testing.server import CLIENT_ID, SERVER_ID, SERVER_NAME, Authority, ChannelTransport, write_material
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.options import CLIENT_OPTIONS
from eso_wire.status import TransportError
from eso_wire.tls import channel_credentials
from eso_wire.values import Context

SECONDS = 30.0
PROGRAM = '''
import asyncio, sys
from pathlib import Path
from eso_api.shapes import Fragment
from eso_sdk import Provider, Store, store_kind
from eso_sdk.main import run

class Config(Fragment, frozen=True, kw_only=True):
    """Where to wait."""
    folder: str

@store_kind(kind="Waiter", plural="waiters")
class Waiter(Store[Config]):
    async def get(self, ref):
        folder = Path(self.config.folder)
        (folder / "entered").touch()
        while not (folder / "leave").exists():
            await asyncio.sleep(0.01)
        return ref.key.encode()

PROVIDER = Provider(name="waiter", version="1", kinds=(Waiter,))
if __name__ == "__main__":
    sys.exit(run(PROVIDER))
'''


class Process:
    """One provider process and its folders."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tls = folder / "tls"
        self.ready_file = folder / "ready.json"
        self.authority = Authority.make()
        self.program = folder / "waiter.py"
        self.program.write_text(PROGRAM, encoding="utf-8")

    @asynccontextmanager
    async def run(
        self, *arguments: str, env: dict[str, str] | None = None
    ) -> AsyncIterator[asyncio.subprocess.Process]:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(self.program),
            *arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **(env or {})},
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()

    @property
    def flags(self) -> list[str]:
        return [
            *("--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--tls-dir", str(self.tls)),
            *("--allowed-client", CLIENT_ID, "--ready-file", str(self.ready_file), "--drain", "60"),
        ]

    async def ready(self) -> dict[str, Any]:
        await happens(self.ready_file.exists)
        content: dict[str, Any] = json.loads(self.ready_file.read_text(encoding="utf-8"))
        return content

    @asynccontextmanager
    async def client(self, address: str, deadline: float = SECONDS) -> AsyncIterator[Client]:
        credentials = channel_credentials(self.authority.leaf(CLIENT_ID))
        options = [*CLIENT_OPTIONS, ("grpc.ssl_target_name_override", SERVER_NAME)]
        async with aio.secure_channel(address, credentials, options=options) as channel:
            yield Client(ChannelTransport(channel), deadline=deadline)

    @property
    def context(self) -> Context:
        namespace: dict[str, Any] = {"__name__": "waiter"}
        exec(compile(PROGRAM, "waiter.py", "exec"), namespace)  # noqa: S102 - the program of this test
        return call_context(namespace["Waiter"], {"folder": str(self.folder)})


async def happens(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not holds():  # noqa: ASYNC110 - the condition changes in another process
            await asyncio.sleep(0.02)


async def refused(client: Client) -> None:
    """Call until calls are refused: the signal has to arrive first.

    A connection made while the listener closes gets no greeting, so a missing answer counts as a refusal too.
    """
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                await client.handshake()
            except ProviderError as exc:
                assert isinstance(exc, TransportError) or exc.reason is ErrorReason.BACKEND_TIMEOUT  # noqa: PT017 - either
                return


@pytest.fixture
def process(tmp_path: Path) -> Process:
    return Process(tmp_path)


async def test_on_sigterm_the_running_call_finishes_and_new_ones_are_refused(process: Process) -> None:
    write_material(process.tls, process.authority.leaf(SERVER_ID))
    async with process.run(*process.flags) as running:
        ready = await process.ready()
        async with process.client(ready["address"]) as client, process.client(ready["address"], 2.0) as other:
            await other.handshake()
            call = asyncio.ensure_future(client.get_one(process.context, "answer"))
            await happens((process.folder / "entered").exists)

            running.send_signal(signal.SIGTERM)
            await refused(other)
            (process.folder / "leave").touch()
            answer = await call
        _, logged = await asyncio.wait_for(running.communicate(), SECONDS)

    assert (ready["name"], ready["pid"]) == ("waiter", running.pid)
    assert answer.outcome == SecretBytes(b"answer")
    assert running.returncode == 0
    lines = [json.loads(line) for line in logged.decode().splitlines()]
    assert [line["msg"] for line in lines if line["msg"] != "call handled"] == ["serving", "draining", "stopped"]
    get = next(line for line in lines if line.get("method") == "GetSecrets")
    names = {"level", "ts", "msg", "provider", "method", "request_id", "kind", "store", "code", "reason", "duration"}
    assert set(get) == names
    assert (get["code"], get["kind"]) == ("OK", "Waiter")


async def test_flags_may_come_from_the_environment_and_certificates_later(process: Process) -> None:
    variables = {
        "ESO_PROVIDER_LISTEN": "127.0.0.1:0",
        "ESO_PROVIDER_TLS_DIR": str(process.tls),
        "ESO_PROVIDER_ALLOWED_CLIENT": f"spiffe://x/ns/a/sa/b,{CLIENT_ID}",
        "ESO_PROVIDER_READY_FILE": str(process.ready_file),
    }
    async with process.run(env=variables) as running:
        write_material(process.tls, process.authority.leaf(SERVER_ID))
        ready = await process.ready()
        async with process.client(ready["address"]) as client:
            answer = await client.handshake()
        running.send_signal(signal.SIGINT)
        await asyncio.wait_for(running.wait(), SECONDS)

    assert answer.provider_name == "waiter"
    assert running.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        pytest.param([], 2, "--tls-dir is needed", id="nothing given"),
        pytest.param(["--tls-dir", "x"], 2, "--allowed-client is needed", id="no client allowed"),
        pytest.param(["--drain", "soon"], 2, '"soon" is no number of seconds', id="a time that is none"),
        pytest.param(
            ["--tls-dir", "absent", "--allowed-client", "x", "--tls-wait", "0"],
            1,
            "no usable certificates in absent",
            id="certificates that do not come",
        ),
        pytest.param(
            ["--tls-dir", "{tls}", "--allowed-client", "x", "--listen", "nowhere"], 1, "write host:port", id="address"
        ),
        pytest.param(
            [
                "--tls-dir",
                "{tls}",
                "--allowed-client",
                "x",
                "--listen",
                "127.0.0.1:0",
                "--ready-file",
                "{tls}/ca.crt/x",
            ],
            1,
            "cannot write the ready file {tls}/ca.crt/x: Not a directory",
            id="a ready file in no folder",
        ),
        pytest.param(
            ["--tls-dir", "{tls}", "--allowed-client", "x", "--listen", "127.0.0.1:0", "--ready-file", "{tls}"],
            1,
            "cannot write the ready file {tls}: Is a directory",
            id="a folder for a ready file",
        ),
    ],
)
async def test_a_process_that_cannot_start_says_why(
    process: Process, arguments: list[str], code: int, said: str
) -> None:
    write_material(process.tls, process.authority.leaf(SERVER_ID))

    async with process.run(*(argument.format(tls=process.tls) for argument in arguments)) as running:
        printed, logged = await asyncio.wait_for(running.communicate(), SECONDS)

    assert running.returncode == code
    assert printed == b""
    assert said.format(tls=process.tls) in logged.decode().replace('\\"', '"')
    assert b"Traceback" not in logged


async def test_a_process_that_still_waits_for_certificates_ends_on_sigterm(process: Process) -> None:
    async with process.run(*process.flags) as running:
        assert running.stderr is not None
        logged = await asyncio.wait_for(running.stderr.readline(), SECONDS)
        running.send_signal(signal.SIGTERM)
        await asyncio.wait_for(running.wait(), SECONDS)

    assert json.loads(logged)["msg"] == "waiting for certificates"
    assert running.returncode == 0


async def test_the_manifest_is_printed(process: Process) -> None:
    async with process.run("--manifest") as running:
        printed, _ = await asyncio.wait_for(running.communicate(), SECONDS)

    assert running.returncode == 0
    assert json.loads(printed)["kinds"][0]["kind"] == "Waiter"
