"""The probes of a provider that is stopped while it starts."""

import asyncio

from eso_sdk.metrics import Probes
from kubebase.clock import SystemClock
from kubebase.testing.cancelling import leaks


async def test_probes_that_are_stopped_while_they_start_leave_their_port_free() -> None:
    async def serve(port: int) -> None:
        probes = Probes(SystemClock(), lambda: True)
        try:
            await probes.start("127.0.0.1", port)
            await asyncio.Event().wait()
        finally:
            await probes.stop()

    assert await leaks(serve) == []
