"""An HTTP server of the operator: plain, or over TLS with a certificate that may be replaced while it runs."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from eso_operator.telemetry.access import Admission
from eso_operator.telemetry.settings import Listener, MetricsSettings
from kubebase.clock import Clock
from kubebase.opening import opened

_RELOAD_SECONDS: Final = 60.0
_DRAIN_SECONDS: Final = 5.0
"""How long requests may go on when the process stops. A pod has 30 s for everything."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Certificate:
    """The files of a certificate. Without a folder the server makes a self-signed one, new in every process.

    With `optional`, it does so as well for a folder that lacks a file, and loads the files once they exist.
    """

    folder: Path | None = None
    certificate_name: str = "tls.crt"
    key_name: str = "tls.key"
    optional: bool = False

    @property
    def missing(self) -> tuple[str, ...]:
        """Return the files that do not exist and need not exist."""
        if self.folder is None or not self.optional:
            return ()
        files = (self.folder / self.certificate_name, self.folder / self.key_name)
        return tuple(str(each) for each in files if not each.exists())

    def load(self, context: ssl.SSLContext) -> None:
        """Load the files, if there is a folder. Raises OSError and ssl.SSLError."""
        if self.folder is not None and not self.missing:
            context.load_cert_chain(self.folder / self.certificate_name, self.folder / self.key_name)


class WebServer:
    """Serves one application; `certificate` is None for plain HTTP. `name` is its name in the log."""

    def __init__(self, name: str, listen: Listener, certificate: Certificate | None, clock: Clock) -> None:
        self._name = name
        self._listen = listen
        self._certificate = certificate
        self._clock = clock
        self._port = listen.port
        self._listening = asyncio.Event()

    async def wait_listening(self) -> int:
        """Return the port, after the server has started."""
        await self._listening.wait()
        return self._port

    async def run(self, app: web.Application) -> None:
        """Serve until cancelled."""
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=_DRAIN_SECONDS)
        await runner.setup()
        try:
            context = self._context()
            site = web.TCPSite(runner, self._listen.host or None, self._port, ssl_context=context)
            await opened(site.start(), lambda _: None)  # `cleanup` closes it
            self._port = runner.addresses[0][1]
            self._listening.set()
            await self._reload(context)
        finally:
            await runner.cleanup()

    def _context(self) -> ssl.SSLContext | None:
        if self._certificate is None:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        missing = self._certificate.missing
        if missing:
            _log.warning(f"{self._name} certificate is self-signed: files are missing", files=missing)
        if missing or self._certificate.folder is None:
            from eso_operator.telemetry import selfsigned  # here, because it loads cryptography

            selfsigned.load(context, f"external-secrets-{self._name}", self._clock)
        self._certificate.load(context)
        return context

    async def _reload(self, context: ssl.SSLContext | None) -> None:
        """Load a replaced certificate until cancelled; the next connection uses it."""
        while True:
            await self._clock.sleep(_RELOAD_SECONDS)
            if context is None or self._certificate is None:
                continue
            try:
                self._certificate.load(context)
            except (OSError, ssl.SSLError) as error:
                _log.warning(f"{self._name} certificate not reloaded", error=type(error).__name__)


Pages = Callable[[], Iterable[bytes]]
Admits = Callable[[str, str], Awaitable[Admission]]


async def anybody(_: str, __: str) -> Admission:
    return Admission.ALLOWED


class MetricsServer:
    """Serves the metrics to clients that `admits` accepts, page by page: other tasks run between two pages."""

    def __init__(self, settings: MetricsSettings, pages: Pages, *, clock: Clock, admits: Admits = anybody) -> None:
        files = Certificate(settings.certificate_folder, settings.certificate_name, settings.key_name, optional=True)
        self._server = WebServer("metrics", settings.listen, files if settings.secure else None, clock)
        self._pages = pages
        self._clock = clock
        self._admits = admits

    async def wait_listening(self) -> int:
        """Return the port, after the server has started."""
        return await self._server.wait_listening()

    async def run(self) -> None:
        """Serve until cancelled."""
        app = web.Application()
        app.router.add_get("/metrics", self._answer)
        await self._server.run(app)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        admission = await self._admits(request.headers.get("Authorization", ""), "/metrics")
        if admission is not Admission.ALLOWED:
            return web.Response(status=admission.value, text=f"{admission.name.lower()}\n")
        response = web.StreamResponse(headers={"Content-Type": CONTENT_TYPE_LATEST})
        await response.prepare(request)
        for page in self._pages():
            if page:  # an empty chunk would end the answer
                await response.write(page)
                await self._clock.sleep(0)
        await response.write_eof()
        return response
