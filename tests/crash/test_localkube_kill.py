"""kill -9 of the embedded API server under writes: nothing acknowledged is lost, nothing half-written is seen."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kubebase.meta import JsonObject, ObjectKey, Resource, raw
from kuberun.client import Client
from kuberun.config import load
from kuberun.errors import ApiError, Unreachable
from kuberun.transport import AiohttpTransport

ROUNDS = int(os.environ.get("ESO_CRASH_ROUNDS", "10"))
WRITERS = 4
KEYS = 20
START_SECONDS = 60.0
CONFIG_MAPS = raw(Resource("", "v1", "configmaps", "ConfigMap"))


@dataclass(slots=True)
class Ledger:
    """The values that each object may hold: the last acknowledged count, or one that was sent after it."""

    acknowledged: dict[str, int] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)
    writes: int = 0

    def next_for(self, name: str) -> int:
        self.sent[name] = max(self.sent.get(name, 0), self.acknowledged.get(name, 0)) + 1
        return self.sent[name]

    def acknowledge(self, name: str, count: int) -> None:
        self.acknowledged[name] = count
        self.writes += 1

    def check(self, found: dict[str, JsonObject]) -> None:
        for name, count in self.acknowledged.items():
            assert name in found, f"{name} was acknowledged and is gone"
            stored = int(found[name]["data"]["count"])
            assert count <= stored <= self.sent[name], f"{name}: {count} acknowledged, {stored} stored"
        for name, obj in found.items():
            assert obj["data"]["again"] == obj["data"]["count"], f"{name} is half-written"
            self.acknowledged[name] = self.sent[name] = int(obj["data"]["count"])


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[subprocess.Popen[bytes]]:
    """The server as a process of its own; whatever the test leaves of it is killed."""
    ready = folder / "ready.json"
    ready.unlink(missing_ok=True)
    command = [sys.executable, "-m", "localkube", "--data-dir", str(folder / "data")]
    command += ["--kubeconfig", str(folder / "kubeconfig"), "--ready-file", str(ready)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)  # noqa: ASYNC220 forking takes no time worth a thread
    try:
        async with asyncio.timeout(START_SECONDS):
            while not ready.exists():
                assert process.poll() is None, "the server did not start again"
                await asyncio.sleep(0.01)
        yield process
    finally:
        process.kill()
        process.wait()


async def write_until_dead(client: Client, ledger: Ledger, names: list[str], draw: random.Random) -> None:
    while True:
        name = draw.choice(names)
        count = ledger.next_for(name)
        data = {"count": str(count), "again": str(count), "padding": "x" * draw.randrange(2000)}
        obj = {"metadata": {"name": name, "namespace": "default"}, "data": data}
        try:
            await client.apply(CONFIG_MAPS, obj, field_manager="crash-test", force=True)
        except Unreachable:
            return
        ledger.acknowledge(name, count)


async def stored(client: Client) -> dict[str, JsonObject]:
    page = await client.list(CONFIG_MAPS)
    objects = [item for item in page.items if isinstance(item, dict)]
    return {obj["metadata"]["name"]: obj for obj in objects if obj["metadata"]["name"].startswith("crash-")}


async def one_round(folder: Path, ledger: Ledger, draw: random.Random) -> None:
    async with serving(folder) as process:
        client = Client(AiohttpTransport(load(folder / "kubeconfig")))
        try:
            ledger.check(await stored(client))
            async with asyncio.TaskGroup() as group:
                for writer in range(WRITERS):
                    names = [f"crash-{writer}-{number}" for number in range(KEYS)]
                    group.create_task(write_until_dead(client, ledger, names, draw))
                await asyncio.sleep(draw.uniform(0.0, 0.25))
                process.send_signal(signal.SIGKILL)
        finally:
            await client.close()


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_nothing_acknowledged_is_lost_in_many_kills(tmp_path: Path) -> None:
    draw = random.Random(20261115)  # noqa: S311 a repeatable test, not cryptography
    ledger = Ledger()

    for _ in range(ROUNDS):
        await one_round(tmp_path, ledger, draw)

    async with serving(tmp_path):
        client = Client(AiohttpTransport(load(tmp_path / "kubeconfig")))
        found = await stored(client)
        await client.close()
    ledger.check(found)
    assert ledger.writes > ROUNDS, "the kills came before any write: the test proves nothing"


async def test_a_deleted_object_stays_deleted_after_a_kill(tmp_path: Path) -> None:
    key = ObjectKey("default", "crash-gone")
    async with serving(tmp_path) as process:
        client = Client(AiohttpTransport(load(tmp_path / "kubeconfig")))
        await client.create(CONFIG_MAPS, {"metadata": {"name": key.name, "namespace": key.namespace}})
        await client.delete(CONFIG_MAPS, key)
        process.send_signal(signal.SIGKILL)
        await client.close()

    async with serving(tmp_path):
        client = Client(AiohttpTransport(load(tmp_path / "kubeconfig")))
        with pytest.raises(ApiError, match="not found"):
            await client.get(CONFIG_MAPS, key)
        await client.close()
