"""Probes over HTTP: /livez (and /healthz) for "restart me", /readyz for "send me work".

A check is a small async function with a name. Each has a time limit; a check that raises or hangs counts as failed. The
watchdogs at the end detect failures that raise no exception: keys that are never reconciled, and stale caches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from aiohttp import web

from kubebase.clock import Clock
from kubebase.deadline import Deadline
from kubebase.opening import opened
from kuberun.controller import Controller
from kuberun.informer import Informer


@dataclass(frozen=True, slots=True)
class Healthy:
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Unhealthy:
    """The reason is visible to everyone who can reach the port: it holds names and numbers, never values."""

    reason: str


Verdict = Healthy | Unhealthy
Check = Callable[[], Awaitable[Verdict]]


class HealthServer:
    def __init__(self, *, clock: Clock, host: str, port: int, check_timeout: float = 2.0) -> None:
        self._clock = clock
        self._host = host
        self._port = port
        self._timeout = check_timeout
        self._live: dict[str, Check] = {}
        self._ready: dict[str, Check] = {}
        self._listening = asyncio.Event()

    def add_liveness(self, name: str, check: Check) -> None:
        self._live[name] = check

    def add_readiness(self, name: str, check: Check) -> None:
        self._ready[name] = check

    async def wait_listening(self) -> int:
        """Wait until the server listens and return its port, which the system chooses if none was given."""
        await self._listening.wait()
        return self._port

    async def run(self) -> NoReturn:
        """Serve until cancelled."""
        app = web.Application()
        app.router.add_get("/healthz", self._serve_live)
        app.router.add_get("/livez", self._serve_live)
        app.router.add_get("/readyz", self._serve_ready)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        try:
            site = web.TCPSite(runner, self._host, self._port)
            await opened(site.start(), lambda _: None)  # `cleanup` closes it
            self._port = runner.addresses[0][1]
            self._listening.set()
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()
        raise AssertionError("a probe server ends by being cancelled only")

    async def _serve_live(self, _: web.Request) -> web.Response:
        return await self._respond(self._live)

    async def _serve_ready(self, _: web.Request) -> web.Response:
        return await self._respond(self._ready)

    async def _respond(self, checks: dict[str, Check]) -> web.Response:
        verdicts = await asyncio.gather(*(self._verdict(check) for check in checks.values()))
        lines = [_line(name, verdict) for name, verdict in zip(checks, verdicts, strict=True)]
        failed = any(isinstance(verdict, Unhealthy) for verdict in verdicts)
        return web.Response(status=503 if failed else 200, text="\n".join([*lines, "failed" if failed else "ok", ""]))

    async def _verdict(self, check: Check) -> Verdict:
        try:
            async with Deadline(self._clock, self._timeout):
                return await check()
        except TimeoutError:
            return Unhealthy(f"no response within {self._timeout:g} s")
        except Exception as error:  # noqa: BLE001 - a probe must respond, whatever fails
            return Unhealthy(f"the check itself failed ({type(error).__name__})")


def no_overdue_keys(controllers: Sequence[Controller], limit: float) -> Check:
    """Make a check that fails if a key has waited or run longer than `limit` seconds."""

    async def check() -> Verdict:
        late = [(controller.name, controller.overdue(limit)) for controller in controllers]
        reasons = [f"{name}: {len(keys)} keys, the worst is {keys[0].key}" for name, keys in late if keys]
        return Unhealthy(f"overdue by more than {limit:g} s: " + "; ".join(reasons)) if reasons else Healthy()

    return check


def caches_synced(informers: Sequence[Informer[Any]]) -> Check:
    async def check() -> Verdict:
        missing = sorted(informer.name for informer in informers if not informer.synced)
        return Unhealthy("not listed yet: " + ", ".join(missing)) if missing else Healthy()

    return check


def caches_fresh(informers: Sequence[Informer[Any]], limit: float) -> Check:
    """Make a check that fails if a cache has received nothing from the API server for `limit` seconds."""

    async def check() -> Verdict:
        stale = sorted(f"{informer.name} ({informer.age:.0f} s)" for informer in informers if informer.age > limit)
        return Unhealthy("no sign of life from the API server: " + ", ".join(stale)) if stale else Healthy()

    return check


def _line(name: str, verdict: Verdict) -> str:
    match verdict:
        case Healthy(detail=detail):
            return f"[+] {name} {detail}".rstrip()
        case Unhealthy(reason=reason):
            return f"[-] {name} {reason}"
