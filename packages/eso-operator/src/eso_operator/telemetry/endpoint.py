"""The server of `/metrics`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from eso_operator.telemetry.access import Admission
from eso_operator.telemetry.settings import MetricsSettings
from eso_operator.telemetry.webserver import Certificate, WebServer
from kubebase.clock import Clock

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
