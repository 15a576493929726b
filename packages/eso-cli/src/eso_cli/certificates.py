"""`eso provider certificates NAME`: the certificates that the operator issues for a provider, as files on this machine.

On a cluster they are a mounted Secret. `eso up` writes them for the providers that it starts. This command does so for
a provider that another supervisor starts, such as a container engine or systemd.
"""

from __future__ import annotations

import asyncio
import re
import signal
from pathlib import Path

from eso_cli.connecting import load
from eso_cli.providers import keep_certificates, service_of
from eso_cli.terminal import echo
from kubebase.clock import SystemClock
from kuberun.client import Client
from kuberun.errors import KubeError
from kuberun.transport import AiohttpTransport


async def keep(name: str, folder: Path, kubeconfig: Path | None) -> int:
    """Write the certificates, now and whenever they change, until a signal arrives; return the exit code."""
    if re.fullmatch(r"[a-z][a-z0-9-]*", name) is None:
        return _refuse(f'"{name}" is not a name of a provider; write lower-case letters, digits and dashes')
    try:
        client = Client(AiohttpTransport(load(kubeconfig, command="provider certificates")))
    except KubeError as problem:
        return _refuse(str(problem))
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    _print(f"keeping the certificates of Service {service_of(name)} in {folder}")
    try:
        async with asyncio.TaskGroup() as tasks:
            keeping = tasks.create_task(keep_certificates(name, folder, client, SystemClock(), warn=_print))
            await stop.wait()
            keeping.cancel()
    finally:
        await client.close()
    return 0


def _refuse(why: str) -> int:
    _print(why)
    return 1


def _print(text: str) -> None:
    echo(f"eso provider certificates: {text}", err=True)
