"""Clients of AWS services: one for each service and region, whoever asks.

    clients = Clients()
    client = await clients.join("secretsmanager", "eu-west-1")
    with signed_by(identity):
        await client.get_secret_value(SecretId="db")
    await clients.leave("secretsmanager", "eu-west-1")

All clients come from one session: service models and endpoint rules are loaded once for the process. A client is bound
to no credentials. Every call is signed by the identity that its task names with `signed_by`; a call without one fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from aiobotocore.config import AioConfig
from aiobotocore.credentials import AioCredentials
from aiobotocore.session import AioSession
from botocore.credentials import ReadOnlyCredentials

from eso_provider_aws.endpoints import override_of

CONNECT_SECONDS: Final = 5.0
READ_SECONDS: Final = 20.0
CONNECTIONS: Final = 64
"""To one service in one region, for all identities."""

_UNUSED: Final = "unused"


class Signer(Protocol):
    """Whom a call is made as."""

    async def get_frozen_credentials(self) -> ReadOnlyCredentials: ...


_SIGNER: ContextVar[Signer] = ContextVar("signer")


@contextmanager
def signed_by(signer: Signer) -> Iterator[None]:
    """Make the calls of this task as `signer`."""
    token = _SIGNER.set(signer)
    try:
        yield
    finally:
        _SIGNER.reset(token)


class _OfTheCall(AioCredentials):  # type: ignore[misc] # the SDK has no types
    """The credentials of whoever makes the call."""

    def __init__(self) -> None:
        super().__init__(_UNUSED, _UNUSED)

    async def get_frozen_credentials(self) -> ReadOnlyCredentials:
        return await _SIGNER.get().get_frozen_credentials()


class _Session(AioSession):  # type: ignore[misc] # the SDK has no types
    """The session of the process. The credentials of its clients are those of each call."""

    async def get_credentials(self) -> AioCredentials:
        return _OfTheCall()

    async def own_credentials(self) -> AioCredentials | None:
        """Those of the process: environment, web identity file, container credentials, instance metadata."""
        found: AioCredentials | None = await super().get_credentials()
        return found

    def create_client(self, service_name: str, *args: Any, **settings: Any) -> Any:
        """Also used by the chain that looks for the credentials of the process."""
        settings["endpoint_url"] = settings.get("endpoint_url") or override_of(service_name)
        given = settings.get("config")
        settings["config"] = _CONFIG if given is None else _CONFIG.merge(given)
        return super().create_client(service_name, *args, **settings)


_CONFIG: Final = AioConfig(
    connect_timeout=CONNECT_SECONDS,
    read_timeout=READ_SECONDS,
    max_pool_connections=CONNECTIONS,
    retries={"total_max_attempts": 1, "mode": "standard"},  # retries are the operator's
    user_agent_extra="external-secrets",
    warm_up_loader_caches=True,
)


@dataclass(slots=True)
class _Opened:
    users: int = 0
    client: Any = None
    resources: AsyncExitStack = field(default_factory=AsyncExitStack)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Clients:
    """The clients of one process, each open as long as somebody uses it."""

    def __init__(self) -> None:
        self._session = _Session()
        self._opened: dict[tuple[str, str], _Opened] = {}

    async def own_credentials(self) -> AioCredentials | None:
        """Find the credentials of the process; None if it has none."""
        return await self._session.own_credentials()

    async def join(self, service: str, region: str) -> Any:
        """The client of a service; every `join` needs a `leave`."""
        opened = self._opened.setdefault((service, region), _Opened())
        opened.users += 1
        try:
            async with opened.lock:
                if opened.client is None:
                    making = self._session.create_client(service, region_name=region)
                    opened.client = await opened.resources.enter_async_context(making)
        except BaseException:
            await self.leave(service, region)
            raise
        return opened.client

    async def leave(self, service: str, region: str) -> None:
        """The last one out closes the connections."""
        opened = self._opened[(service, region)]
        opened.users -= 1
        if opened.users == 0:
            del self._opened[(service, region)]
            await opened.resources.aclose()
