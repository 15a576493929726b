"""The interface between typed calls and connections: bytes out, bytes back, with a deadline.

`channel.py` implements it over gRPC; tests and benchmarks use a loop-back. Messages are bytes, because gRPC's own
decoding would log messages that it cannot decode.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Protocol

PACKAGE = "externalsecrets.provider.v2alpha1"

HANDSHAKE = f"/{PACKAGE}.ProviderInfo/Handshake"
VALIDATE = f"/{PACKAGE}.SecretStoreProvider/Validate"
GET = f"/{PACKAGE}.SecretStoreProvider/GetSecrets"
FIND = f"/{PACKAGE}.SecretStoreProvider/FindSecrets"
CHECK = f"/{PACKAGE}.SecretStoreProvider/CheckSecrets"
PUSH = f"/{PACKAGE}.SecretStoreProvider/PushSecrets"
DELETE = f"/{PACKAGE}.SecretStoreProvider/DeleteSecrets"
SUBSCRIBE = f"/{PACKAGE}.SecretStoreProvider/Subscribe"
CLOSE_SESSIONS = f"/{PACKAGE}.SecretStoreProvider/CloseSessions"
VALIDATE_GENERATOR = f"/{PACKAGE}.GeneratorProvider/ValidateGenerator"
GENERATE = f"/{PACKAGE}.GeneratorProvider/Generate"
CLEANUP = f"/{PACKAGE}.GeneratorProvider/Cleanup"


def short_name(method: str) -> str:
    """Return the name of a method for metrics and messages, such as `GetSecrets`."""
    return method.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class CallOptions:
    """Options of one try. Times in seconds; `timeout` is None for streams, which detect silence by heartbeats."""

    timeout: float | None
    connect_timeout: float
    metadata: tuple[tuple[str, str], ...] = field(default=(), repr=False)


class Duplex(Protocol):
    """A bidirectional stream."""

    async def send(self, message: bytes) -> None: ...

    async def receive(self) -> bytes | None:
        """Return the next message; None if the provider ended the stream."""
        ...

    def cancel(self) -> None: ...


class Transport(Protocol):
    """One connection, or several to replicas. Methods raise ProviderError only."""

    async def unary(self, method: str, request: bytes, options: CallOptions) -> bytes: ...

    def stream(self, method: str, request: bytes, options: CallOptions) -> AsyncGenerator[bytes, None]: ...

    async def duplex(self, method: str, options: CallOptions) -> Duplex: ...

    async def close(self) -> None: ...


@dataclass(slots=True, eq=False)
class Lease:
    """The right to use a transport for one call. A stream must end soon after `draining` is set."""

    transport: Transport
    draining: asyncio.Event
