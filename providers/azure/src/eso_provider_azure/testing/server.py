"""The server of all parts, in a thread: a proxy leads the names of Microsoft to it, so that clients stay unmodified.

with AzureServer.started(folder) as azure, pytest.MonkeyPatch.context() as patched:
    for name, value in azure.environment.items():
        patched.setenv(name, value)          # HTTPS_PROXY, SSL_CERT_FILE, address of instance metadata
    azure.vault("kv-one").contents.put("db", "hunter2")
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final, Self

from aiohttp import web
from cryptography import x509

from eso_provider_azure.testing.entra import Application, Entra
from eso_provider_azure.testing.keyvault import KeyVault
from eso_provider_azure.testing.messages import Call, Reply
from eso_provider_azure.testing.objects import Contents
from eso_provider_azure.testing.queue import StorageQueue
from eso_provider_azure.testing.registry import Registry
from kubebase.clock import SystemClock
from kubebase.testing.signer import Signer

TENANT: Final = "11111111-1111-1111-1111-111111111111"
CLIENT: Final = "22222222-2222-2222-2222-222222222222"
SECRET: Final = "client-secret-of-the-tests"  # noqa: S105 - of the test server alone
NAMES: Final = (
    "*.vault.azure.net",
    "*.vault.usgovcloudapi.net",
    "*.vault.azure.cn",
    "*.vault.microsoftazure.de",
    "*.vault.stack.example",
    "login.microsoftonline.com",
    "login.microsoftonline.us",
    "login.chinacloudapi.cn",
    "login.microsoftonline.de",
    "login.stack.example",
    "*.azurecr.io",
    "*.queue.core.windows.net",
)


@dataclass(slots=True)
class AzureServer:
    """Everything of Azure that the provider knows."""

    folder: Path
    entra: Entra = field(default_factory=Entra)
    vaults: dict[str, KeyVault] = field(default_factory=dict)
    registries: dict[str, Registry] = field(default_factory=dict)
    queues: dict[str, StorageQueue] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    scripted: list[tuple[str, Reply]] = field(default_factory=list)
    """Answers for the next calls whose `METHOD HOST PATH` fits a pattern."""
    delay: float = 0.0
    clock_skew: int = 0
    ports: dict[str, int] = field(default_factory=dict)
    _stop: Callable[[], object] = field(default=lambda: None, repr=False)

    @classmethod
    @contextmanager
    def started(cls, folder: Path) -> Iterator[Self]:
        """Run the server in a thread of its own."""
        server = cls(folder)
        server.entra.applications[TENANT, CLIENT] = Application(SECRET)
        server._write_certificates()
        ready = Event()
        thread = Thread(target=lambda: asyncio.run(server._serve(ready)), daemon=True)
        thread.start()
        ready.wait()
        try:
            yield server
        finally:
            server._stop()
            thread.join()

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables that lead a client here."""
        return {
            "HTTPS_PROXY": f"http://127.0.0.1:{self.ports['proxy']}",
            "NO_PROXY": "127.0.0.1,localhost",
            "SSL_CERT_FILE": str(self.folder / "ca.pem"),
            "AZURE_POD_IDENTITY_AUTHORITY_HOST": f"http://127.0.0.1:{self.ports['metadata']}",
        }

    def vault(self, name: str, domain: str = "vault.azure.net") -> KeyVault:
        """Return a vault; it is created at first use."""
        host = f"{name}.{domain}"
        if host not in self.vaults:
            self.vaults[host] = KeyVault(Contents(host, self.seconds), self.entra, TENANT)
        return self.vaults[host]

    def registry(self, name: str) -> Registry:
        """Return a registry; it is created at first use."""
        host = f"{name}.azurecr.io"
        return self.registries.setdefault(host, Registry(host, self.entra, pullers={CLIENT}))

    def queue(self, account: str, name: str) -> StorageQueue:
        """Return a storage queue; it is created at first use."""
        host = f"{account}.queue.core.windows.net"
        return self.queues.setdefault(host, StorageQueue(name, self.entra, self.seconds, TENANT))

    def seconds(self) -> int:
        return int(SystemClock().now().timestamp()) + self.clock_skew

    def requests(self, pattern: str) -> list[Call]:
        """Return the calls so far whose `METHOD HOST PATH` fits a pattern."""
        return [call for call in self.calls if fnmatch(_line(call), pattern)]

    def script(self, pattern: str, *replies: Reply) -> None:
        """Respond to the next calls that fit the pattern with these replies."""
        self.scripted += [(pattern, reply) for reply in replies]

    # --- inside ------------------------------------------------------------------------------------------------------

    def _write_certificates(self) -> None:
        authority = Signer.make()
        leaf = authority.sign("azure", [x509.DNSName(name) for name in NAMES])
        (self.folder / "ca.pem").write_bytes(authority.pem)
        (self.folder / "leaf.pem").write_bytes(leaf.certificate + leaf.key)

    async def _serve(self, ready: Event) -> None:
        stopped, loop = asyncio.Event(), asyncio.get_running_loop()
        self._stop = lambda: loop.call_soon_threadsafe(stopped.set)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(self.folder / "leaf.pem")
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._handled)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        for name, context in (("tls", tls), ("metadata", None)):
            site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
            await site.start()
            self.ports[name] = _port(site._server)  # noqa: SLF001 - aiohttp has no other API for the port
        proxy = await asyncio.start_server(self._proxied, "127.0.0.1", 0)
        self.ports["proxy"] = _port(proxy)
        ready.set()
        await stopped.wait()
        proxy.close()
        await runner.cleanup()

    async def _handled(self, request: web.Request) -> web.Response:
        call = Call(
            request.host, request.method, request.path, dict(request.query), request.headers, await request.read()
        )
        self.calls.append(call)
        if self.delay:
            await asyncio.sleep(self.delay)  # noqa: TID251 - the latency of a test
        reply = self._scripted(call) or self._reply(call)
        kind = "text/html" if isinstance(reply.body, bytes) else "application/json"
        return web.Response(status=reply.status, body=reply.raw(), headers={"Content-Type": kind, **reply.headers})

    def _scripted(self, call: Call) -> Reply | None:
        for number, (pattern, reply) in enumerate(self.scripted):
            if fnmatch(_line(call), pattern):
                del self.scripted[number]
                return reply
        return None

    def _reply(self, call: Call) -> Reply:
        if call.path == "/metadata/identity/oauth2/token":
            return self.entra.metadata(call)
        if call.host in self.vaults:
            return self.vaults[call.host].respond(call)
        if call.host in self.registries:
            return self.registries[call.host].respond(call)
        if call.host in self.queues:
            return self.queues[call.host].respond(call)
        if call.host.startswith("login."):
            return self.entra.respond(call)
        return Reply(502, b"<html>no such host</html>")

    async def _proxied(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve CONNECT for any name with a connection to this server."""
        with suppress(asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
        if reader.at_eof():
            writer.close()
            return
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        inside, upstream = await asyncio.open_connection("127.0.0.1", self.ports["tls"])
        try:
            await asyncio.gather(_piped(reader, upstream), _piped(inside, writer))
        except asyncio.CancelledError:
            return  # the server stops
        finally:
            upstream.close()
            writer.close()


async def _piped(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError, RuntimeError):
        while chunk := await source.read(65536):
            target.write(chunk)
            await target.drain()
    target.close()


def _port(server: Any) -> int:
    found: int = server.sockets[0].getsockname()[1]
    return found


def _line(call: Call) -> str:
    return f"{call.method} {call.host} {call.path}"
