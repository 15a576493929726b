"""LocalKube: the whole server. Puts storage, cluster, access and HTTP together, and takes them apart again.

    async with LocalKube(data_dir=Path("data")) as kube:
        kube.url, kube.kubeconfig_text, kube.cluster

It listens on loopback by default, because the administrator's token gives full access.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import secrets
import socket
import ssl
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import structlog

from kubebase.clock import Clock, SystemClock
from kubebase.opening import opened
from localkube.access.auth import Authenticator
from localkube.access.certificates import Access, Certificates, kubeconfig, private_directory, write_private
from localkube.access.rbac import Policies
from localkube.access.reviews import Reviews
from localkube.access.roles import create_default_roles
from localkube.api import Api
from localkube.cluster import Cluster
from localkube.cluster.tokens import KEY_SET, key_set, openid_configuration
from localkube.discovery import Discovery, Extras, OpenApi, Paths, StaticDocument
from localkube.resources import Resources, Streams
from localkube.storage import StorageError
from localkube.traces import report_defect
from localkube.wire.http import HttpServer
from localkube.wire.negotiation import JSON

log = structlog.get_logger(__name__)

SHUTDOWN_TIMEOUT: Final = 5.0
"""Seconds that running requests have to finish when the server stops."""
_RENEWAL_CHECK: Final = 12 * 3600.0
_HANDSHAKE_SECONDS: Final = 10.0
_BACKLOG: Final = 512
"""Connections that may wait to be accepted."""


class UnsafeAddressError(ValueError):
    """The server was asked to listen on an address that is not loopback."""


class LocalKube:
    """An API server in this process, for as long as the context lasts."""

    def __init__(
        self,
        data_dir: Path | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        clock: Clock | None = None,
        reachable_from_network: bool = False,
    ) -> None:
        if not reachable_from_network and not _is_loopback(host):
            raise UnsafeAddressError(f"{host} is not a loopback address; allow this explicitly if you mean it")
        self._data_dir = data_dir
        self._host = host
        self._port = port
        self._clock = clock or SystemClock()
        self._closing = False
        self._stack = AsyncExitStack()
        self._listener: asyncio.Server
        self.cluster: Cluster
        self.url = ""
        self.kubeconfig_text = ""
        self.certificates: Certificates

    async def __aenter__(self) -> Self:
        await self.listen()
        await self.start_serving()
        return self

    async def listen(self) -> None:
        """Start, but serve nothing yet. Clients can connect from now on; their requests wait until `start_serving`."""
        async with AsyncExitStack() as stack:
            await self._start(stack)
            self._stack = stack.pop_all()

    async def start_serving(self) -> None:
        """Serve requests from now on."""
        await self._listener.start_serving()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing = True
        await self._stack.aclose()

    async def _start(self, stack: AsyncExitStack) -> None:
        directory = self._directory(stack)
        # Locks the directory: until then its keys may be those of a server that runs.
        self.cluster = await stack.enter_async_context(Cluster(self._data_dir, clock=self._clock))
        self.certificates = Certificates(
            directory / "pki", extra_names=() if _is_loopback(self._host) else (self._host,)
        )
        self.certificates.ensure(self._clock.now())
        token = _admin_token(directory / "admin.token")
        streams = Streams()
        http = await self._wire(token, streams)
        context = self.certificates.server_context()
        # Undone in reverse order: new connections are refused, watches end, running requests finish.
        stack.push_async_callback(http.close, SHUTDOWN_TIMEOUT)
        stack.callback(streams.close)
        await self._listen(stack, http, context)
        renewing = asyncio.get_running_loop().create_task(self._renew(context))
        stack.push_async_callback(_cancelled, renewing)
        authority = self.certificates.authority_pem
        self.kubeconfig_text = kubeconfig(Access(self.url, authority, token))

    def _directory(self, stack: AsyncExitStack) -> Path:
        if self._data_dir is not None:
            return private_directory(self._data_dir)
        return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="localkube-")))

    async def _wire(self, token: str, streams: Streams) -> HttpServer:
        cluster = self.cluster
        policies = Policies(cluster.store)
        authenticator = Authenticator(token, cluster.tokens.verify)
        reviews = Reviews(policies, authenticator, cluster.tokens, self._clock)
        for storage_key, handler in reviews.handlers().items():
            cluster.register_handler(storage_key, handler)
        await create_default_roles(cluster)
        discovery = Discovery(cluster.catalog)
        paths = Paths(discovery, OpenApi(cluster.catalog), self._extras())
        api = Api(authenticator, policies, discovery, paths, Resources(cluster, streams, policies, self._clock))
        return HttpServer(api, api.refuse)

    def _extras(self) -> Extras:
        cluster = self.cluster

        async def compact() -> None:
            """Forget all history, so that tests can make a client meet 410."""
            await cluster.store.compact(cluster.store.revision)

        return Extras(
            checks={"ping": lambda: True, "shutdown": lambda: not self._closing},
            documents={
                "/.well-known/openid-configuration": StaticDocument(JSON, lambda: openid_configuration(self.url)),
                "/openid/v1/jwks": StaticDocument(KEY_SET, lambda: key_set(cluster.tokens)),
            },
            actions={"/localkube/compact": compact},
        )

    async def _listen(self, stack: AsyncExitStack, http: HttpServer, context: ssl.SSLContext) -> None:
        starting = asyncio.get_running_loop().create_server(
            http,
            self._host,
            self._port,
            ssl=context,
            ssl_handshake_timeout=_HANDSHAKE_SECONDS,
            backlog=_BACKLOG,
            start_serving=False,
        )
        listener = await opened(starting, asyncio.Server.close)
        stack.callback(listener.close)
        for each in listener.sockets:
            with socket.socket(fileno=os.dup(each.fileno())) as bound:
                bound.listen(_BACKLOG)
        self._listener = listener
        port = listener.sockets[0].getsockname()[1]
        shown = f"[{self._host}]" if ":" in self._host else self._host
        self.url = f"https://{shown}:{port}"

    async def _renew(self, context: ssl.SSLContext) -> None:
        """Replace the serving certificate before it expires, for as long as the server runs."""
        while True:
            await self._clock.sleep(_RENEWAL_CHECK)
            try:
                if self.certificates.ensure(self._clock.now()):
                    self.certificates.reload(context)
                    log.info("serving certificate renewed")
            except (
                OSError,
                StorageError,
            ) as problem:  # a full disk or a damaged file: weeks remain for further attempts
                report_defect(log, "serving certificate not renewed, will try again", problem)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _admin_token(path: Path) -> str:
    """Return the administrator's token of a data directory; it is created on first start."""
    try:
        token = path.read_text().strip()
    except FileNotFoundError:
        token = ""
    if not token:
        token = secrets.token_urlsafe(32)
        write_private(path, token.encode())
    return token


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
