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

NOTES = """\
What the last two rounds of work on these figures changed (resident memory):

| what | at first | then | now |
|---|---|---|---|
| provider, idle | 63.8 MB | 53.8 MB | 52.4 MB |
| operator, before the first object | 96.6 MB | 94.8 MB | 81.3 MB |
| operator, 1,000 objects | 114.4 MB | 105.6 MB | 91.8 MB |
| operator, 3,000 objects | 132.3 MB | 116.8 MB | 102.6 MB |
| operator, restarted with 3,000 objects | 129.2 MB | 122.8 MB | |
| operator, each further object | 9.0 kB | 5.6 kB | 5.4 kB |

- Caches keep most objects packed (`kuberun/packing.py`). An ExternalSecret and the metadata of its Secret took 5.0 kB
  in 78 Python objects; packed they take 0.6 kB. By a benchmark of the caches alone, this adds 34 microseconds of CPU to
  the first sync of an object and 25 to a later one, of about 3 ms. Whole operators with and without it were compared on
  a busy machine only: three runs of 2,000 objects took 6.7 to 8.0 CPU seconds without, and 8.1 to 8.9 with it.
- A provider checks its certificates with Python's `ssl` instead of cryptography, which took 10 MB. So does the operator
  with its own. It checks and issues those of providers in a process (`certificates/notary.py`): 12 MB less. That
  process takes 37 MB and 0.2 CPU seconds, is not counted above, and ends 10 seconds after its last answer. It starts
  when certificates change or are due, after a start of the operator, and every 6 hours. Metrics over TLS without a
  certificate in files, and templates that use keys or certificates, still load cryptography.
- The processes no longer replace parts of structlog, ssl and asyncio to save memory. The figures above are older. Since
  then an import of aiohttp takes 2 MB more, one of structlog 6 MB more where rich is installed, and 88 TLS connections
  take 24 MB instead of 3.
- libyaml is loaded with the first text, re2 with the first pattern: 1 MB each. A kubeconfig is YAML, so an operator in
  a cluster takes 1 MB less than the one measured here.
- Reference cycles kept ended reconciles, with the values that they had read, until the garbage collector ran. They are
  gone: without them, 1,000 objects take 3.6 MB less.

What limits the goals that are missed:

- Operator: of its 81 MB, 30 are code of libraries, which processes of one node share. Memory by import: `eso_operator`
  9.4 MB, grpc 8.8, aiohttp 5.7, `_ssl` 2.4, `eso_wire` 2.3, ssl 1.9, kuberun 1.9, protobuf 1.7, asyncio 1.4, `eso_api`
  1.1, yaml 0.9. The interpreter itself takes 9.7. Generated methods of dataclasses are 3.7 MB of it. After the imports
  it takes 14 MB more: 7 for 88 watches, their connections and the controllers, 7 for code of libraries that the first
  connections and the first channel need.
- Provider: 26 of 52 MB are code of libraries. The interpreter takes 9.8 MB, grpc 10.7, `_ssl` 2.4, `eso_sdk` 2.1, ssl
  1.8, protobuf 1.8, `eso_wire` 1.7, asyncio 1.4, structlog 0.7, typing_extensions 0.6 (grpc needs it),
  prometheus_client 0.6 and, because of it, `http.server` with html, email and urllib 1.5.
- Operator and provider together: both load the interpreter, grpc, ssl and protobuf, and resident memory counts their
  pages twice. The proportional share, 98 MB at 1,000 objects, divides them also by the API server and the benchmark.
- Each object: of 5.4 kB, 0.6 are the packed objects. Then follow keys and other small tuples 0.8 kB, dependencies 0.2
  and their index 0.25, followed topics 0.2 and their index 0.1, work queue and timers 0.4, records and bounded tables
  0.4, hashes and versions of the target 0.3, metric rows 0.2.
- Commands and `eso up`: see `start`.

What did not pay: `MALLOC_ARENA_MAX=1`, `malloc_trim` and a garbage collection after the start (nothing measurable),
`PYTHONNODEBUGRANGES=1` (0.3 MB, and 0.5 with bytecode that was compiled with it), and code without docstrings (`-OO`:
2.5 MB of the operator, 1.5 MB of a provider), which would also drop assertions. prometheus_client with stand-ins for
`http.server` and `urllib.request` would save 2 MB of a provider, but authors of providers who use its server or push
client would meet errors that no other program shows.
"""


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
