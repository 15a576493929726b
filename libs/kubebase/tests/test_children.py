"""Commands bound to the life of their parent. The tests of their users show that they end with it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

from kubebase.children import bound_to_parent

TOLD = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ.get('WORD')]))"


def run(command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)


def test_a_bound_command_is_run_with_its_arguments_and_environment() -> None:
    done = run(bound_to_parent([sys.executable, "-c", TOLD, "-c", "two words", ""], signal.SIGTERM), WORD="said")

    assert json.loads(done.stdout) == [["-c", "two words", ""], "said"]
    assert done.returncode == 0


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the command is not bound, and not changed")
def test_a_command_that_cannot_be_started_says_so_without_a_traceback() -> None:
    done = run(bound_to_parent(["/no/such/command"], signal.SIGTERM))

    assert (done.returncode, done.stderr) == (1, "cannot be started: No such file or directory\n")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ties a child's life to its parent's")
def test_a_command_whose_parent_is_gone_before_it_could_be_bound_is_not_run() -> None:
    """A process in between makes it look to the child as if its parent had ended and it had been adopted."""
    between = "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode)"

    done = run([sys.executable, "-c", between, *bound_to_parent([sys.executable, "-c", TOLD], signal.SIGTERM)])

    assert (done.returncode, done.stdout) == (1, "")
    assert "its parent ended" in done.stderr
