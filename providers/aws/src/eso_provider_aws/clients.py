"""Clients of AWS services: one for each service and region, shared by all identities.

    clients = Clients()
    client = await clients.join("secretsmanager", "eu-west-1")
    with signed_by(keys):
        await client.get_secret_value(SecretId="db")
    await clients.leave("secretsmanager", "eu-west-1")

Service models and endpoint rules are loaded once for the process. A client is bound to no credentials. Every call is
signed with the keys that its task names with `signed_by`; a call without them fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from aiobotocore.config import AioConfig
from aiobotocore.credentials import AioCredentials
from aiobotocore.session import AioSession
from botocore.credentials import ReadOnlyCredentials
from botocore.exceptions import BotoCoreError

from eso_provider_aws.endpoints import LOADER, VARIABLES, override_of
from eso_provider_aws.errors import no_client

CONNECT_SECONDS: Final = 5.0
READ_SECONDS: Final = 20.0
CONNECTIONS: Final = 64
"""The maximum number of connections to one service in one region, for all identities."""

_UNUSED: Final = "unused"
_BEGINNINGS: Final = {"json": b"{", "rest-json": b"{", "query": b"<", "rest-xml": b"<"}
_HTML: Final = (b"<html", b"<!doctype")

_SIGNER: ContextVar[ReadOnlyCredentials] = ContextVar("signer")


@contextmanager
def signed_by(keys: ReadOnlyCredentials) -> Iterator[None]:
    """Sign the calls of this task with these keys."""
    token = _SIGNER.set(keys)
    try:
        yield
    finally:
        _SIGNER.reset(token)


class _OfTheCall(AioCredentials):  # type: ignore[misc] # the SDK has no types
    """The credentials of the calling task."""

    def __init__(self) -> None:
        super().__init__(_UNUSED, _UNUSED)

    async def get_frozen_credentials(self) -> ReadOnlyCredentials:
        return _SIGNER.get()


_CONFIG: Final = AioConfig(
    connect_timeout=CONNECT_SECONDS,
    read_timeout=READ_SECONDS,
    max_pool_connections=CONNECTIONS,
    retries={"total_max_attempts": 1, "mode": "standard"},  # the operator retries
    user_agent_extra="external-secrets",
    warm_up_loader_caches=True,
)


class OwnSession(AioSession):  # type: ignore[misc] # the SDK has no types
    """Finds the credentials of the process: environment, web identity file, container credentials, instance metadata.

    The chain makes clients too: they need our addresses and time limits.
    """

    def __init__(self) -> None:
        super().__init__()
        self.register_component("data_loader", LOADER)

    def create_client(self, service_name: str, *args: Any, **settings: Any) -> Any:
        settings["endpoint_url"] = settings.get("endpoint_url") or override_of(service_name)
        given = settings.get("config")
        settings["config"] = _CONFIG if given is None else _CONFIG.merge(given)
        return super().create_client(service_name, *args, **settings)


class _Session(OwnSession):
    """The session of all clients. Their credentials are those of each call."""

    async def get_credentials(self) -> AioCredentials:
        return _OfTheCall()


@dataclass(slots=True)
class _Opened:
    users: int = 0
    client: Any = None
    resources: AsyncExitStack = field(default_factory=AsyncExitStack)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Clients:
    """The clients of one process; each stays open while it is in use."""

    def __init__(self) -> None:
        self._session = _Session()
        self._opened: dict[tuple[str, str], _Opened] = {}

    async def join(self, service: str, region: str) -> Any:
        """Return the client of a service; every `join` needs a `leave`."""
        opened = self._opened.setdefault((service, region), _Opened())
        opened.users += 1
        try:
            async with opened.lock:
                if opened.client is None:
                    making = self._session.create_client(service, region_name=region)
                    opened.client = await opened.resources.enter_async_context(making)
                    opened.client.meta.events.register("before-parse", _check_response)
        except BaseException as failed:
            await self.leave(service, region)
            if isinstance(failed, BotoCoreError | ValueError):
                raise no_client(service, region, VARIABLES.get(service, "")) from None
            raise
        return opened.client

    async def leave(self, service: str, region: str) -> None:
        """Release a client; the last user closes its connections."""
        opened = self._opened[(service, region)]
        opened.users -= 1
        if opened.users == 0:
            del self._opened[(service, region)]
            await opened.resources.aclose()


def _check_response(operation_model: Any, response_dict: dict[str, Any], **_: Any) -> None:
    """Raise if a proxy responds instead of the service: the SDK would read the page as an empty response."""
    body: Any = response_dict["body"]
    if response_dict["status_code"] >= 300 or not isinstance(body, bytes) or not body:
        return
    begins = body.lstrip()[:9].lower()
    expected = _BEGINNINGS.get(operation_model.service_model.resolved_protocol, b"")
    if not begins.startswith(expected) or begins.startswith(_HTML):
        raise ValueError("not a response of the service")
