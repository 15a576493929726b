"""`make demo`, where nobody sits at a terminal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 200.0
STEPS = (
    "a template",
    "a generator",
    "one object, many namespaces",
    "generate -> store -> push -> read back",
    "a new password",
    "a broken one says why",
    "a changed value arrives",
)
VALUES = ("first-value", "second-value", "a shared certificate")


@pytest.mark.slow
@pytest.mark.timeout(240)
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
