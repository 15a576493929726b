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

NOTES = """\
What the last round of work on these figures changed (resident memory; CPU seconds are means of four runs of each state,
first after and then before, on a busy machine; `eso up` is one run of each):

| what | before | after |
|---|---|---|
| provider, idle | 69.7 MB | 63.8 MB |
| provider, imports until it serves | 0.53 s | 0.38 s |
| operator, before the first object | 110.4 MB | 96.6 MB |
| operator, imports | 1.18 s | 0.97 s |
| operator, 1,000 objects | 136.9 MB | 114.4 MB |
| operator, 3,000 objects | 163.6 MB | 132.3 MB |
| operator, each further object | 13.3 kB | 9.0 kB |
| `eso status -A` | 0.68 s | 0.63 s |
| `eso why --help` | 0.35 s | 0.44 s |
| `eso up`, until ready | 2.76 s | 2.89 s |

CPU seconds of one command differed by a third between runs. No change explains the two rows that became worse; they
were not measured again on a quiet machine.

What limits the goals that are missed:

- Provider and operator: the code of libraries, which processes on one node share. Of an idle provider 31 MiB are such
  pages, and 29 MiB its own. Resident memory by import, in the operator: grpc 11.1 MB, our modules 9.6, cryptography
  8.7, aiohttp 7.6 (it reads the system's authorities when it is imported), `_ssl` 2.4, `eso_wire` 2.3, ssl 1.9,
  protobuf 1.8, kuberun 1.6, asyncio 1.4. In a provider: grpc 11.1, cryptography 9.1 (checks its certificates), `_ssl`
  2.4, `eso_sdk` 2.1, ssl 1.8, protobuf 1.7, `eso_wire` 1.6, asyncio 1.4, yaml 1.0, structlog 0.7.
- Each object, by tracemalloc: 5.0 kB are the decoded ExternalSecret and the metadata of its Secret, in 78 Python
  objects. Then follow keys and other small tuples 0.9 kB, work queue and timers 0.3, records in bounded tables 0.25,
  dependencies 0.2 and their index 0.2, followed topics 0.2 and their index 0.1, API requests in flight 0.15, the record
  itself 0.14, metric rows 0.14, cache and index tables 0.4.
- `eso status`: CPU milliseconds by import are aiohttp 90, pydantic 100 (typer needs it), kuberun 41, `eso_operator` 34,
  `eso_wire` 31, `eso_api` 22, typer 20, yaml 14, asyncio 12. TLS and the lists take about 90.
- `eso up`: the sum of the API server, the operator (0.9 s) and the command itself, which start side by side.

`MALLOC_ARENA_MAX=1` and `malloc_trim` after the start changed nothing that could be measured. The log
renderers are installed with the command `eso` only: in an image without it, the figures before were lower by what they
took.
"""


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
