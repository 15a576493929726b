"""`make demo` without a terminal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 200.0
STEPS = (
    "providers on demand",
    "a template",
    "a rotated value",
    "one object, many namespaces",
    "a pushed Secret",
    "a changed Secret",
    "a dynamic credential",
    "an unused credential",
    "a broken one says why",
    "what OpenBao was asked",
)
VALUES = ("first password", "second password", "first+password", "a licence")


@pytest.mark.slow
def test_the_demo_checks_itself_and_ends_with_0() -> None:
    """R6, R37, R40 as a person sees them; no value is printed."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "demo.py")],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )

    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.rstrip().endswith("stopped cleanly")
    assert "\x1b[" not in done.stdout
    shown = [line.split(": ")[0] for line in done.stdout.splitlines()]
    assert [step for step in shown if step in STEPS] == list(STEPS)
    assert not [value for value in VALUES if value in done.stdout + done.stderr]


@pytest.mark.slow
def test_an_interrupted_demo_prints_no_traceback_and_leaves_no_process() -> None:
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "tools" / "demo.py")],
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    first = process.stdout.readline()

    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: everybody in front of it hears the key
    rest, _ = process.communicate(timeout=SECONDS)

    assert "Kubernetes API, operator and OpenBao run" in first
    assert (process.returncode, rest.splitlines()[-1]) == (130, "stopped before its end")
    assert alive(process.pid) == []


def alive(group: int) -> list[str]:
    """Return the ids of the group's processes. Processes that exited count as gone, even if they were never reaped."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, of_group, *_ = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(of_group) == group and state != "Z":
            found.append(stat.parent.name)
    return found
