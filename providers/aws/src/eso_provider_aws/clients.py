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
import os
import re
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from aiobotocore.config import AioConfig
from aiobotocore.credentials import AioCredentials
from aiobotocore.session import AioSession
from botocore.credentials import ReadOnlyCredentials
from botocore.exceptions import BotoCoreError
from botocore.loaders import Loader, create_loader
from botocore.session import Session

from eso_provider_aws.errors import no_client
from eso_sdk.errors import invalid_config

# --- The endpoint of a service: the address from the environment, else the one that AWS publishes --------------------
#
# Partitions, FIPS and dual-stack endpoints are botocore's business (`AWS_USE_FIPS_ENDPOINT`,
# `AWS_USE_DUALSTACK_ENDPOINT`), as are its own variables (`AWS_ENDPOINT_URL`, `AWS_ENDPOINT_URL_STS` and so on).


SECRETS_MANAGER: Final = "secretsmanager"
PARAMETER_STORE: Final = "ssm"
CERTIFICATE_MANAGER: Final = "acm"
TAGGING: Final = "resourcegroupstaggingapi"
STS: Final = "sts"
ECR: Final = "ecr"
ECR_PUBLIC: Final = "ecr-public"
SQS: Final = "sqs"

VARIABLES: Final = {
    SECRETS_MANAGER: "AWS_SECRETSMANAGER_ENDPOINT",
    PARAMETER_STORE: "AWS_SSM_ENDPOINT",
    CERTIFICATE_MANAGER: "AWS_ACM_ENDPOINT",
    TAGGING: "AWS_RESOURCE_GROUPS_TAGGING_API_ENDPOINT",
    STS: "AWS_STS_ENDPOINT",
    ECR: "AWS_ECR_ENDPOINT",
    ECR_PUBLIC: "AWS_ECR_PUBLIC_ENDPOINT",
    SQS: "AWS_SQS_ENDPOINT",
}

LOADER: Final[Loader] = create_loader()
"""Models and rules of all sessions of the process: each copy of the rules would take 7 MiB and 40 ms."""


def override_of(service: str) -> str | None:
    """Return the address from the environment for a service; None for the published one."""
    return os.environ.get(VARIABLES.get(service, "")) or None


def check_region(region: str) -> None:
    """Refuse a region that no partition of AWS can have."""
    if not any(pattern.fullmatch(region) for pattern in _regions()):
        raise invalid_config("/region", f'"{region}" is not a region of AWS; write one such as eu-west-1')


def is_published(service: str, region: str) -> bool:
    """Return whether the SDK lists the service in that region. A region newer than the SDK may still have it."""
    rules = _rules()
    return region in rules.get_available_regions(service, rules.get_partition_for_region(region))


@cache
def _regions() -> tuple[re.Pattern[str], ...]:
    """Return the patterns of region names by partition; a small file, read once."""
    return tuple(re.compile(partition["regionRegex"]) for partition in LOADER.load_data("partitions")["partitions"])


@cache
def _rules() -> Session:
    """Return the endpoint rules of botocore. Opening a client has already loaded them, in a thread."""
    session = Session()
    session.register_component("data_loader", LOADER)
    return session


# --- Clients of AWS services -----------------------------------------------------------------------------------------


CONNECT_SECONDS: Final = 5.0
READ_SECONDS: Final = 20.0
CONNECTIONS: Final = 64
"""The maximum number of connections to one service in one region, for all identities."""

_UNUSED: Final = "unused"
_BEGINNINGS: Final = {"json": b"{", "rest-json": b"{", "query": b"<", "rest-xml": b"<"}
_HTML: Final = (b"<html", b"<!doctype")

_SIGNER: ContextVar[ReadOnlyCredentials] = ContextVar("signer")
"""The keys of the call in progress: a client serves all identities, and botocore asks for keys without an argument."""


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
