"""The standard gRPC health service: serving, and not serving as soon as a shutdown begins."""

from __future__ import annotations

from typing import Any

from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]  # the wheel carries no types
from grpc_health.v1.health import aio as aio_health  # type: ignore[import-untyped]  # the wheel carries no types

from eso_sdk.methods import GENERATORS, INFO, STORES

_NAMES = ("", INFO, STORES, GENERATORS)


class Health:
    """Reports the health of the whole process (the empty name) and of each service."""

    def __init__(self) -> None:
        self._servicer: Any = aio_health.HealthServicer()

    def add_to(self, server: aio.Server) -> None:
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, server)

    async def serving(self) -> None:
        for name in _NAMES:
            await self._servicer.set(name, health_pb2.HealthCheckResponse.SERVING)

    async def draining(self) -> None:
        """Report not serving permanently: a shutdown is never undone."""
        await self._servicer.enter_graceful_shutdown()
