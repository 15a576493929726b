"""`eso up`: starts, says so, keeps its objects, stops cleanly, and explains why it cannot start."""

from __future__ import annotations

import asyncio
import json
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from eso_api.kinds import installed_kinds
from eso_cli.up import Options, Site
from kuberun.testing.kubectl import Kubectl
from localkube.server import LocalKube

ESO = Path(sys.executable).parent / "eso"
SECONDS = 60.0


class Up:
    """A running `eso up`, reached through the files it writes."""

    def __init__(self, folder: Path, process: subprocess.Popen[str], ready: dict[str, str]) -> None:
        self.name, self.token, self.ca_file = "localkube", "", folder
        self.process = process
        self.url = ready["server"]
        self.kubeconfig = Path(ready["kubeconfig"])

    def restart(self) -> None:
        raise AssertionError("a test that restarts it starts another one")

    compact = restart

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(SECONDS)


@contextmanager
def running(folder: Path, *arguments: str) -> Iterator[Up]:
    ready = folder / "ready.json"
    command = [str(ESO), "up", "--no-operator", "--data-dir", str(folder / "data"), "--ready-file", str(ready)]
    process = subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + SECONDS
        while not ready.exists():
            assert process.poll() is None, process.stderr.read() if process.stderr else ""
            assert time.monotonic() < deadline, "not ready in time"
            time.sleep(0.02)
        yield Up(folder, process, json.loads(ready.read_text()))
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_announces_itself_and_stops_cleanly_on_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    with running(tmp_path) as up:
        up.process.send_signal(number)
        output, _ = up.process.communicate(timeout=SECONDS)

    assert up.process.returncode == 0
    assert output.splitlines() == [f"ready {up.kubeconfig}"]
    assert not (tmp_path / "ready.json").exists()


def test_the_kubeconfig_goes_where_it_should_and_is_private(tmp_path: Path) -> None:
    wanted = tmp_path / "config" / "kube.yaml"
    wanted.parent.mkdir()

    with running(tmp_path, "--kubeconfig", str(wanted)) as up:
        mode = stat.S_IMODE(wanted.stat().st_mode)

    assert up.kubeconfig == wanted
    assert mode == 0o600


def test_our_kinds_are_served_and_objects_outlive_the_process(tmp_path: Path) -> None:
    with running(tmp_path) as up:
        kubectl = Kubectl(up, tmp_path)
        served = kubectl("get", "crds", "--output", "name").splitlines()
        kubectl("create", "secret", "generic", "kept", "--from-literal=key=value")
        up.stop()
    with running(tmp_path) as again:
        found = Kubectl(again, tmp_path)("get", "secrets", "--output", "name").split()

    assert len(served) == len(installed_kinds())
    assert found == ["secret/kept"]


def test_two_servers_never_share_a_data_directory(
    tmp_path: Path, eso: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    with running(tmp_path) as up:
        second = eso("up", "--no-operator", "--data-dir", str(tmp_path / "data"))
        still = up.process.poll()

    assert second.returncode == 1
    assert "data" in second.stderr
    assert "Traceback" not in second.stderr
    assert still is None


def test_a_port_in_use_is_named_in_the_error(
    tmp_path: Path, eso: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    with running(tmp_path) as up:
        port = up.url.rpartition(":")[2]
        second = eso("up", "--no-operator", "--data-dir", str(tmp_path / "other"), "--port", port)

    assert second.returncode == 1
    assert port in second.stderr
    assert "Traceback" not in second.stderr


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        pytest.param(["-f", "missing"], "missing: no such file or folder", id="manifests that are not there"),
        pytest.param(["stray"], "unrecognized arguments: stray", id="a word too many"),
        pytest.param(["--", "--concurrent=many"], "argument --concurrent: 'many'", id="a flag the operator refuses"),
        pytest.param(["--", "--live-addr=0"], "--live-addr: give an address", id="no probes to ask"),
        pytest.param(["--no-operator", "--", "--concurrent=2"], "no operator runs", id="a flag for no operator"),
        pytest.param(["--data-dir", "file"], "file: File exists; choose", id="a file instead of a folder"),
        pytest.param(["--ready-file", "folder"], "folder: Is a directory; choose", id="a folder instead of a file"),
    ],
)
def test_options_that_cannot_work_are_rejected_before_anything_runs(
    tmp_path: Path, arguments: list[str], problem: str
) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()

    refused = subprocess.run(
        [str(ESO), "up", *arguments], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=SECONDS
    )

    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith(f"eso up: {problem}")
    assert len(refused.stderr.splitlines()) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


@pytest.mark.parametrize(
    ("address", "asked"),
    [
        pytest.param("127.0.0.1:8765", "http://127.0.0.1:8765/readyz", id="another port"),
        pytest.param(":8765", "http://127.0.0.1:8765/readyz", id="every address"),
        pytest.param("[::1]:8765", "http://[::1]:8765/readyz", id="IPv6"),
    ],
)
def test_the_operator_is_asked_where_its_own_flags_put_it(tmp_path: Path, address: str, asked: str) -> None:
    """Asked elsewhere it never answers, and the start waits for as long as it may."""
    options = Options(tmp_path, tmp_path / "kubeconfig", 0, None, operator_flags=(f"--live-addr={address}",))

    site = Site(options, LocalKube(tmp_path), (), asyncio.Event())
    site.release_ports()

    assert site.readiness == asked


def test_a_ready_file_that_cannot_be_written_is_named_in_one_sentence(tmp_path: Path) -> None:
    name = "x" * 250  # can be looked for, but what is written beside it first has a longer one

    refused = subprocess.run(
        [str(ESO), "up", "--no-operator", "--ready-file", name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )

    assert refused.returncode == 1
    assert refused.stderr.startswith("eso up: ")
    assert "File name too long; choose other places with" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        pytest.param("OSError(28, 'No space left on device')", "data: No space left on device; choose", id="the disk"),
        pytest.param("KeyError('hunter2')", "stopped by a defect of its own: KeyError at ", id="a defect"),
    ],
)
def test_a_failed_task_beside_the_server_ends_it_with_one_sentence(tmp_path: Path, failure: str, said: str) -> None:
    program = (
        "import asyncio, pathlib, sys\n"
        "from eso_cli import folder, up\n"
        "async def follow(*_):\n"
        f"    raise {failure}\n"
        "folder.Folder.follow = follow\n"
        "data = pathlib.Path('data')\n"
        "sys.exit(asyncio.run(up.serve(up.Options(data, data / 'kubeconfig', 0, None, operator=False))))\n"
    )

    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=SECONDS
    )

    assert ended.returncode == 1
    assert ended.stderr.startswith(f"eso up: {said}")
    assert len(ended.stderr.splitlines()) == 1
    assert "hunter2" not in ended.stderr


def test_it_stops_at_once_when_it_is_interrupted_while_it_starts(tmp_path: Path) -> None:
    """The operator listens on a random port that `eso up` does not know, so the start lasts until its timeout."""
    elsewhere = ["--", "--live-addr=127.0.0.1:0"]
    process = subprocess.Popen(
        [str(ESO), "up", *elsewhere], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        heard = [next(process.stderr)]  # the first words of the operator: everything is being started
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
        process.communicate()

    assert (process.returncode, output) == (0, "")
    assert "Traceback" not in "".join([*heard, errors])
