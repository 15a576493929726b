"""Operating system processes that compete, and the journal in which all of them write.

The order of lines is the order of the work done. A test file starts itself as a program, once for each process.
"""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kubebase.clock import SystemClock

_LOOKS = 1200
_PAUSE = 0.05


class Contenders:
    """Processes of one program. Its arguments are the given ones, the journal, and the name of the process."""

    def __init__(self, program: str, arguments: list[str], folder: Path) -> None:
        self._journal = folder / "journal"
        self._journal.touch()
        self._command = [sys.executable, program, *arguments, str(self._journal)]
        self._log = folder / "contenders.log"
        self._names = (f"contender-{number}" for number in itertools.count(1))
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._clock = SystemClock()

    @contextmanager
    def running(self) -> Iterator[None]:
        try:
            yield
        finally:
            for process in self._processes.values():
                process.kill()
                process.wait()

    def enter(self) -> str:
        """Start a process, and return its name."""
        name = next(self._names)
        with self._log.open("ab") as log:
            self._processes[name] = subprocess.Popen([*self._command, name], stdout=log, stderr=log)  # noqa: S603 - the test itself
        return name

    def send(self, name: str, number: signal.Signals) -> None:
        self._processes[name].send_signal(number)

    def exit_code(self, name: str) -> int | None:
        return self._processes[name].poll()

    def lines(self) -> list[str]:
        return self._journal.read_text().splitlines()

    def log(self) -> str:
        return self._log.read_text()

    async def until(self, happened: Callable[[], bool], complaint: str) -> None:
        for _ in range(_LOOKS):
            if happened():
                return
            await self._clock.sleep(_PAUSE)
        raise AssertionError(f"{complaint}\n{self.log()[-3000:]}")
