"""The process of the dashboard: `eso dashboard`, and `eso-dashboard` in the image of the operator.

    flags -> parse -> Settings -> Dashboard: follow the objects, serve the pages

It lists and watches our kinds, never a Secret, and exits with 0 after a signal, with 1 if it cannot start.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Sequence

import structlog

from eso_operator.settings import SettingsError
from eso_operator.telemetry import logs
from eso_operator.telemetry.webserver import AccessReviews, Certificate
from eso_tools.dashboard.calls import OperatorMetrics
from eso_tools.dashboard.pages import DashboardServer, Pages
from eso_tools.dashboard.settings import Settings, parse
from eso_tools.dashboard.viewers import AnonymousViewer, Authorizer
from eso_tools.status.following import FollowedObjects
from kubebase.clock import Clock, SystemClock
from kuberun import config
from kuberun.client import Client
from kuberun.connection import Connection
from kuberun.errors import ConfigError
from kuberun.transport import AiohttpTransport

_log = structlog.get_logger(__name__)


class Dashboard:
    """The dashboard of one cluster."""

    def __init__(self, settings: Settings, connection: Connection, clock: Clock) -> None:
        self._client = client = Client(AiohttpTransport(connection))
        self._objects = FollowedObjects(client, clock, settings.namespace, core_namespace=settings.core_namespace)
        authorizer = Authorizer(AccessReviews(client), connection, clock) if settings.authenticated else None
        anonymous = None if settings.authenticated else AnonymousViewer(client)
        metrics = OperatorMetrics(settings.metrics, clock)
        pages = Pages(self._objects, metrics, clock, anonymous=anonymous, authorizer=authorizer)
        certificate = Certificate(settings.certificate_folder) if settings.authenticated else None
        self._server = DashboardServer(settings.listen, certificate, pages, clock)

    async def wait_listening(self) -> int:
        """Return the port, after the server has started."""
        return await self._server.wait_listening()

    async def run(self) -> None:
        """Follow the objects and serve the pages until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._objects.run())
                group.create_task(self._server.run())
        finally:
            await self._client.close()


def main(arguments: Sequence[str] | None = None, announce: Callable[[str], None] = lambda _: None) -> int:
    """Run the dashboard until a signal; return the exit code. `announce` gets the URL once it is served."""
    try:
        settings = parse(sys.argv[1:] if arguments is None else arguments)
    except SettingsError as error:
        sys.stderr.write(f"eso dashboard: {error}\n")
        return 1
    if settings.listen.disabled:
        sys.stderr.write("eso dashboard: --dashboard-addr: give an address, for example 127.0.0.1:8090\n")
        return 1
    logs.configure(settings.logs, SystemClock())
    logs.log_uncaught_errors()
    try:
        connection = config.load(settings.kubeconfig, context=settings.context)
    except ConfigError as error:
        _log.error("no API server", error=str(error))
        return 1
    return asyncio.run(_run(settings, connection, announce))


async def _run(settings: Settings, connection: Connection, announce: Callable[[str], None]) -> int:
    dashboard = Dashboard(settings, connection, SystemClock())
    running = asyncio.ensure_future(dashboard.run())
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    listening = asyncio.ensure_future(dashboard.wait_listening())
    await asyncio.wait([running, listening], return_when=asyncio.FIRST_COMPLETED)
    if listening.done():
        _log.info("the dashboard serves", url=settings.url)
        announce(settings.url)
    listening.cancel()
    try:
        await running
    except asyncio.CancelledError:
        return 0
    except ExceptionGroup as failures:
        failure = failures.exceptions[0]
        if not isinstance(failure, OSError):
            raise
        _log.error("the dashboard stops", error=failure.strerror)
    return 1


if __name__ == "__main__":
    sys.exit(main())
