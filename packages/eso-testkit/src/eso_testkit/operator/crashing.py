"""Operators that die by SIGKILL just before or just after one of their calls to the outside.

    python -m eso_testkit.operator.crashing < orders

An order is a line of JSON: the operator's flags, its environment, and a journal. Each starts one process, forked from
this one so that nothing is imported twice; when it ends, a line with its exit code is printed. Closing the input ends
this program.

In the environment of an operator:

    ESO_CRASH_IN        the namespaces whose calls count, separated by commas
    ESO_CRASH_AT        `before 3`, `after 3`, `after GetSecrets`: the call at which it is killed, by number or by a
                        part of its line in the journal; absent: never

The calls of a sync count: requests about single objects of that namespace, including new ones, and calls to providers
except handshakes. Lists, watches and recorded events do not count. Every counted call is a line in the journal, which
is written before the call is made.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

from eso_operator.flags import parse
from eso_operator.providers.channels import CallOptions, Duplex, GrpcTransport
from eso_operator.providers.channels import Transport as ProviderTransport
from eso_operator.providers.gateway import CallHooks
from eso_operator.telemetry import logs
from eso_operator.wiring import wire
from eso_wire.paths import HANDSHAKE, short_name
from kubebase.clock import SystemClock
from kuberun import config
from kuberun.client import Client
from kuberun.requests import Request
from kuberun.transport import AiohttpTransport, Transport

CRASH_AT = "ESO_CRASH_AT"
CRASH_IN = "ESO_CRASH_IN"


@dataclass(slots=True)
class CrashPoint:
    """Counts calls, notes them, and kills the process when it is time."""

    journal: Path
    namespaces: tuple[str, ...]
    side: str = ""
    number: int = 0
    part: str = ""
    calls: int = 0

    @classmethod
    def of(cls, journal: Path, environment: dict[str, str]) -> CrashPoint:
        side, _, what = environment.get(CRASH_AT, "").partition(" ")
        number, part = (int(what), "") if what.isdecimal() else (0, what)
        return cls(journal, tuple(environment[CRASH_IN].split(",")), side, number, part)

    def before(self, call: str) -> int:
        """Return the number of this call."""
        self.calls += 1
        with self.journal.open("a") as file:
            file.write(f"{call}\n")
        if self.part and self.part in call:
            self.number = self.calls
        self._die("before", self.calls)
        return self.calls

    def after(self, number: int) -> None:
        self._die("after", number)

    def counts(self, request: Request) -> bool:
        _, _, rest = request.path.partition("/namespaces/")
        namespace, _, what = rest.partition("/")
        single = "/" in what or request.method == "POST"
        return namespace in self.namespaces and single and not what.startswith("events")

    def _die(self, side: str, number: int) -> None:
        if (side, number) == (self.side, self.number):
            os.kill(os.getpid(), signal.SIGKILL)


class CrashingApi:
    """Requests to the API server, some of them the last."""

    def __init__(self, inner: Transport, point: CrashPoint) -> None:
        self._inner = inner
        self._point = point

    async def request(self, request: Request) -> bytes:
        if not self._point.counts(request):
            return await self._inner.request(request)
        number = self._point.before(f"{request.method} {request.path}")
        answer = await self._inner.request(request)
        self._point.after(number)
        return answer

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._inner.stream(request)

    async def close(self) -> None:
        await self._inner.close()


class CrashingProvider:
    """Calls to a provider, some of them the last."""

    def __init__(self, inner: ProviderTransport, point: CrashPoint) -> None:
        self._inner = inner
        self._point = point

    async def unary(self, method: str, request: bytes, options: CallOptions) -> bytes:
        if method == HANDSHAKE:
            return await self._inner.unary(method, request, options)
        number = self._point.before(f"CALL {short_name(method)}")
        answer = await self._inner.unary(method, request, options)
        self._point.after(number)
        return answer

    async def stream(self, method: str, request: bytes, options: CallOptions) -> AsyncGenerator[bytes, None]:
        number = self._point.before(f"CALL {short_name(method)}")
        async for message in self._inner.stream(method, request, options):
            yield message
        self._point.after(number)

    async def duplex(self, method: str, options: CallOptions) -> Duplex:
        return await self._inner.duplex(method, options)

    async def close(self) -> None:
        await self._inner.close()


async def run(flags: Sequence[str], point: CrashPoint) -> None:
    """Run an operator until it is signalled or dies."""
    clock = SystemClock()
    settings = parse(flags, {})
    logs.configure(settings.logs, clock)
    client = Client(CrashingApi(AiohttpTransport(config.load(settings.kubeconfig, clock=clock)), point))
    hooks = CallHooks(dial=lambda endpoint, material: CrashingProvider(GrpcTransport(endpoint, material, clock), point))
    try:
        await wire(settings, client, clock, hooks=hooks).manager.run_until_signalled()
    finally:
        await client.close()


def serve() -> None:
    """Process the orders one after the other; one operator runs at a time."""
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if not child:
            os._exit(_born(order))
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _born(order: dict[str, object]) -> int:
    """Run a forked operator and return its exit code. Its output goes to the log that the order names."""
    with Path(str(order["log"])).open("ab") as log:
        os.dup2(log.fileno(), sys.stderr.fileno())
        os.dup2(log.fileno(), sys.stdout.fileno())
    environment = order["environment"]
    assert isinstance(environment, dict)  # noqa: S101 - this is a test kit
    point = CrashPoint.of(Path(str(order["journal"])), environment)
    try:
        asyncio.run(run([str(flag) for flag in order["flags"]], point))  # type: ignore[attr-defined]  # JSON
    except BaseException:  # noqa: BLE001 - a forked process must not return into the loop of its parent
        import traceback

        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    serve()
