"""What carries a call: bytes out, bytes back, within a time. The seam between typed calls and sockets.

`channel.py` is the real one; tests and benchmarks put a loop-back one here. Messages cross it as bytes, because gRPC's
own decoding would log what it cannot read.
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
VALIDATE_GENERATOR = f"/{PACKAGE}.GeneratorProvider/ValidateGenerator"
GENERATE = f"/{PACKAGE}.GeneratorProvider/Generate"
CLEANUP = f"/{PACKAGE}.GeneratorProvider/Cleanup"


def short_name(method: str) -> str:
    """`GetSecrets`: for metrics and messages."""
    return method.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class CallOptions:
    """What goes with one try of a call. Times in seconds; no `timeout` is for streams that watch their own silence."""

    timeout: float | None
    connect_timeout: float
    metadata: tuple[tuple[str, str], ...] = field(default=(), repr=False)


class Duplex(Protocol):
    """A stream both ways."""

    async def send(self, message: bytes) -> None: ...

    async def receive(self) -> bytes | None:
        """The next message; None when the other side has ended the stream."""
        ...

    def cancel(self) -> None: ...


class Transport(Protocol):
    """One connection, or several to replicas. Every method raises ProviderError and nothing else."""

    async def unary(self, method: str, request: bytes, options: CallOptions) -> bytes: ...

    def stream(self, method: str, request: bytes, options: CallOptions) -> AsyncGenerator[bytes, None]: ...

    async def duplex(self, method: str, options: CallOptions) -> Duplex: ...

    async def close(self) -> None: ...


@dataclass(slots=True, eq=False)
class Lease:
    """The right to use a transport for one call. A stream has to end soon after `draining` is set."""

    transport: Transport
    draining: asyncio.Event
