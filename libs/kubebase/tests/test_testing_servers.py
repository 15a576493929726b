"""The child processes behind test servers: they start, report their log on failure, and never outlive the test run."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from kubebase.testing.servers import Child, ServerFailedError, find_program, free_ports, kubeconfig_text

FOREVER = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_a_child_that_ends_fails_at_once_with_the_end_of_its_log(tmp_path: Path) -> None:
    child = Child([sys.executable, "-c", "print('no such port'); raise SystemExit(3)"], tmp_path / "log")

    with pytest.raises(ServerFailedError, match=r"(?s)ended with code 3; .*no such port"):
        child.wait_until(lambda: False, seconds=60)


def test_a_child_that_is_never_ready_fails_at_the_deadline(tmp_path: Path) -> None:
    child = Child(FOREVER, tmp_path / "log")

    with pytest.raises(ServerFailedError, match="not ready after 0 s"):
        child.wait_until(lambda: False, seconds=0.2)

    child.kill()


def test_output_goes_to_the_log(tmp_path: Path) -> None:
    child = Child(FOREVER, tmp_path / "log")

    child.wait_until(lambda: "up" in (tmp_path / "log").read_text(), seconds=60)

    child.stop()
    assert not is_running(child.pid)


def test_stopping_twice_is_harmless(tmp_path: Path) -> None:
    child = Child(FOREVER, tmp_path / "log")

    child.stop()
    child.stop()

    assert not is_running(child.pid)


def test_a_child_outlives_the_thread_that_asked_for_it(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as thread:
        child = thread.submit(Child, FOREVER, tmp_path / "log").result()

    child.wait_until(lambda: "up" in (tmp_path / "log").read_text(), seconds=60)

    assert is_running(child.pid)
    child.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ties a child's life to its parent's")
def test_a_child_dies_when_its_parent_is_killed(tmp_path: Path) -> None:
    script = f"""
import os, pathlib, signal
from kubebase.testing.servers import Child
child = Child({FOREVER!r}, pathlib.Path({str(tmp_path / "log")!r}))
child.wait_until(lambda: "up" in pathlib.Path({str(tmp_path / "log")!r}).read_text(), seconds=60)
print(child.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""

    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=90, check=False)

    assert ended.returncode == -9, ended.stderr
    pid = int(ended.stdout)
    watcher = Child(FOREVER, tmp_path / "watcher.log")
    watcher.wait_until(lambda: not is_running(pid), seconds=30)
    watcher.kill()


def test_free_ports_are_different() -> None:
    assert len(set(free_ports(5))) == 5


def test_programs_are_found_in_given_folders_first(tmp_path: Path) -> None:
    program = tmp_path / "kubectl"
    program.write_text("")
    program.chmod(0o755)

    assert find_program("kubectl", tmp_path) == program
    assert find_program("no-such-program-anywhere", tmp_path) is None


def test_a_program_that_cannot_be_run_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "python3").write_text("")

    found = find_program("python3", tmp_path)

    assert found is not None
    assert os.access(found, os.X_OK)


def test_a_kubeconfig_holds_server_authority_and_token() -> None:
    config = yaml.safe_load(kubeconfig_text("https://127.0.0.1:1", b"PEM", "t0ken"))

    assert config["clusters"][0]["cluster"] == {
        "server": "https://127.0.0.1:1",
        "certificate-authority-data": "UEVN",
    }
    assert config["users"][0]["user"] == {"token": "t0ken"}
    assert config["current-context"] == config["contexts"][0]["name"]
