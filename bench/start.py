"""How fast commands and processes start: seconds on the clock, and CPU seconds of all processes involved.

Seconds on the clock mean something only if nothing else runs on the machine; CPU seconds, user and system time, grow
with other work too, but less. Each figure is the lowest of several runs. All processes run with compiled bytecode, as
in an image.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from footprint import cpu_seconds
from report import Row
from shared_providers import running

from eso_testkit.cli.providerprocess import local_certificates
from eso_testkit.cli.upprocess import UpProcess
from kubebase.clock import SystemClock

COMMANDS = Path(sys.executable).parent
DEMO = Path(__file__).resolve().parent.parent / "examples" / "demo"
OBJECT = ("why", "externalsecret/database-url", "-n", "demo")
RUNS = 3
CLOCK = SystemClock()

NOTES = """\
What the last round of work on these figures changed. "Before" is the last run of the former code on a quiet machine:

| what | before | after |
|---|---|---|
| `eso status -A`: CPU seconds | 0.63 s | 0.36 s |
| `eso why --help`: CPU seconds | 0.38 s | 0.19 s |
| `eso up`, all processes: CPU seconds until ready | 2.89 s | 1.78 s |
| provider: CPU seconds until it serves | 0.36 s | 0.24 s |
| operator: CPU seconds until its first store is ready | 0.97 s | 0.80 s |

- Every command: typer imports pydantic to convert any value (320 M instructions); plain values need no library.
- `eso status`, `eso why`, `eso up`: aiohttp read the system's authorities twice when it was imported (470 M).
- `eso status`: two words of conditions came with the controllers and informers of the operator (190 M).
- `eso why`: the kinds of all providers were imported to find a kind of the core.
- `eso up`: CRDs are generated together (0.37 s of CPU, then 0.15 s) and committed together. The settings of the
  operator loaded gRPC, protobuf and the metrics library. The operator starts before the API server has the CRDs, and
  its first request waits for the answer. Providers start without the command line of `eso`.

Later, `eso why externalsecret/NAME` went from 2,041 M to 1,528 M instructions and `eso status -A` from 1,588 M to
1,416 M (counted by cachegrind). On a quiet machine `eso why` took 0.46 s before and takes 0.37 s now.

- `eso why`: the refresh rules, and one word of the outcomes of ExternalSecrets, came with targets, templates, informers
  and the reporter (315 M). The names of objects with templates came with the template engine (27 M).
- `eso status`, `eso why`: all messages of the wire came with the names of kinds (about 100 M), and structlog came with
  every module (73 M).

What remains: Python, asyncio and typer take 386 M instructions until the command is known, and aiohttp 345 M. `eso why`
resolves stores as the operator does, so `eso_operator.stores` costs it 110 M more than `eso status`.
"""


class Spent(NamedTuple):
    """The cost of one start, in seconds."""

    wall: float
    cpu: float


def measure() -> list[Row]:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        up = _best(lambda run: _up(home / f"up-{run}"))
        return [
            *_rows("eso up, until ready", up, 2.0),
            *_commands(home / "demo"),
            *_rows("provider, until it serves", _provider(home), 0.7),
        ]


def _up(folder: Path) -> Spent:
    folder.mkdir()
    began = CLOCK.monotonic()
    up = UpProcess(folder)
    try:
        up.wait_until_ready()
        return Spent(CLOCK.monotonic() - began, sum(cpu_seconds(pid) for pid in up.members()))
    finally:
        up.stop()


def _commands(folder: Path) -> list[Row]:
    folder.mkdir()
    up = UpProcess(folder, "--file", str(DEMO))
    try:
        up.wait_until_ready()
        at = ("--kubeconfig", str(up.kubeconfig))
        up.wait_for(lambda: _exit_code((*OBJECT, *at)) == 0, "the ExternalSecret is not synced")
        rows = []
        for arguments in (("why", "--help"), ("status", "-A", *at), (*OBJECT, *at)):
            rows += _rows(f"eso {' '.join(arguments[:2])}", _best(partial(_spent, arguments)), 0.4)
        return rows
    finally:
        up.stop()


def _provider(home: Path) -> Spent:
    tls = local_certificates(home / "made", "fake").server

    def start(run: int) -> Spent:
        folder = home / f"provider-{run}"
        folder.mkdir()
        began = CLOCK.monotonic()
        with running(folder, "eso-provider-fake", (), tls) as pid:
            return Spent(CLOCK.monotonic() - began, cpu_seconds(pid))

    return _best(start)


def _best(start: Callable[[int], Spent]) -> Spent:
    """Return the lowest figures; the first run only writes the bytecode."""
    start(0)
    runs = [start(run) for run in range(1, RUNS + 1)]
    return Spent(min(run.wall for run in runs), min(run.cpu for run in runs))


def _spent(arguments: tuple[str, ...], _run: int) -> Spent:
    began = CLOCK.monotonic()
    with subprocess.Popen(
        [COMMANDS / "eso", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        _, _, used = os.wait4(process.pid, 0)
        process.returncode = 0  # the exit code tells the state of the objects
    return Spent(CLOCK.monotonic() - began, used.ru_utime + used.ru_stime)


def _exit_code(arguments: tuple[str, ...]) -> int:
    command = [str(COMMANDS / "eso"), *arguments]
    return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode


def _rows(name: str, spent: Spent, goal: float) -> list[Row]:
    figures = ((f"{name}: seconds", spent.wall), (f"{name}: CPU seconds", spent.cpu))
    return [Row(label, f"{value:.2f} s", f"<= {goal:g} s", value <= goal) for label, value in figures]
