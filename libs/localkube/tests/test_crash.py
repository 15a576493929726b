"""kill -9 at random moments under writes: every acknowledged write is there, nothing half-written is seen.

A nursery process forks a child for each round (so that imports are paid once). The child acknowledges each write on
the shared standard output after its commit; the test kills it after a random number of acknowledgements and a random
delay, opens the directory itself and compares.
"""

from __future__ import annotations

import asyncio
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kubebase.clock import SystemClock
from localkube.storage import HistoryLimits, Key, ObjectStorage

ROUNDS = 100

CHILD = """
import asyncio, os, random, sys
from pathlib import Path
from kubebase.clock import SystemClock
from localkube.storage import HistoryLimits, Key, ObjectStorage

def say(text):
    os.write(1, text.encode() + b"\\n")

async def writer(store, resource, number, seed):
    chance = random.Random(seed)
    step = 0
    while True:
        name = f"w{number}-{chance.randrange(12)}"
        key = Key(resource, "default", name)
        step += 1
        if store.latest(key) is not None and chance.random() < 0.2:
            batch = store.remove(key)
            await batch.committed()
            say(f"deleted {resource} {name} {store.revision}")
        else:
            value = f"{seed}.{step}"
            filler = "x" * chance.choice((10, 500, 9000))
            obj = {"metadata": {"name": name, "uid": f"u-{name}"}, "value": value, "copy": value, "filler": filler}
            await store.put(key, obj).committed()
            say(f"put {resource} {name} {obj['metadata']['resourceVersion']} {value}")
        if chance.random() < 0.01:
            await store.compact(store.revision - 250)

async def main(directory, seed):
    store = ObjectStorage.open(Path(directory), clock=SystemClock(), limits=HistoryLimits(events=300))
    resources = ("configmaps", "secrets")
    async with asyncio.TaskGroup() as group:
        for number in range(8):
            group.create_task(writer(store, resources[number % 2], number, seed * 100 + number))

for line in sys.stdin:
    directory, seed = line.split()
    child = os.fork()
    if not child:
        asyncio.run(main(directory, int(seed)))
    say(f"started {child}")
    os.waitpid(child, 0)
    say("gone")
"""


@dataclass
class Acknowledged:
    """The last known value of each object, from the child or from the check before; None if it was deleted."""

    values: dict[Key, tuple[int, str | None]] = field(default_factory=dict)

    def note(self, line: str) -> None:
        match line.split():
            case ["put", resource, name, revision, value]:
                self._set(Key(resource, "default", name), int(revision), value)
            case ["deleted", resource, name, revision]:
                self._set(Key(resource, "default", name), int(revision), None)
            case _:
                pass

    def _set(self, key: Key, revision: int, value: str | None) -> None:
        if revision >= self.values.get(key, (0, None))[0]:
            self.values[key] = (revision, value)


class Nursery:
    """Forks children that write until they are killed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        command = [sys.executable, "-c", CHILD]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self._rest = b""

    def run_until_killed(self, seed: int, chance: random.Random) -> list[str]:
        """The lines that one child managed to say."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{self._directory} {seed}\n".encode())
        lines: list[str] = []
        while not any(line.startswith("started") for line in lines):
            lines += self._read()
        child = next(int(line.split()[1]) for line in lines if line.startswith("started"))
        wanted = chance.randrange(2, 150)
        while len(lines) < wanted:
            lines += self._read()
        time.sleep(chance.random() * 0.004)
        os.kill(child, signal.SIGKILL)
        while "gone" not in lines:
            lines += self._read()
        return lines

    def _read(self) -> list[str]:
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], 30)[0]:
            raise AssertionError("the child makes no progress")
        piece = os.read(self.process.stdout.fileno(), 65536)
        if not piece:
            raise AssertionError("the nursery has died")
        *lines, self._rest = (self._rest + piece).split(b"\n")
        return [line.decode() for line in lines]


@pytest.fixture
def nursery(tmp_path: Path) -> Iterator[Nursery]:
    nursery = Nursery(tmp_path / "data")
    with nursery.process as process:
        yield nursery
        process.kill()


async def check(directory: Path, acknowledged: Acknowledged) -> None:
    store = ObjectStorage.open(directory, clock=SystemClock(), limits=HistoryLimits(events=300))
    try:
        for key, (revision, value) in acknowledged.values.items():
            assert store.revision >= revision
            changes = store.changes_since(key.resource, revision)
            if not any(change.key == key for change in changes) and store.compacted <= revision:
                # Nothing newer was stored, so exactly the acknowledged state must be there.
                record = store.get(key)
                assert (record.decode()["value"] if record else None) == value, key
        acknowledged.values = {
            Key(resource, "default", path.rpartition("/")[2]): (record.revision, record.decode()["value"])
            for resource in ("configmaps", "secrets")
            for path, record in store.scan(resource)
        }
        for resource in ("configmaps", "secrets"):
            for path, record in store.scan(resource):
                obj = record.decode()
                assert obj["value"] == obj["copy"], path
                assert obj["metadata"]["resourceVersion"] == str(record.revision), path
            check_history(store, resource)
    finally:
        await store.close()


def check_history(store: ObjectStorage, resource: str) -> None:
    """Replaying the history from the compacted revision leads exactly to the present objects."""
    state = dict(store.scan_at(resource, "", store.compacted))
    for change in store.changes_since(resource, store.compacted):
        assert state.get(change.key.path) == change.previous
        if change.type == "DELETED":
            del state[change.key.path]
        else:
            state[change.key.path] = change.record
    assert state == dict(store.scan(resource))


def test_no_acknowledged_write_is_lost_over_a_hundred_kills(tmp_path: Path, nursery: Nursery) -> None:
    chance = random.Random(20300101)  # noqa: S311 - the same moments in every run
    acknowledged = Acknowledged()
    said = 0

    for round_number in range(ROUNDS):
        lines = nursery.run_until_killed(round_number, chance)
        said += len(lines)
        for line in lines:
            acknowledged.note(line)
        asyncio.run(check(tmp_path / "data", acknowledged))

    assert said > ROUNDS * 10
