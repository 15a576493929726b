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
from eso_cli.loglines import Shown
from eso_cli.up import Site, UpOptions
from kuberun.testing.kubectl import Kubectl
from localkube.server import LocalKube

Eso = Callable[..., subprocess.CompletedProcess[str]]

ESO = Path(sys.executable).parent / "eso"
SECONDS = 60.0


class Up:
    """A running `eso up`, reached through the files it writes."""

    def __init__(self, folder: Path, process: subprocess.Popen[str], ready: dict[str, str]) -> None:
        self.name, self.token, self.ca_file = "localkube", "", folder
        self.process = process
        self.data = folder / "data"
        self.url = ready["server"]
        self.kubeconfig = Path(ready["kubeconfig"])

    def restart(self) -> None:
        raise AssertionError("a test that restarts or stops it has a process of its own")

    compact = stop = restart

    def interrupted(self, number: signal.Signals) -> tuple[int, str]:
        """Send a signal; return the exit code and what it printed."""
        self.process.send_signal(number)
        output, _ = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, output


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


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the kubeconfig shall be."""
    return tmp_path_factory.mktemp("config") / "kube.yaml"


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory, wanted: Path) -> Iterator[Up]:
    with running(tmp_path_factory.mktemp("up"), "--kubeconfig", str(wanted)) as started:
        yield started


def test_the_kubeconfig_goes_where_it_should_and_is_private(up: Up, wanted: Path) -> None:
    assert up.kubeconfig == wanted
    assert stat.S_IMODE(wanted.stat().st_mode) == 0o600


def test_it_announces_itself_stops_cleanly_on_either_signal_and_keeps_its_objects(tmp_path: Path) -> None:
    with running(tmp_path) as first:
        Kubectl(first, tmp_path)("create", "secret", "generic", "kept", "--from-literal=key=value")
        ended = first.interrupted(signal.SIGTERM)
        left = (tmp_path / "ready.json").exists()
    with running(tmp_path) as again:
        found = Kubectl(again, tmp_path)("get", "secrets", "--output", "name").split()
        ended_again = again.interrupted(signal.SIGINT)
        left_again = (tmp_path / "ready.json").exists()

    assert found == ["secret/kept"]
    assert [ended, ended_again] == [(0, f"ready {up.kubeconfig}\n") for up in (first, again)]
    assert [left, left_again] == [False, False]


def banner(tmp_path: Path, shown: Shown, capsys: pytest.CaptureFixture[str], *flags: str) -> list[str]:
    options = UpOptions(
        tmp_path / "data", tmp_path / "kube config", port=0, ready_file=None, shown=shown, operator_flags=flags
    )
    site = Site(options, LocalKube(tmp_path / "data", port=0), (), asyncio.Event())
    site.announce("ready /somewhere")
    site.end()
    return capsys.readouterr().out.splitlines()


def test_a_start_ends_with_the_addresses_and_the_next_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dashboard, log, ready, following = banner(tmp_path, Shown.USUAL, capsys)

    assert dashboard.startswith("dashboard http://127.0.0.1:")
    assert log == f"log {tmp_path}/data/eso.log"
    assert ready == "ready /somewhere"
    assert following == f"next: export KUBECONFIG='{tmp_path}/kube config'; eso status -A"


def test_a_start_without_a_dashboard_names_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert banner(tmp_path, Shown.USUAL, capsys, "--dashboard-addr=0")[0].startswith("log ")


def test_a_quiet_start_prints_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert banner(tmp_path, Shown.QUIET, capsys) == []


def test_quiet_and_verbose_at_once_are_refused(eso_inside: Eso) -> None:
    refused = eso_inside("up", "-q", "-v")

    assert refused.returncode == 2
    assert "give --quiet or --verbose, not both" in refused.stderr


def test_our_kinds_are_served(up: Up, tmp_path: Path) -> None:
    served = Kubectl(up, tmp_path)("get", "crds", "--output", "name").splitlines()

    assert len(served) == len(installed_kinds())


def test_two_servers_never_share_a_data_directory(up: Up, eso: Eso) -> None:
    second = eso("up", "--no-operator", "--data-dir", str(up.data))

    assert second.returncode == 1
    assert "data" in second.stderr
    assert "Traceback" not in second.stderr
    assert up.process.poll() is None


def test_a_port_in_use_is_named_in_the_error(up: Up, tmp_path: Path, eso: Eso) -> None:
    port = up.url.rpartition(":")[2]

    second = eso("up", "--no-operator", "--data-dir", str(tmp_path / "other"), "--port", port)

    assert second.returncode == 1
    assert port in second.stderr
    assert "Traceback" not in second.stderr


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        pytest.param(["-f", "missing"], "missing: no such file or folder", id="manifests that are not there"),
        pytest.param(["-f", "folder"], "folder: holds no manifest", id="a folder without manifests"),
        pytest.param(["stray"], "unrecognized arguments: stray", id="a word too many"),
        pytest.param(["--", "--concurrent=many"], "argument --concurrent: 'many'", id="a flag the operator refuses"),
        pytest.param(["--", "--live-addr=0"], "--live-addr: give an address", id="no probes to ask"),
        pytest.param(["--no-operator", "--", "--concurrent=2"], "no operator runs", id="a flag for no operator"),
        pytest.param(
            ["--data-dir", "shared"],
            "data directory shared is not safe: other users can write to shared",
            id="a data directory that others can write to",
        ),
        pytest.param(["--data-dir", "file"], "file: File exists; choose", id="a file instead of a folder"),
        pytest.param(["--ready-file", "folder"], "folder: Is a directory; choose", id="a folder instead of a file"),
    ],
)
def test_options_that_cannot_work_are_rejected_before_anything_runs(
    eso_inside: Eso, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], problem: str
) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    monkeypatch.chdir(tmp_path)

    refused = eso_inside("up", *arguments)

    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith(f"eso up: {problem}")
    assert len(refused.stderr.splitlines()) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder", "shared"]


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
    options = UpOptions(tmp_path, tmp_path / "kubeconfig", 0, None, operator_flags=(f"--live-addr={address}",))

    site = Site(options, LocalKube(tmp_path), (), asyncio.Event())
    site.end()

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


NO_TMPFS = subprocess.run(["unshare", "-rm", "true"], check=False, capture_output=True).returncode != 0


@pytest.mark.skipif(NO_TMPFS, reason="a small file system needs unshare -rm")
@pytest.mark.parametrize("size", ["12k", "60k", "200k", "1m"])
def test_a_full_disk_is_named_in_one_sentence_whenever_the_start_meets_it(tmp_path: Path, size: str) -> None:
    mounting = f"mount -t tmpfs -o size={size} none {tmp_path}"
    starting = f"{mounting} && exec {ESO} up --no-operator --data-dir {tmp_path}/data"

    refused = subprocess.run(
        ["unshare", "-rm", "sh", "-c", starting],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )

    reported = [line for line in refused.stderr.splitlines() if not line.startswith("{")]
    assert refused.returncode == 1
    assert len(reported) == 1
    assert reported[0].startswith("eso up: ")
    assert "is full; free some space" in reported[0] or "No space left on device" in reported[0]
    assert refused.stdout == ""


@pytest.mark.parametrize(
    ("failure", "reported"),
    [
        pytest.param("OSError(28, 'No space left on device')", "data: No space left on device; choose", id="the disk"),
        pytest.param("KeyError('hunter2')", "stopped by a defect of its own: KeyError at ", id="a defect"),
    ],
)
def test_a_failed_task_beside_the_server_ends_it_with_one_sentence(tmp_path: Path, failure: str, reported: str) -> None:
    program = (
        "import asyncio, pathlib, sys\n"
        "from eso_cli import folder, up\n"
        "async def follow(*_):\n"
        f"    raise {failure}\n"
        "folder.Folder.follow = follow\n"
        "data = pathlib.Path('data')\n"
        "sys.exit(asyncio.run(up.serve(up.UpOptions(data, data / 'kubeconfig', 0, None, operator=False))))\n"
    )

    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=SECONDS
    )

    assert ended.returncode == 1
    assert ended.stderr.startswith(f"eso up: {reported}")
    assert len(ended.stderr.splitlines()) == 1
    assert "hunter2" not in ended.stderr


def test_it_stops_at_once_when_it_is_interrupted_while_it_starts(tmp_path: Path) -> None:
    """The operator listens on a random port that `eso up` does not know, so the start lasts until its timeout."""
    elsewhere = ["--", "--live-addr=127.0.0.1:0"]
    process = subprocess.Popen(
        [str(ESO), "up", "-v", *elsewhere], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
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
