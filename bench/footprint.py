"""Memory and CPU seconds of our processes: an idle provider, an operator with its objects, and commands as they start.

CPU seconds are user and system time, because other work on the machine lengthens wall times. Resident memory counts the
shared pages of libraries too, as `kubectl top` does. All processes run with compiled bytecode, as in an image.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from externalsecrets import external_secret
from report import Row
from shared_providers import running
from stage import ES, STORES, Stage, operator, operator_is_ready, provider, until

from eso_cli.testing.providerprocess import local_certificates
from eso_cli.testing.upprocess import UpProcess
from kubebase.meta import key_of
from kuberun.testing.localserver import LocalServer

FIRST, MORE = 1000, 2000
COMMANDS = Path(sys.executable).parent
TEAMS = [f"team-{number}" for number in range(50)]
MEGA = 1_000_000


def measure() -> list[Row]:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        for name in ("provider", "kube", "up-cold", "up"):
            (home / name).mkdir()
        rows = _provider(home / "provider")
        server = LocalServer(home / "kube")
        try:
            rows += asyncio.run(_operator(Stage(server, home)))
        finally:
            server.stop()
        _up(home / "up-cold")
        return [*rows, _at_most("eso up, all processes: CPU seconds until ready", _up(home / "up"), 2.0, "s")]


def _provider(folder: Path) -> list[Row]:
    tls = local_certificates(folder / "made", "fake").server
    with running(folder, "eso-provider-fake", (), tls):
        pass  # writes the bytecode
    with running(folder, "eso-provider-fake", (), tls) as pid:
        return [
            _at_most("provider, idle: resident memory", resident(pid) / MEGA, 45, "MB"),
            _at_most("provider: CPU seconds until it serves", cpu_seconds(pid), 0.7, "s"),
        ]


async def _operator(stage: Stage) -> list[Row]:
    try:
        await stage.install(TEAMS)
        await stage.create([(STORES, {"metadata": {"name": "bench"}, "spec": {"provider": {"fake": {"data": _DATA}}}})])
        commands = await asyncio.to_thread(_commands, stage.kube.kubeconfig)
        with provider(stage) as served, operator(stage, served) as pid:
            await operator_is_ready()
            await until(stage.store_is_ready, "the store does not become ready")
            spent, start = cpu_seconds(pid), resident(pid)
            first = await _with_objects(stage, pid, 0, FIRST)
            last = await _with_objects(stage, pid, FIRST, FIRST + MORE)
    finally:
        await stage.client.close()
    return [
        _at_most("operator, before the first object: resident memory", start / MEGA, 75, "MB"),
        Row("operator: CPU seconds until its first store is ready", f"{spent:.2f} s"),
        Row(f"operator, {FIRST:,} objects: resident memory", f"{first / MEGA:.1f} MB"),
        Row(f"operator, {FIRST + MORE:,} objects: resident memory", f"{last / MEGA:.1f} MB"),
        _at_most("operator: memory for each further object", (last - first) / MORE / 1000, 6, "kB"),
        *commands,
    ]


_DATA = [{"key": f"remote-{number}", "value": f"value-{number}"} for number in range(20)]


async def _with_objects(stage: Stage, pid: int, first: int, end: int) -> int:
    """Return the resident memory once these objects are Ready too."""
    objects = [external_secret(number, prefix="lean") for number in range(first, end)]
    async with stage.readiness() as readiness:
        await stage.create([(ES, obj) for obj in objects])
        await readiness.of_all([key_of(obj) for obj in objects])
    await asyncio.sleep(5)  # the recorder has written the events
    return resident(pid)


def _commands(kubeconfig: Path) -> list[Row]:
    rows = []
    for arguments in (("why", "--help"), ("status", "-A", "--kubeconfig", str(kubeconfig))):
        _spent(arguments)  # writes the bytecode
        name = " ".join(arguments[:2])
        rows.append(_at_most(f"eso {name}: CPU seconds", min(_spent(arguments) for _ in range(3)), 0.4, "s"))
    return rows


def _spent(arguments: tuple[str, ...]) -> float:
    with subprocess.Popen(
        [COMMANDS / "eso", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        _, _, used = os.wait4(process.pid, 0)
        process.returncode = 0  # the exit code tells the state of the objects
    return used.ru_utime + used.ru_stime


def _up(folder: Path) -> float:
    up = UpProcess(folder)
    try:
        up.wait_until_ready()
        return sum(cpu_seconds(pid) for pid in up.members())
    finally:
        up.stop()


def resident(pid: int) -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(encoding="ascii"))
    return int(found[1]) * 1024 if found else 0


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _at_most(name: str, value: float, goal: float, unit: str) -> Row:
    digits = 2 if unit == "s" else 1
    return Row(name, f"{value:.{digits}f} {unit}", f"<= {goal:g} {unit}", value <= goal)
