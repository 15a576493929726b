"""A scripted provider in a process of its own, to be stopped and killed.

arguments: folder with ca.crt, tls.crt and tls.key, and a port (0: any); prints the port it listens on
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from eso_testkit.operator.providerhost import ProviderHost
from eso_testkit.operator.scriptedprovider import ScriptedProvider
from eso_wire.tls import load_material
from kubebase.clock import SystemClock


async def serve(folder: Path, port: int) -> None:
    provider = ScriptedProvider(SystemClock(), data={"a": b"value-of-a"})
    host = ProviderHost(provider, load_material(folder), port)
    await host.start()
    sys.stdout.write(f"{host.port}\n")
    sys.stdout.flush()
    await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2])))
