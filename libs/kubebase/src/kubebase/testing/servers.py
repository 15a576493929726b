"""The interface of API servers in tests, and the child processes they consist of.

`localserver.py` and `kubeapiserver.py` implement ApiServer; `plugin.py` offers one to tests. This module knows no HTTP.
"""

from __future__ import annotations

import base64
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import yaml

from kubebase.children import bound_to_parent
from kubebase.clock import SystemClock

POLL_SECONDS = 0.05
STOP_SECONDS = 10.0
LOG_TAIL_LINES = 15
_PORTS = range(20_000, 32_000)


class ApiServer(Protocol):
    """A running API server with an administrator's credentials."""

    name: str
    """`localkube` or `kube`."""
    url: str
    token: str
    ca_file: Path
    kubeconfig: Path

    def restart(self) -> None:
        """Restart on the same address with the same objects; open watches break."""
        ...

    def compact(self) -> None:
        """Discard history: every earlier resourceVersion answers 410. This may restart the server."""
        ...

    def stop(self) -> object: ...


class ServerFailedError(Exception):
    """A server did not start, did not become ready, or died; the message contains the end of its log."""


class Child:
    """A process that never outlives this one, with its output in a file."""

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
        self.name = Path(command[0]).name
        self._log = log
        self._process = _SPAWNER.submit(_spawn, command, log, environment or {}).result()

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until(self, ready: Callable[[], bool], *, seconds: float) -> None:
        """Poll `ready` until it is true; fail if the process ends, or at the deadline."""
        clock = SystemClock()
        deadline = clock.monotonic() + seconds
        while not ready():
            if clock.monotonic() > deadline:
                raise ServerFailedError(f"{self.name} was not ready after {seconds:.0f} s; {self._log_end()}")
            try:
                code = self._process.wait(POLL_SECONDS)
            except subprocess.TimeoutExpired:
                continue
            raise ServerFailedError(f"{self.name} ended with code {code}; {self._log_end()}")

    def stop(self) -> None:
        """Terminate the process, and kill it if it does not end in time. Safe to call twice."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        if self._process.poll() is None:
            self._process.send_signal(how)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_SECONDS)

    def _log_end(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
        return "\n".join([f"the end of {self._log}:", *lines])


def free_ports(count: int) -> list[int]:
    """Return free loopback ports. Another process may still take one first, so callers must retry.

    They are outside the range of ephemeral ports: outgoing connections could take one of those at any moment.
    """
    with ExitStack() as held:
        found: list[int] = []
        draw = random.SystemRandom()
        for _ in _PORTS:  # a bound: a port that is taken, by us too, costs one turn
            if len(found) == count:
                break
            port = draw.choice(_PORTS)
            one = held.enter_context(socket.socket())
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
            found.append(port)
    return found


def find_program(name: str, *folders: Path) -> Path | None:
    """Find a program in the given folders, beside the Python interpreter (where wheels put programs), or on PATH."""
    path = [Path(part) for part in os.environ.get("PATH", "").split(os.pathsep) if part]
    for folder in (*folders, Path(sys.executable).parent, *path):
        if os.access(folder / name, os.X_OK):
            return folder / name
    return None


def kubeconfig_text(url: str, ca: bytes, token: str) -> str:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "test",
                "cluster": {"server": url, "certificate-authority-data": base64.b64encode(ca).decode()},
            }
        ],
        "users": [{"name": "admin", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
        "current-context": "test",
    }
    return yaml.safe_dump(config)


_SPAWNER = ThreadPoolExecutor(1, thread_name_prefix="children")
"""Starts every child. Linux ends a child with the thread that started it, and this thread lives as long as we do."""


def _spawn(command: Sequence[str], log: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen(  # noqa: S603 - the command is ours
            bound_to_parent(command, signal.SIGKILL),  # servers must not outlive pytest, even if it is killed
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            start_new_session=True,  # Ctrl-C in the terminal reaches only pytest, which then stops the servers in order
        )
