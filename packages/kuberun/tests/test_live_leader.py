"""Leader election between operating system processes on a real API server: killed, frozen and stopped leaders.

Run by pytest, this file is the test. Run as a program, it is one contender: a manager whose only controller, while it
leads, appends its name to a journal shared by all contenders. The order of lines is the order of the work done.
"""

import asyncio
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kubebase.clock import SystemClock
from kubebase.meta import ObjectKey
from kubebase.testing.servers import ApiServer
from kuberun import config
from kuberun.client import Client
from kuberun.controller import After, Controller, Outcome
from kuberun.leader import LeaderElection, LeaseSettings
from kuberun.manager import ComponentFailedError, Manager
from kuberun.transport import AiohttpTransport
from kuberun.workqueue import Request

SETTINGS = LeaseSettings(duration=6, renew_deadline=4.0, retry_period=0.5)
TICK = 0.1


class Contest:
    """Two contenders for one lease, each replaced when it ends."""

    def __init__(self, kubeconfig: Path, namespace: str, folder: Path) -> None:
        self._arguments = [str(kubeconfig), namespace, str(folder / "journal")]
        self._journal = folder / "journal"
        self._journal.touch()
        self._log = folder / "contenders.log"
        self._names = (f"contender-{number}" for number in itertools.count(1))
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @contextmanager
    def running(self) -> Iterator[None]:
        try:
            yield
        finally:
            for process in self._processes.values():
                process.kill()
                process.wait()

    def enter(self) -> str:
        name = next(self._names)
        with self._log.open("ab") as log:
            command = [sys.executable, __file__, *self._arguments, name]
            self._processes[name] = subprocess.Popen(command, stdout=log, stderr=log)
        return name

    def send(self, name: str, number: signal.Signals) -> None:
        self._processes[name].send_signal(number)

    def exit_code(self, name: str) -> int | None:
        return self._processes[name].poll()

    def journal(self) -> list[str]:
        return self._journal.read_text().split()

    def log(self) -> str:
        return self._log.read_text()

    async def leader_other_than(self, *names: str) -> str:
        """Wait until new lines of the journal have a name other than these, and return it."""
        seen = len(self.journal())

        def newcomer() -> bool:
            return any(name not in names for name in self.journal()[seen:])

        await self.until(newcomer, "no contender took over")
        return next(name for name in self.journal()[seen:] if name not in names)

    async def until(self, happened: Callable[[], bool], complaint: str) -> None:
        for _ in range(1200):
            if happened():
                return
            await asyncio.sleep(0.05)
        pytest.fail(f"{complaint}\n{self.log()[-2000:]}")


@pytest.mark.live
@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_leadership_passes_on_whatever_happens_to_the_leader_and_never_two_lead(
    api_server: ApiServer, namespace: str, tmp_path: Path
) -> None:
    contest = Contest(api_server.kubeconfig, namespace, tmp_path)
    with contest.running():
        contest.enter()
        contest.enter()
        leader = await contest.leader_other_than()

        for _ in range(2):
            contest.send(leader, signal.SIGKILL)
            successor = await contest.leader_other_than(leader)
            contest.enter()
            leader = successor

        contest.send(leader, signal.SIGSTOP)
        successor = await contest.leader_other_than(leader)
        contest.send(leader, signal.SIGCONT)
        await contest.until(lambda: contest.exit_code(leader) is not None, "a leader that overslept works on")
        overslept = contest.exit_code(leader)
        contest.enter()

        contest.send(successor, signal.SIGTERM)
        await contest.leader_other_than(leader, successor)
        await contest.until(lambda: contest.exit_code(successor) is not None, "a stopped leader does not end")
        stopped = contest.exit_code(successor)

    terms = [name for name, _ in itertools.groupby(contest.journal())]
    assert len(terms) == len(set(terms)), "a contender worked after another had taken over"
    assert len(terms) >= 5
    assert (overslept, stopped) == (3, 0)
    assert "leadership acquired" in contest.log()


def contend(kubeconfig: str, namespace: str, journal: str, name: str) -> int:
    file = os.open(journal, os.O_WRONLY | os.O_APPEND)

    async def work(_: ObjectKey) -> Outcome:
        os.write(file, f"{name}\n".encode())
        return After(TICK)

    async def run() -> None:
        clock = SystemClock()
        client = Client(AiohttpTransport(config.load(Path(kubeconfig))))
        lease = ObjectKey(namespace, "contest")
        election = LeaderElection(client, lease, clock=clock, identity=name, settings=SETTINGS)
        controller = Controller("worker", work, clock=clock)
        controller.queue.add(Request(ObjectKey("", "work")))
        manager = Manager(clock=clock, election=election)
        manager.add_controller(controller)
        try:
            await manager.run_until_signalled()
        finally:
            await client.close()

    try:
        asyncio.run(run())
    except ComponentFailedError:
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(contend(*sys.argv[1:]))
