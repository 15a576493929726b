"""The operator process: `python -m eso_operator`, `eso-operator` and `eso operator`.

It exits with 0 after a signal, and with 1 if the command line, the kubeconfig or a component fails.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence

import structlog
from prometheus_client import disable_created_metrics

from eso_operator.build import this_build
from eso_operator.flags import parse
from eso_operator.settings import FIELD_MANAGER, Settings, SettingsError, issuer_settings
from eso_operator.telemetry import logs
from eso_operator.wiring import wire
from kubebase.clock import SystemClock
from kuberun import config
from kuberun.client import Client
from kuberun.errors import ConfigError
from kuberun.manager import ComponentFailedError
from kuberun.transport import AiohttpTransport, RequestTally

_log = structlog.get_logger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the operator until a signal; return the exit code."""
    try:
        settings = parse(sys.argv[1:] if arguments is None else arguments, os.environ)
    except SettingsError as error:
        sys.stderr.write(f"eso-operator: {error}\n")
        return 1
    logs.configure(settings.logs, SystemClock())
    logs.log_uncaught_errors()
    disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each counter, which no query uses
    return asyncio.run(run(settings))


async def run(settings: Settings) -> int:
    """Connect to the API server and run the manager until a signal; return the exit code."""
    clock, build = SystemClock(), this_build()
    _log.info(
        "the operator starts",
        version=build.version,
        commit=build.commit,
        identity=issuer_settings(settings).client_identity,
    )
    for flag, reason in settings.ignored:
        _log.warning("flag without effect", flag=flag, reason=reason)
    if settings.live.disabled:
        _log.warning("no probes are served: the kubelet cannot restart an operator that stalls", flag="--live-addr")
    try:
        connection = config.load(settings.kubeconfig, context=settings.context, clock=clock)
    except ConfigError as error:
        _log.error("no API server", error=str(error))
        return 1
    tally = RequestTally()
    client = Client(AiohttpTransport(connection, tally=tally), field_manager=FIELD_MANAGER)
    try:
        await wire(settings, client, clock, tally=tally).manager.run_until_signalled()
    except ComponentFailedError as error:
        _log.error("the operator stops", error=str(error))
        return 1
    finally:
        await client.close()
    return 0
