"""Shards between operating system processes on a real API server: killed, frozen, stopped and joining processes.

Run by pytest, this file is the test. Run as a program, it is one process: a manager whose only controller appends a
line for each reconcile to a journal shared by all processes: the object, its shard's term, and the process. A term is
the number of the Lease's holder, which only grows. So a line with an older term than the line before it, of the same
object, was written by a process that no longer held the shard.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from kubebase.clock import SystemClock
from kubebase.meta import ObjectKey
from kubebase.testing.servers import ApiServer
from kuberun import config
from kuberun.client import Client
from kuberun.controller import Controller, ReconcileContext, Requeue, Result
from kuberun.informer import Informer
from kuberun.leader import LeaseSettings
from kuberun.manager import ComponentFailedError, Manager
from kuberun.permit import permitted
from kuberun.sharding import Sharding, ShardSettings, shard_of
from kuberun.testing.leases import Contenders
from kuberun.testing.source import FakeCollection
from kuberun.transport import AiohttpTransport
from kuberun.triggers import itself

TIMING = LeaseSettings(duration=6, renew_deadline=4.0, retry_period=0.5)
SHARDS = 3
OBJECTS = [ObjectKey(f"team-{number}", "app") for number in range(9)]
TICK = 0.2


class Line(NamedTuple):
    key: str
    term: int
    process: str


class Crew(Contenders):
    """The processes that share the objects."""

    def journal(self) -> list[Line]:
        lines = (text.split() for text in self.lines())
        return [Line(key, int(term), process) for key, term, process in lines]

    async def until_shared_by(self, *names: str) -> None:
        """Wait until these processes, and no others, have worked on all objects since now."""
        seen = len(self.lines())

        def shared() -> bool:
            latest = {line.key: line.process for line in self.journal()[seen:]}
            return latest.keys() == {str(key) for key in OBJECTS} and set(latest.values()) == set(names)

        await self.until(shared, f"the objects are not shared by {names}")


@pytest.mark.live
@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_shards_move_whatever_happens_to_their_holders_and_no_object_has_two_writers(
    api_server: ApiServer, namespace: str, tmp_path: Path
) -> None:
    crew = Crew(__file__, [str(api_server.kubeconfig), namespace], tmp_path)
    with crew.running():
        first = crew.enter()
        await crew.until_shared_by(first)
        second = crew.enter()
        await crew.until_shared_by(first, second)

        crew.send(first, signal.SIGKILL)
        await crew.until_shared_by(second)
        third = crew.enter()
        await crew.until_shared_by(second, third)

        crew.send(second, signal.SIGSTOP)
        await crew.until_shared_by(third)
        crew.send(second, signal.SIGCONT)
        await crew.until(lambda: crew.exit_code(second) is not None, "a process that overslept works on")
        fourth = crew.enter()
        await crew.until_shared_by(third, fourth)

        crew.send(third, signal.SIGTERM)
        await crew.until_shared_by(fourth)
        await crew.until(lambda: crew.exit_code(third) is not None, "a stopped process does not end")

        assert (crew.exit_code(second), crew.exit_code(third)) == (3, 0)

    terms: dict[str, int] = {}
    holders: dict[tuple[str, int], str] = {}
    for line in crew.journal():
        assert line.term >= terms.get(line.key, 0), f"{line.process} wrote {line.key} after its term had ended"
        assert holders.setdefault((line.key, line.term), line.process) == line.process, "two writers in one term"
        terms[line.key] = line.term


def work(kubeconfig: str, namespace: str, journal: str, name: str) -> int:
    file = os.open(journal, os.O_WRONLY | os.O_APPEND)

    async def run() -> None:
        clock = SystemClock()
        client = Client(AiohttpTransport(config.load(Path(kubeconfig))))
        group = ObjectKey(namespace, "crew")
        sharding = Sharding(
            client, group, ShardSettings(SHARDS, "crew"), clock=clock, identity=name, lease_settings=TIMING
        )

        async def write(key: ObjectKey, _: ReconcileContext) -> Result:
            if permitted():
                os.write(file, f"{key} {sharding.term(shard_of(key.namespace, SHARDS))} {name}\n".encode())
            return Requeue(TICK)

        objects = FakeCollection()
        for key in OBJECTS:
            objects.put(key.name, namespace=key.namespace)
        controller = Controller("worker", write, clock=clock)
        controller.watch(Informer(objects, clock=clock, name="objects"), itself())
        sharding.add(controller)
        manager = Manager(clock=clock, election=sharding)
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
    sys.exit(work(*sys.argv[1:]))
