"""`eso up` as its users run it: a process with children, reached through the files it writes."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from kubebase.clock import SystemClock

ESO = Path(sys.executable).parent / "eso"
SECONDS = 120.0
_POLL_SECONDS = 0.05


class UpProcess:
    """A running `eso up`. It is an `ApiServer`, so kubectl and raw HTTP can be pointed at it."""

    name = "localkube"

    def __init__(self, folder: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.ready_file = folder / "ready.json"
        self.kubeconfig = self.data / "kubeconfig"
        self.printed = folder / "up.log"
        command = [str(ESO), "up", "--data-dir", str(self.data), "--ready-file", str(self.ready_file), *arguments]
        with self.printed.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603 - our own command
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )
        self.url = self.token = ""
        self.ca_file = folder / "ca.crt"

    @property
    def transcript(self) -> str:
        """What a user sees."""
        return self.printed.read_text(errors="replace")

    @property
    def output(self) -> str:
        """Everything that it and its children wrote: what a user sees, and the log file."""
        kept = self.data / "eso.log"
        return self.transcript + (kept.read_text(errors="replace") if kept.exists() else "")

    def wait_until_ready(self) -> None:
        self.wait_for(self.ready_file.exists, "it is not ready")
        config = yaml.safe_load(self.kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.url, self.token = str(cluster["server"]), str(user["token"])
        self.ca_file.write_bytes(base64.b64decode(cluster["certificate-authority-data"]))

    def wait_for(self, holds: Callable[[], object], complaint: str) -> None:
        """Until something about a running process is true; fails when it ends, or at the deadline."""
        clock = SystemClock()
        deadline = clock.monotonic() + SECONDS
        while not holds():
            with suppress(subprocess.TimeoutExpired):
                code = self._process.wait(_POLL_SECONDS)
                raise AssertionError(f"eso up ended with {code}:\n{self.output[-4000:]}")
            if clock.monotonic() > deadline:
                raise AssertionError(f"{complaint} after {SECONDS:.0f} s:\n{self.output[-4000:]}")

    def members(self) -> dict[int, str]:
        """The processes of its group that still run, by their command line."""
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                with suppress(OSError):
                    state, _, group = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
                    if int(group) == self._process.pid and state != "Z":
                        found[int(entry.name)] = (entry / "cmdline").read_text().replace("\0", " ")
        return found

    def component(self, text: str) -> int:
        """The process id of the child with this text in its command line.

        A process that is being started has no command line for a moment.
        """
        found: list[int] = []

        def is_there() -> bool:
            found[:] = self.components(text)
            return len(found) == 1

        self.wait_for(is_there, f"there is not exactly one process with {text!r} in its command line")
        return found[0]

    def components(self, text: str) -> list[int]:
        return [pid for pid, line in self.members().items() if f"{text} " in line and pid != self._process.pid]

    def provider_ready(self, name: str) -> dict[str, Any]:
        """Return the log line that the provider wrote when it began to serve."""
        ready: dict[str, Any] = json.loads((self.data / "providers" / name / "ready.json").read_text())
        return ready

    def stop(self) -> int:
        """Interrupt it and wait; the exit code."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(SECONDS)

    def end(self) -> None:
        """Whatever is left of it and of its children is killed."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(SECONDS)

    def restart(self) -> None:
        raise AssertionError("a test that restarts it starts another one")

    compact = restart


@contextmanager
def up_running(folder: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> Iterator[UpProcess]:
    """Ready, for as long as the block lasts. `environment` is for it and its children, besides that of this process."""
    folder.mkdir(parents=True, exist_ok=True)
    up = UpProcess(folder, *arguments, environment=environment)
    try:
        up.wait_until_ready()
        yield up
    finally:
        up.end()
