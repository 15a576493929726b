"""Leader election between operating system processes on a real API server: killed, frozen and stopped leaders.

Run by pytest, this file is the test. Run as a program, it is one contender: a manager whose only controller, while it
leads, appends its name to a journal shared by all contenders. The order of lines is the order of the work done.
"""

import asyncio
import itertools
import os
import signal
import sys
from pathlib import Path

import pytest

from kubebase.clock import SystemClock
from kubebase.meta import ObjectKey
from kubebase.testing.servers import ApiServer
from kuberun import config
from kuberun.client import Client
from kuberun.controller import Controller, ReconcileContext, Requeue, Result
from kuberun.leader import LeaderElection, LeaseSettings
from kuberun.manager import ComponentFailedError, Manager
from kuberun.testing.leases import Contenders
from kuberun.transport import AiohttpTransport
from kuberun.workqueue import ReconcileRequest

SETTINGS = LeaseSettings(duration=6, renew_deadline=4.0, retry_period=0.5)
TICK = 0.1


class Contest(Contenders):
    """Contenders for one lease. Each line of the journal is the name of the process that worked."""

    async def leader_other_than(self, *names: str) -> str:
        """Wait until new lines of the journal have a name other than these, and return it."""
        seen = len(self.lines())

        def newcomer() -> bool:
            return any(name not in names for name in self.lines()[seen:])

        await self.until(newcomer, "no contender took over")
        return next(name for name in self.lines()[seen:] if name not in names)


@pytest.mark.live
@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_leadership_passes_on_whatever_happens_to_the_leader_and_never_two_lead(
    api_server: ApiServer, namespace: str, tmp_path: Path
) -> None:
    contest = Contest(__file__, [str(api_server.kubeconfig), namespace], tmp_path)
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

    terms = [name for name, _ in itertools.groupby(contest.lines())]
    assert len(terms) == len(set(terms)), "a contender worked after another had taken over"
    assert len(terms) >= 5
    assert (overslept, stopped) == (3, 0)
    assert "leadership acquired" in contest.log()


def contend(kubeconfig: str, namespace: str, journal: str, name: str) -> int:
    file = os.open(journal, os.O_WRONLY | os.O_APPEND)

    async def work(_: ObjectKey, __: ReconcileContext) -> Result:
        os.write(file, f"{name}\n".encode())
        return Requeue(TICK)

    async def run() -> None:
        clock = SystemClock()
        client = Client(AiohttpTransport(config.load(Path(kubeconfig))))
        lease = ObjectKey(namespace, "contest")
        election = LeaderElection(client, lease, clock=clock, identity=name, settings=SETTINGS)
        controller = Controller("worker", work, clock=clock)
        controller.queue.add(ReconcileRequest(ObjectKey("", "work")))
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
