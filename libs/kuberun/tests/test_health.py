"""Probes, asked over HTTP."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from kubebase.clock import SystemClock
from kubebase.meta import ObjectKey
from kubebase.testing.cancelling import leaks
from kubebase.testing.clock import VirtualClock
from kuberun.controller import Controller, Done, ReconcileContext, Result
from kuberun.errors import Unreachable
from kuberun.health import (
    Check,
    HealthServer,
    Healthy,
    Unhealthy,
    Verdict,
    caches_fresh,
    caches_synced,
    no_overdue_keys,
)
from kuberun.informer import Informer
from kuberun.testing.source import FakeCollection, Fault
from kuberun.workqueue import ReconcileRequest


@asynccontextmanager
async def serving(server: HealthServer) -> AsyncIterator[str]:
    running = asyncio.ensure_future(server.run())
    port = await server.wait_listening()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        running.cancel()
        await asyncio.wait({running})


async def ask(url: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, await response.text()


def always(verdict: Verdict) -> Check:
    async def check() -> Verdict:
        return verdict

    return check


async def hanging() -> Verdict:
    await asyncio.Event().wait()
    return Healthy()


async def raising() -> Verdict:
    raise ValueError("password=CANARY")


def new_server() -> HealthServer:
    return HealthServer(clock=SystemClock(), host="127.0.0.1", port=0, check_timeout=0.05)


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
async def test_without_checks_every_probe_is_fine(path: str) -> None:
    async with serving(new_server()) as url:
        assert await ask(url + path) == (200, "ok\n")


async def test_liveness_and_readiness_are_asked_apart() -> None:
    server = new_server()
    server.add_liveness("loop", always(Healthy("turning")))
    server.add_readiness("caches", always(Unhealthy("not listed yet: things")))

    async with serving(server) as url:
        assert await ask(f"{url}/livez") == (200, "[+] loop turning\nok\n")
        assert await ask(f"{url}/healthz") == (200, "[+] loop turning\nok\n")
        assert await ask(f"{url}/readyz") == (503, "[-] caches not listed yet: things\nfailed\n")


@pytest.mark.parametrize(
    ("check", "line"),
    [
        pytest.param(hanging, "[-] odd no response within 0.05 s", id="a check that hangs"),
        pytest.param(raising, "[-] odd the check itself failed (ValueError)", id="a check that raises"),
    ],
)
async def test_a_check_that_breaks_fails_the_probe_and_spares_the_others(check: Check, line: str) -> None:
    server = new_server()
    server.add_liveness("odd", check)
    server.add_liveness("fine", always(Healthy()))

    async with serving(server) as url:
        assert await ask(f"{url}/livez") == (503, f"{line}\n[+] fine\nfailed\n")


async def test_the_watchdog_names_the_controller_and_the_worst_key() -> None:
    clock = VirtualClock()

    async def reconcile(_: ObjectKey, __: ReconcileContext) -> Result:
        return Done()

    idle, late = (Controller(name, reconcile, clock=clock) for name in ("idle", "late"))
    check = no_overdue_keys([idle, late], limit=60)
    late.queue.add(ReconcileRequest(ObjectKey("default", "a")))
    await clock.advance(59)
    early = await check()
    late.queue.add(ReconcileRequest(ObjectKey("default", "b")))
    await clock.advance(30)

    assert early == Healthy()
    assert await check() == Unhealthy("overdue by more than 60 s: late: 1 keys, the worst is default/a")


async def test_caches_are_reported_until_they_are_listed_and_again_when_they_are_stale() -> None:
    clock, collection = VirtualClock(), FakeCollection()
    informer = Informer(collection, clock=clock, name="things")
    synced, fresh = caches_synced([informer]), caches_fresh([informer], limit=300)
    before = await synced()
    running = asyncio.ensure_future(informer.run())
    await clock.settle()
    after = await synced(), await fresh()
    collection.refusals.extend(Unreachable("gone") for _ in range(1000))
    collection.disturb(Fault.CUT)
    await clock.advance(301)

    assert before == Unhealthy("not listed yet: things")
    assert after == (Healthy(), Healthy())
    assert await synced() == Healthy()
    assert await fresh() == Unhealthy("no sign of life from the API server: things (301 s)")
    running.cancel()
    await asyncio.wait({running})


async def test_a_server_that_is_stopped_while_it_starts_leaves_its_port_free() -> None:
    assert await leaks(lambda port: HealthServer(clock=SystemClock(), host="127.0.0.1", port=port).run()) == []
