"""Write throughput of kuberun compared with a bare aiohttp loop on the same server, in alternating rounds."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
from pathlib import Path

from load import through_bare_loop, through_client
from report import Row, ratio

from kuberun.testing.localserver import LocalServer

ROUNDS = 5
WRITES = 1500


def measure() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        server = LocalServer(Path(folder))
        try:
            return asyncio.run(_measure(server))
        finally:
            server.stop()


async def _measure(server: LocalServer) -> list[Row]:
    throughput: list[float] = []
    cpu: list[float] = []
    for number in range(ROUNDS):
        bare = await through_bare_loop(server, f"bare-{number}", WRITES)
        ours = await through_client(server, f"ours-{number}", WRITES)
        throughput.append(ours.per_second / bare.per_second)
        cpu.append(ours.cpu_micros / bare.cpu_micros)
    return [
        ratio("kuberun writes per second / bare aiohttp loop", statistics.median(throughput), at_least=0.8),
        ratio("kuberun CPU for one write / bare aiohttp loop", statistics.median(cpu)),
    ]
