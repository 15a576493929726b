"""The server of `/metrics`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from eso_operator.telemetry.access import Admission
from eso_operator.telemetry.settings import MetricsSettings
from eso_operator.telemetry.webserver import Certificate, WebServer
from kubebase.clock import Clock

Exposition = Callable[[], bytes]
Admits = Callable[[str, str], Awaitable[Admission]]


async def anybody(_: str, __: str) -> Admission:
    return Admission.ALLOWED


class MetricsServer:
    """Serves the result of `exposition` to clients that `admits` accepts."""

    def __init__(
        self, settings: MetricsSettings, exposition: Exposition, *, clock: Clock, admits: Admits = anybody
    ) -> None:
        files = Certificate(settings.certificate_folder, settings.certificate_name, settings.key_name, optional=True)
        self._server = WebServer("metrics", settings.listen, files if settings.secure else None, clock)
        self._exposition = exposition
        self._admits = admits

    async def wait_listening(self) -> int:
        """Return the port, after the server has started."""
        return await self._server.wait_listening()

    async def run(self) -> None:
        """Serve until cancelled."""
        app = web.Application()
        app.router.add_get("/metrics", self._answer)
        await self._server.run(app)

    async def _answer(self, request: web.Request) -> web.Response:
        admission = await self._admits(request.headers.get("Authorization", ""), "/metrics")
        if admission is not Admission.ALLOWED:
            return web.Response(status=admission.value, text=f"{admission.name.lower()}\n")
        return web.Response(body=self._exposition(), headers={"Content-Type": CONTENT_TYPE_LATEST})
