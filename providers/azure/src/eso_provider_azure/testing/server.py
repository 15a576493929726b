"""The server of all parts, in a thread: a proxy leads the names of Microsoft to it, so that clients stay unmodified.

with AzureServer.started(folder) as azure, pytest.MonkeyPatch.context() as patched:
    for name, value in azure.environment.items():
        patched.setenv(name, value)          # HTTPS_PROXY, SSL_CERT_FILE, address of instance metadata
    azure.vault("kv-one").contents.put("db", "hunter2")
"""

from __future__ import annotations

import asyncio
import base64
import re
import ssl
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from fnmatch import fnmatch
from html import escape, unescape
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final, Self

import msgspec
from aiohttp import web
from cryptography import x509

from eso_provider_azure.testing.entra import Application, Call, Entra, Registry, Reply
from eso_provider_azure.testing.keyvault import Contents, KeyVault
from kubebase.clock import SystemClock
from kubebase.testing.signer import Signer

# --- A storage queue (`learn.microsoft.com/rest/api/storageservices`, "Operations on messages") ----------------------


RESOURCE: Final = "https://storage.azure.com"
MOST: Final = 32
LIFE: Final = 7 * 86400
HIDDEN: Final = 30
"""Seconds for which a received message is hidden, unless the caller names others."""

_TEXT: Final = re.compile(r"<MessageText>(.*?)</MessageText>", re.DOTALL)


@dataclass(slots=True)
class Message:
    """One message. A receipt is good until the message is received again."""

    text: str
    inserted: int
    visible: int
    receipt: str
    received: int = 0
    id: str = field(default_factory=lambda: str(uuid.uuid4()))


