"""The HTTP server of the dashboard: headers, and the requests that it refuses.

Host header (on loopback) -> method -> handler -> security headers on every response
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import structlog
from aiohttp import web

from eso_operator.dashboard.pages import FOLDER, Pages
from eso_operator.dashboard.settings import DashboardSettings, is_loopback
from eso_operator.telemetry.webserver import Certificate, WebServer
from kubebase.clock import Clock
from kuberun.controller import place_of

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_MAX_BODY: Final = 64 * 1024
_FORMS: Final = frozenset({"/login", "/logout"})
_TYPES: Final = {"style.css": "text/css", "live.js": "text/javascript", "icon.svg": "image/svg+xml"}
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self';"
        " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Server": "eso",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    # Not "no-referrer": browsers then hide the origin of the form that signs in.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

_log = structlog.get_logger(__name__)


class DashboardServer:
    """Serves the pages. `settings.is_safe` must hold."""

    def __init__(self, settings: DashboardSettings, pages: Pages, clock: Clock) -> None:
        certificate = Certificate(settings.certificate_folder) if settings.authenticated else None
        self._server = WebServer("dashboard", settings.listen, certificate, clock)
        self._settings = settings
        self._pages = pages

    async def wait_listening(self) -> int:
        """Return the port, after the server has started."""
        return await self._server.wait_listening()

    async def run(self) -> None:
        """Serve until cancelled."""
        app = web.Application(client_max_size=_MAX_BODY, middlewares=[self._guarded])
        app.add_routes(self._pages.routes())
        app.router.add_get("/static/{name}", _static)
        await self._server.run(app)

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Reject requests that no reader sends, and add the security headers to every response."""
        try:
            response = self._refusal(request) or await handler(request)
        except web.HTTPException as problem:
            response = web.Response(status=problem.status, text=f"{problem.reason}\n")
        except Exception as error:  # noqa: BLE001 - a defect costs one response; its text may hold anything
            _log.error("dashboard page failed", path=request.path, error=type(error).__name__, place=place_of(error))
            response = web.Response(status=500, text="this page failed; the log of the operator says where\n")
        response.headers.update(_HEADERS)
        response.headers.setdefault("Cache-Control", "no-store")
        return response

    def _refusal(self, request: web.Request) -> web.Response | None:
        # A web site that rebinds its own name to 127.0.0.1 sends that name as Host.
        if not self._settings.authenticated and not is_loopback(_host_of(request)):
            return web.Response(status=421, text="open the dashboard as localhost\n")
        if request.method not in ("GET", "HEAD") and not (request.method == "POST" and request.path in _FORMS):
            return web.Response(status=405, text="the dashboard is read only\n", headers={"Allow": "GET, HEAD"})
        return None


def _host_of(request: web.Request) -> str:
    """Return the Host header without its port and brackets."""
    host = request.host
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if ":" in host else host


async def _static(request: web.Request) -> web.Response:
    """Serve a file of the page. Its address changes with its content, so browsers may keep it."""
    name = request.match_info["name"]
    if name not in _TYPES:
        raise web.HTTPNotFound
    body = (FOLDER / "static" / name).read_bytes()
    headers = {"Cache-Control": "max-age=86400", "Content-Type": f"{_TYPES[name]}; charset=utf-8"}
    return web.Response(body=body, headers=headers)
