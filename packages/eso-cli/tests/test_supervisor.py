"""Children of `eso up`: kept running, heard with their names, stopped together."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from eso_cli import supervisor
from eso_cli.loglines import LogLines
from eso_cli.supervisor import Component, supervised
from kubebase.backoff import ExponentialBackoff
from kubebase.clock import SystemClock

QUICK = ExponentialBackoff(first=0.01, cap=0.02)
SECONDS = 20.0


class Heard:
    """Lines of the stream, and a way to wait for one."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._news = asyncio.Event()
        self.log = LogLines(self.emit, SystemClock(), text=False)

    def emit(self, line: str) -> None:
        self.lines.append(line)
        self._news.set()

    async def until(self, text: str, times: int = 1) -> None:
        async with asyncio.timeout(SECONDS):
            while sum(text in line for line in self.lines) < times:
                self._news.clear()
                await self._news.wait()


def component(name: str, program: str) -> Component:
    return Component(name, [sys.executable, "-c", program], dict(os.environ))


async def test_a_component_that_exits_is_reported_and_restarted() -> None:
    heard = Heard()

    async with supervised(
        [component("short", "print('hello', flush=True); raise SystemExit(3)")],
        SystemClock(),
        heard.log,
        backoff=QUICK,
    ):
        await heard.until("hello", times=3)

    told = [json.loads(line) for line in heard.lines if line.startswith("{")]
    assert told[0]["component"] == "short"
    assert "ended with 3" in told[0]["msg"]


async def test_files_of_a_component_are_private(tmp_path: Path) -> None:
    heard, file = Heard(), tmp_path / "ready.json"

    async with supervised(
        [component("writer", f"open({str(file)!r}, 'w'); print('written', flush=True); input()")],
        SystemClock(),
        heard.log,
        backoff=QUICK,
    ):
        await heard.until("written")

    assert file.stat().st_mode & 0o777 == 0o600


async def test_a_component_that_joins_later_is_kept_running_and_stopped_with_the_others(tmp_path: Path) -> None:
    heard = Heard()
    stopped = tmp_path / "stopped"
    polite = (
        "import pathlib, signal, sys, time\n"
        f"signal.signal(signal.SIGTERM, lambda *_: (pathlib.Path({str(stopped)!r}).touch(), sys.exit(0)))\n"
        "print('polite', flush=True); time.sleep(600)\n"
    )

    async with supervised([], SystemClock(), heard.log, backoff=QUICK) as start:
        start(component("short", "print('hello', flush=True); raise SystemExit(3)"))
        start(component("late", polite))
        await heard.until("hello", times=2)
        await heard.until("late | polite")

    assert stopped.exists()


async def test_a_component_is_asked_to_stop_and_its_last_words_do_not_block_it(tmp_path: Path) -> None:
    heard = Heard()
    stopped = tmp_path / "stopped"
    program = (
        "import pathlib, signal, sys, time\n"
        "def stop(*_):\n"
        "    sys.stdout.write('x' * 300000); sys.stdout.flush()\n"
        f"    pathlib.Path({str(stopped)!r}).touch(); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, stop)\n"
        "print('running', flush=True)\n"
        "time.sleep(600)\n"
    )

    async with supervised([component("polite", program)], SystemClock(), heard.log, backoff=QUICK):
        await heard.until("running")

    assert stopped.exists()


async def test_a_component_that_does_not_stop_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "GRACE_SECONDS", 0.2)
    heard = Heard()
    program = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print(os.getpid(), flush=True); time.sleep(600)\n"
    )

    async with supervised([component("stubborn", program)], SystemClock(), heard.log, backoff=QUICK):
        await heard.until("stubborn | ")

    pid = int(heard.lines[0].removeprefix("stubborn | "))
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_line_longer_than_the_bound_comes_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "LINE_BYTES", 1000)
    heard = Heard()

    async with supervised(
        [component("long", "print('y' * 5000, flush=True); print('end', flush=True); import time; time.sleep(600)")],
        SystemClock(),
        heard.log,
        backoff=QUICK,
    ):
        await heard.until("long | end")

    assert max(len(line) for line in heard.lines) < 2100
    assert sum(line.count("y") for line in heard.lines) == 5000


async def test_a_command_that_does_not_exist_is_reported_and_retried() -> None:
    heard = Heard()

    async with supervised([Component("missing", ["/no/such/command"], {})], SystemClock(), heard.log, backoff=QUICK):
        await heard.until("cannot be started", times=2)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's signal at the parent's death is Linux's")
async def test_a_component_does_not_outlive_a_supervisor_that_is_killed() -> None:
    program = (
        "import asyncio, os, sys\n"
        "from eso_cli.supervisor import Component, supervised\n"
        "from eso_cli.loglines import LogLines\n"
        "from kubebase.clock import SystemClock\n"
        "child = Component('child', [sys.executable, '-c', 'import os, time; print(os.getpid(), flush=True); "
        "time.sleep(600)'], dict(os.environ))\n"
        "async def main():\n"
        "    log = LogLines(lambda line: print(line, flush=True), SystemClock(), text=False)\n"
        "    async with supervised([child], SystemClock(), log):\n"
        "        await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE)
    assert parent.stdout is not None
    child = os.pidfd_open(int((await parent.stdout.readline()).split()[-1]))
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(child, ended.set)

    parent.kill()

    async with asyncio.timeout(SECONDS):
        await ended.wait()
    asyncio.get_running_loop().remove_reader(child)
    os.close(child)
    await parent.wait()


async def test_no_fork_handlers_run_when_a_component_is_started() -> None:
    """Libraries have them, and those of gRPC abort now and then in a process that has threads."""
    program = (
        "import asyncio, os, sys\n"
        "from eso_cli.supervisor import Component, supervised\n"
        "from eso_cli.loglines import LogLines\n"
        "from kubebase.clock import SystemClock\n"
        "os.register_at_fork(before=lambda: print('forking', flush=True))\n"
        "child = Component('child', [sys.executable, '-c', 'print(1)'], dict(os.environ))\n"
        "async def main():\n"
        "    heard = asyncio.Event()\n"
        "    log = LogLines(lambda line: heard.set(), SystemClock(), text=False)\n"
        "    async with supervised([child], SystemClock(), log):\n"
        "        await heard.wait()\n"
        "asyncio.run(main())\n"
    )
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE)

    async with asyncio.timeout(SECONDS):
        output, _ = await parent.communicate()

    assert (parent.returncode, output) == (0, b"")