@dataclass(slots=True)
class StorageQueue:
    """One queue of an account."""

    name: str
    entra: Entra
    now: Callable[[], int]
    tenant: str
    is_denied: bool = False
    messages: dict[str, Message] = field(default_factory=dict)
    """Messages that were not deleted, by id."""

    def put(self, vault: str, secret: str) -> None:
        """Add an event of Event Grid, which arrives as Base64."""
        version = uuid.uuid4().hex
        event = {
            "id": str(uuid.uuid4()),
            "topic": f"/subscriptions/s/resourceGroups/g/providers/Microsoft.KeyVault/vaults/{vault}",
            "subject": secret,
            "eventType": "Microsoft.KeyVault.SecretNewVersionCreated",
            "eventTime": datetime.fromtimestamp(self.now(), UTC).isoformat(),
            "data": {
                "Id": f"https://{vault}.vault.azure.net/secrets/{secret}/{version}",
                "VaultName": vault,
                "ObjectType": "Secret",
                "ObjectName": secret,
                "Version": version,
                "NBF": None,
                "EXP": None,
            },
            "dataVersion": "1",
            "metadataVersion": "1",
        }
        self._add(base64.b64encode(msgspec.json.encode(event)).decode(), 0)

    def respond(self, call: Call) -> Reply:
        scheme, _, token = call.headers.get("Authorization", "").partition(" ")
        grant = self.entra.grants.get(token) if scheme == "Bearer" else None
        if grant is None or grant.resource != RESOURCE:
            url = f"{self.entra.url}/{self.tenant}/oauth2/authorize"
            challenge = f"Bearer authorization_uri={url} resource_id={RESOURCE}"
            return _refused(401, "InvalidAuthenticationInfo", **{"WWW-Authenticate": challenge})
        if "x-ms-version" not in call.headers:
            return _refused(400, "MissingRequiredHeader")
        if self.is_denied:
            return _refused(403, "AuthorizationPermissionMismatch")
        _, name, *rest = call.path.split("/")
        if name != self.name:
            return _refused(404, "QueueNotFound")
        match call.method, rest:
            case "GET", [] if call.query.get("comp") == "metadata":
                return Reply(200, b"", {"x-ms-approximate-messages-count": str(len(self.messages))})
            case "GET", ["messages"]:
                return self._received(call)
            case "POST", ["messages"]:
                return self._sent(call)
            case (("PUT" | "DELETE"), ["messages", identity]):
                return self._changed(call, identity)
            case "DELETE", ["messages"]:
                self.messages.clear()
                return Reply(204, b"")
        return _refused(400, "InvalidUri")

    def _add(self, text: str, hidden: int) -> Message:
        made = Message(text, self.now(), self.now() + hidden, _receipt())
        self.messages[made.id] = made
        return made

    def _sent(self, call: Call) -> Reply:
        found = _TEXT.search(call.body.decode())
        if found is None:
            return _refused(400, "InvalidXmlDocument")
        made = self._add(unescape(found[1]), int(call.query.get("visibilitytimeout", "0")))
        return Reply(201, _listed([self._xml(made, "PopReceipt", "TimeNextVisible")]), _XML)

    def _received(self, call: Call) -> Reply:
        count = int(call.query.get("numofmessages", "1"))
        seconds = int(call.query.get("visibilitytimeout", str(HIDDEN)))
        if not 1 <= count <= MOST or not 1 <= seconds <= LIFE:
            return _refused(400, "OutOfRangeQueryParameterValue")
        visible = [each for each in self.messages.values() if each.visible <= self.now()][:count]
        if call.query.get("peekonly") == "true":
            return Reply(200, _listed(self._xml(each, "DequeueCount", "MessageText") for each in visible), _XML)
        for each in visible:
            each.visible, each.receipt, each.received = self.now() + seconds, _receipt(), each.received + 1
        shown = ("PopReceipt", "TimeNextVisible", "DequeueCount", "MessageText")
        return Reply(200, _listed(self._xml(each, *shown) for each in visible), _XML)

    def _changed(self, call: Call, identity: str) -> Reply:
        message = self.messages.get(identity)
        if message is None:
            return _refused(404, "MessageNotFound")
        if message.receipt != call.query.get("popreceipt"):
            return _refused(400, "PopReceiptMismatch")
        if call.method == "DELETE":
            del self.messages[identity]
            return Reply(204, b"")
        message.visible, message.receipt = self.now() + int(call.query["visibilitytimeout"]), _receipt()
        if found := _TEXT.search(call.body.decode()):
            message.text = unescape(found[1])
        headers = {"x-ms-popreceipt": message.receipt, "x-ms-time-next-visible": _date(message.visible)}
        return Reply(204, b"", headers)

    def _xml(self, message: Message, *members: str) -> str:
        parts = {
            "MessageId": message.id,
            "InsertionTime": _date(message.inserted),
            "ExpirationTime": _date(message.inserted + LIFE),
        }
        more = {
            "PopReceipt": message.receipt,
            "TimeNextVisible": _date(message.visible),
            "DequeueCount": str(message.received),
            "MessageText": message.text,
        }
        parts |= {member: more[member] for member in members}
        return "".join(f"<{name}>{escape(text)}</{name}>" for name, text in parts.items())


_XML: Final = {"Content-Type": "application/xml"}


def _receipt() -> str:
    return f"AgAA+{uuid.uuid4().hex}/=="


def _date(seconds: int) -> str:
    return format_datetime(datetime.fromtimestamp(seconds, UTC), usegmt=True)


def _listed(messages: Iterable[str]) -> bytes:
    entries = "".join(f"<QueueMessage>{each}</QueueMessage>" for each in messages)
    return f'<?xml version="1.0" encoding="utf-8"?><QueueMessagesList>{entries}</QueueMessagesList>'.encode()


def _refused(status: int, code: str, **headers: Any) -> Reply:
    body = f'<?xml version="1.0" encoding="utf-8"?><Error><Code>{code}</Code><Message>{code}</Message></Error>'
    return Reply(status, body.encode(), {**_XML, "x-ms-error-code": code, **headers})


# --- The server of all parts, in a thread ----------------------------------------------------------------------------


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
