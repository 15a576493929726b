"""Memory of our processes: an idle provider, and an operator with its objects.

Resident memory counts the shared pages of libraries too, as `kubectl top` does. The proportional share divides each
page by the number of processes that have it, which on this machine includes the API server and the benchmark. All
processes run with compiled bytecode, and each with its own command, as in an image.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from report import Row
from samples import external_secret
from shared_providers import running
from stage import ES, STORES, Served, Stage, operator, operator_is_ready, until

from eso_testkit.cli.providerprocess import local_certificates
from kubebase.meta import key_of
from kuberun.testing.localserver import LocalServer

FIRST, MORE = 1000, 2000
GO_OPERATOR_FIRST, GO_OPERATOR_LAST = 105.0, 160.0
"""Resident megabytes of the operator in Go with as many objects, measured once."""
TEAMS = [f"team-{number}" for number in range(50)]
MEGA = 1_000_000


def measure() -> list[Row]:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        for name in ("provider", "kube"):
            (home / name).mkdir()
        rows = _provider(home / "provider")
        server = LocalServer(home / "kube")
        try:
            return [*rows, *asyncio.run(_operator(Stage(server, home)))]
        finally:
            server.stop()


def _provider(folder: Path) -> list[Row]:
    tls = local_certificates(folder / "made", "fake").server
    with running(folder, "eso-provider-fake", (), tls):
        pass  # writes the bytecode
    with running(folder, "eso-provider-fake", (), tls) as pid:
        used = memory(pid)
        return [
            _at_most("provider, idle: resident memory", used.resident, 45, "MB"),
            Row("provider, idle: proportional share", f"{used.share:.1f} MB"),
        ]


async def _operator(stage: Stage) -> list[Row]:
    try:
        await stage.install(TEAMS)
        await stage.create([(STORES, {"metadata": {"name": "bench"}, "spec": {"provider": {"fake": {"data": _DATA}}}})])
        with _served(stage) as served, operator(stage, served) as pid:
            await operator_is_ready()
            await until(stage.store_is_ready, "the store does not become ready")
            spent, start = cpu_seconds(pid), memory(pid)
            first = await _with_objects(stage, (pid, served.pid), range(FIRST))
            last = await _with_objects(stage, (pid, served.pid), range(FIRST, FIRST + MORE))
    finally:
        await stage.client.close()
    return [
        _at_most("operator, before the first object: resident memory", start.resident, 75, "MB"),
        Row("operator, before the first object: proportional share", f"{start.share:.1f} MB"),
        Row("operator: CPU seconds until its first store is ready", f"{spent:.2f} s"),
        *_at(f"{FIRST:,} objects", first, GO_OPERATOR_FIRST),
        *_at(f"{FIRST + MORE:,} objects", last, GO_OPERATOR_LAST),
        _at_most(
            "operator: memory for each further object", (last[0].resident - first[0].resident) * 1000 / MORE, 6, "kB"
        ),
    ]


def _at(when: str, used: tuple[Memory, Memory], goal: float) -> list[Row]:
    """Compare the operator and its provider with the operator in Go, whose providers are part of it."""
    both = Memory(*map(sum, zip(*used, strict=True)))
    return [
        Row(f"operator, {when}: resident memory", f"{used[0].resident:.1f} MB"),
        _at_most(f"operator and one provider, {when}: resident memory", both.resident, goal, "MB"),
        Row(f"operator and one provider, {when}: proportional share", f"{both.share:.1f} MB"),
    ]


@contextmanager
def _served(stage: Stage) -> Iterator[Served]:
    folder = stage.home / "provider"
    made = local_certificates(folder / "made", "fake")
    with running(folder, "eso-provider-fake", (), made.server) as pid:
        address = json.loads((folder / "eso-provider-fake.json").read_text(encoding="utf-8"))["address"]
        yield Served("fake", address, pid, made.client)


_DATA = [{"key": f"remote-{number}", "value": f"value-{number}"} for number in range(20)]


async def _with_objects(stage: Stage, pids: tuple[int, int], numbers: range) -> tuple[Memory, Memory]:
    """Return the memory of the processes once these objects are Ready too."""
    objects = [external_secret(number, prefix="lean") for number in numbers]
    async with stage.readiness() as readiness:
        await stage.create([(ES, obj) for obj in objects])
        await readiness.of_all([key_of(obj) for obj in objects])
    await asyncio.sleep(5)  # the recorder has written the events
    return memory(pids[0]), memory(pids[1])


class Memory(NamedTuple):
    """Megabytes of one process."""

    resident: float
    share: float


def memory(pid: int) -> Memory:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    found = dict(re.findall(r"^(Rss|Pss):\s+(\d+) kB", text, re.MULTILINE))
    return Memory(int(found["Rss"]) * 1024 / MEGA, int(found["Pss"]) * 1024 / MEGA)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _at_most(name: str, value: float, goal: float, unit: str) -> Row:
    digits = 2 if unit == "s" else 1
    return Row(name, f"{value:.{digits}f} {unit}", f"<= {goal:g} {unit}", value <= goal)
