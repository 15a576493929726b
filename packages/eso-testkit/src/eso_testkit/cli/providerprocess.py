"""A provider in a process of its own, at one address over all its lives, with everything it writes in a file.

provider = ProviderProcess(serve_command("fake"), folder, tls=made.server)
await provider.start()
provider.kill()                     # as a node that is lost
await provider.start()              # another instance, same address
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from eso_cli.providers import CLIENT_IDENTITY
from eso_operator.certificates.local import LocalCertificates, maintain
from eso_operator.certificates.settings import IssuerSettings, identity_of
from eso_operator.certificates.state import Lifetimes
from eso_operator.stores.resolved import ServiceKey
from eso_tools.providers import CORE_NAMESPACE
from kubebase.clock import SystemClock
from kubebase.testing.servers import Child, free_ports

START_SECONDS = 60.0
CALL_SECONDS = 10.0


def serve_command(name: str) -> tuple[str, ...]:
    """`eso provider serve NAME`, by this interpreter."""
    return (sys.executable, "-m", "eso_cli.main", "provider", "serve", name)


def local_certificates(folder: Path, name: str = "test", *, namespace: str = CORE_NAMESPACE) -> LocalCertificates:
    """Certificates for a provider on loopback and for the operator as its client, of a new authority."""
    settings = IssuerSettings(core_namespace=namespace)
    identity = identity_of(ServiceKey(namespace, f"provider-{name}"), settings, local=("127.0.0.1",))
    return maintain(folder, identity, SystemClock().now(), Lifetimes())


@dataclass(slots=True)
class ProviderProcess:
    """`client` is the only identity it lets in. Its output is appended to one file over all lives."""

    command: Sequence[str]
    folder: Path
    tls: Path
    client: str = CLIENT_IDENTITY
    port: int = 0
    child: Child | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        return self.folder / "provider.log"

    @property
    def ready_file(self) -> Path:
        return self.folder / "ready.json"

    async def start(self, *flags: str) -> None:
        """Returns once it serves; the flags are for this life only. A thread waits, as the operator may run here."""
        await asyncio.to_thread(self.start_and_wait, *flags)

    def start_and_wait(self, *flags: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.ready_file.unlink(missing_ok=True)
        self.port = self.port or free_ports(1)[0]
        files = ("--tls-dir", str(self.tls), "--ready-file", str(self.ready_file), "--drain", "5")
        listen = ("--listen", self.address, "--metrics", "127.0.0.1:0", "--allowed-client", self.client)
        child = Child([*self.command, *listen, *files, *flags], self.log)
        self.child = child
        child.wait_until(self._is_ready, seconds=START_SECONDS)

    def kill(self) -> None:
        """As `kill -9`."""
        if self.child is not None:
            self.child.kill()

    async def stop(self) -> None:
        """As a rollout does it: asked to end, it drains."""
        if self.child is not None:
            await asyncio.to_thread(self.child.stop)

    async def metrics(self) -> str:
        """Return the response of /metrics."""
        where = json.loads(self.ready_file.read_text())["metrics"]
        timeout = aiohttp.ClientTimeout(total=CALL_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(f"http://{where}/metrics") as answer:
            return await answer.text()

    async def calls(self, method: str) -> int:
        """How many calls of a method began in this life."""
        series = rf'eso_grpc_server_started_total{{method="{method}",provider="[^"]*"}} (\S+)'
        found = re.search(series, await self.metrics())
        return int(float(found[1])) if found else 0

    def _is_ready(self) -> bool:
        try:
            json.loads(self.ready_file.read_text())
        except (FileNotFoundError, ValueError):
            return False
        return True


@asynccontextmanager
async def provider_running(
    command: Sequence[str], folder: Path, *flags: str, made: LocalCertificates | None = None
) -> AsyncIterator[ProviderProcess]:
    """A provider for as long as the block lasts, by default with certificates in the folder."""
    tls = (made or local_certificates(folder / "certificates")).server
    provider = ProviderProcess(command, folder, tls)
    try:
        await provider.start(*flags)
        yield provider
    finally:
        provider.kill()
