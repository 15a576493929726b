"""tools/run_tests.py: what fails gets one more try, alone; what fails twice fails the run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "run_tests.py"

FINE = "def test_fine():\n    pass\n"
FAILS_ALWAYS = "def test_wrong():\n    assert False\n"
FAILS_ONCE = """\
from pathlib import Path

def test_disturbed():
    mark = Path(__file__).with_name("tried")
    if not mark.exists():
        mark.touch()
        raise AssertionError
"""
RUNS = """\
from pathlib import Path

def pytest_sessionstart():
    with Path(__file__).with_name("runs").open("a") as runs:
        runs.write("run\\n")
"""


@pytest.mark.parametrize(
    ("tests", "code", "runs", "passed_alone"),
    [
        pytest.param(FAILS_ONCE, 0, 2, True, id="what passes alone is let through and named"),
        pytest.param(FAILS_ALWAYS, 1, 2, False, id="what fails twice fails the run"),
        pytest.param(FAILS_ONCE + FAILS_ALWAYS, 1, 2, False, id="one of two that fails twice fails the run"),
        pytest.param(FINE, 0, 1, False, id="what does not fail runs once"),
        pytest.param("def test_broken(:\n", 2, 1, False, id="what cannot be read is not tried again"),
    ],
)
def test_a_failure_gets_one_more_try(tests: str, code: int, runs: int, passed_alone: bool, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(RUNS)
    (tmp_path / "test_fine.py").write_text(FINE)
    (tmp_path / "test_sample.py").write_text(tests)

    done = subprocess.run(
        [sys.executable, str(SCRIPT), "-p", "xdist.plugin", "--rootdir", str(tmp_path), str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # none but that one is needed, and they take seconds
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert (done.returncode, (tmp_path / "runs").read_text().count("run")) == (code, runs)
    assert ("passed alone, and failed beside others" in done.stdout.splitlines()[-1]) is passed_alone
