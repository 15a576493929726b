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
