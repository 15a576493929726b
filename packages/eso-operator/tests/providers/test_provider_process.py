"""A provider in a process of its own: killed, restarted, frozen."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from eso_api.values import SecretBytes
from eso_operator.providers.errors import NoResponseError
from eso_operator.providers.gateway import Gateway
from eso_operator.providers.metrics import ProviderMetrics
from eso_operator.providers.settings import RuntimeSettings
from eso_operator.stores.resolved import CallPolicy
from eso_testkit.operator.boundstores import bound_store, endpoint, wanted
from eso_testkit.operator.providerhost import GivenCertificates, TestAuthority
from eso_wire.status import TransportError
from eso_wire.tls import CA_FILE, CERTIFICATE_FILE, KEY_FILE
from kubebase.clock import SystemClock

ONCE = CallPolicy(gated=False, max_retries=0)


@dataclass
class Child:
    """The process; `start` uses the port it had before."""

    folder: Path
    port: int = 0
    process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self.process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "eso_testkit.operator.providerprocess",
            str(self.folder),
            str(self.port),
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "GRPC_VERBOSITY": "ERROR"},
        )
        assert self.process.stdout is not None
        self.port = int(await asyncio.wait_for(self.process.stdout.readline(), 60))

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    async def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            await self.process.communicate()
            self.process = None


@asynccontextmanager
async def child_and_gateway(folder: Path) -> AsyncIterator[tuple[Child, Gateway]]:
    clock = SystemClock()
    authority = TestAuthority(clock.now())
    server = authority.server()
    for name, content in (
        (CA_FILE, server.ca),
        (CERTIFICATE_FILE, server.certificate),
        (KEY_FILE, server.key.reveal()),
    ):
        (folder / name).write_bytes(content)
    child = Child(folder)
    gateway = Gateway(
        GivenCertificates(authority.client()),
        clock,
        settings=RuntimeSettings(),
        metrics=ProviderMetrics(CollectorRegistry()),
    )
    try:
        await child.start()
        yield child, gateway
    finally:
        await gateway.close()
        await child.kill()


async def test_a_killed_provider_is_named_as_down_and_found_again_when_it_is_back(tmp_path: Path) -> None:
    async with child_and_gateway(tmp_path) as (child, gateway):
        once = bound_store(endpoint(f"ipv4:127.0.0.1:{child.port}"), policy=ONCE)
        before = await gateway.get(once, wanted("a"))

        await child.kill()
        with pytest.raises(TransportError, match="refuses connections"):
            await gateway.get(once, wanted("a"))
        await child.start()
        async with asyncio.timeout(30):
            after = await _found_again(gateway, child)

    assert before[0].outcome == after == SecretBytes(b"value-of-a")


async def _found_again(gateway: Gateway, child: Child) -> object:
    patient = bound_store(endpoint(f"ipv4:127.0.0.1:{child.port}"))
    while True:
        try:
            return (await gateway.get(patient, wanted("a")))[0].outcome
        except (TransportError, NoResponseError) as error:
            await asyncio.sleep(error.retry_after)


async def test_a_frozen_provider_costs_the_deadline_and_answers_when_it_thaws(tmp_path: Path) -> None:
    async with child_and_gateway(tmp_path) as (child, gateway):
        at = endpoint(f"ipv4:127.0.0.1:{child.port}")
        await gateway.get(bound_store(at), wanted("a"))

        child.signal(signal.SIGSTOP)
        with pytest.raises(NoResponseError):
            await gateway.get(
                bound_store(at, policy=CallPolicy(gated=False, max_retries=0, call_timeout=0.3)), wanted("a")
            )
        child.signal(signal.SIGCONT)
        results = await gateway.get(bound_store(at), wanted("a"))

    assert results[0].outcome == SecretBytes(b"value-of-a")
