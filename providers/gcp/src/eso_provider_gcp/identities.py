"""Identities at Google: one access token and one channel for each, shared by all stores with the same identity.

joined = await identities.join(source)    a store opens
access = await joined.identity.access()   cached until shortly before it expires
await identities.leave(joined)            a store closes; the last one closes the channels
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

import grpc
from google.cloud.secretmanager_v1 import SecretManagerServiceAsyncClient
from google.cloud.secretmanager_v1.services.secret_manager_service.transports import (
    SecretManagerServiceGrpcAsyncIOTransport,
)
from grpc import aio

from eso_sdk.errors import invalid_config
from eso_sdk.logins import REFUSALS, Pauses, Refusals
from eso_sdk.processwide import shared_table
from eso_sdk.rest import Throttle
from eso_wire.errors import ProviderError
from kubebase.bounded import BoundedDict
from kubebase.clock import Clock

# ---------------------------------------------------------------------------------------------------------------------
# The addresses of Google's services: those that Google publishes, or those that the provider's environment names.
#
# | variable | service |
# |---|---|
# | `GOOGLE_SECRETMANAGER_ENDPOINT` | Secret Manager; `{location}` in it stands for the location of a regional store |
# | `GOOGLE_STS_ENDPOINT` | exchange of tokens of other identity providers |
# | `GOOGLE_SECURETOKEN_ENDPOINT` | exchange of tokens of a GKE cluster |
# | `GOOGLE_IAM_CREDENTIALS_ENDPOINT` | access tokens of impersonated service accounts |
# | `GOOGLE_PUBSUB_ENDPOINT` | Pub/Sub |
# | `GCE_METADATA_HOST` | the metadata server |


SECRET_MANAGER: Final = "GOOGLE_SECRETMANAGER_ENDPOINT"  # noqa: S105 - the name of a variable
STS: Final = "GOOGLE_STS_ENDPOINT"
SECURE_TOKEN: Final = "GOOGLE_SECURETOKEN_ENDPOINT"  # noqa: S105 - the name of a variable
IAM_CREDENTIALS: Final = "GOOGLE_IAM_CREDENTIALS_ENDPOINT"
PUBSUB: Final = "GOOGLE_PUBSUB_ENDPOINT"
METADATA: Final = "GCE_METADATA_HOST"

_PUBLISHED: Final = {
    STS: "https://sts.googleapis.com",
    SECURE_TOKEN: "https://securetoken.googleapis.com",
    PUBSUB: "https://pubsub.googleapis.com",
    IAM_CREDENTIALS: "https://iamcredentials.googleapis.com",
}


@dataclass(frozen=True, slots=True)
class Target:
    """Where a gRPC channel leads."""

    address: str
    secure: bool = True


def base_of(variable: str) -> str:
    """Return the URL of a service, without a slash at its end."""
    return (os.environ.get(variable) or _PUBLISHED[variable]).rstrip("/")


def metadata_url(path: str) -> str:
    return f"http://{os.environ.get(METADATA) or 'metadata.google.internal'}/computeMetadata/v1/{path}"


def secret_manager(location: str) -> Target:
    """Return the address of Secret Manager, or of its regional endpoint."""
    if named := os.environ.get(SECRET_MANAGER, ""):
        parts = urlsplit(named.replace("{location}", location))
        if not parts.netloc or parts.scheme not in ("http", "https"):
            raise invalid_config("/", f"{SECRET_MANAGER} of the provider is not a http or https URL; correct it")
        port = "" if parts.port else ":443" if parts.scheme == "https" else ":80"
        return Target(parts.netloc + port, secure=parts.scheme == "https")
    host = f"secretmanager.{location}.rep.googleapis.com" if location else "secretmanager.googleapis.com"
    return Target(f"{host}:443")


# --- Identities at Google --------------------------------------------------------------------------------------------


_OPTIONS: Final = (
    ("grpc.max_receive_message_length", 32 * 1024 * 1024),
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.primary_user_agent", "external-secrets"),
    ("grpc.use_local_subchannel_pool", 1),  # each identity has its own connection
)


@dataclass(frozen=True, slots=True)
class Line:
    """An open channel and its client."""

    channel: aio.Channel
    client: SecretManagerServiceAsyncClient


def opened(target: Target) -> Line:
    """Open a channel. Plain text is only for an address that the provider's environment names with http."""
    if target.secure:
        channel = aio.secure_channel(target.address, grpc.ssl_channel_credentials(), options=_OPTIONS)
    else:
        channel = aio.insecure_channel(target.address, options=_OPTIONS)
    transport = SecretManagerServiceGrpcAsyncIOTransport(channel=channel)
    return Line(channel, SecretManagerServiceAsyncClient(transport=transport))


MAX_IDENTITIES: Final = 1024
EARLY_SECONDS: Final = 225.0
"""Seconds before its expiry after which a token is renewed."""

_REFUSED: Final = Pauses()
_FAILED: Final = Pauses(first=1.0, longest=30.0)


@dataclass(frozen=True, slots=True)
class Access:
    """An access token."""

    token: str = field(repr=False)
    expires: datetime
    quota_project: str = ""
    """The project that pays for the calls of a user's own credentials."""


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """How a store obtains access tokens. Equal keys mean the same identity."""

    key: Hashable
    fetch: Callable[[], Awaitable[Access]] = field(repr=False)


class Identity:
    """One identity, with the token and channels of all stores that have it."""

    def __init__(self, key: Hashable, clock: Clock, refusals: Refusals) -> None:
        self.key = key
        self._proof = hashlib.sha256(repr(key).encode()).digest()
        self._clock = clock
        self._refusals = refusals
        self._sources: list[Source] = []
        self._lines: dict[Target, Line] = {}
        self._access: Access | None = None
        self._renewing = asyncio.Lock()

    def __repr__(self) -> str:
        return "<Identity>"

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        raise TypeError("identities hold tokens and are not serialised")

    async def access(self, *, at_least: float = EARLY_SECONDS) -> Access:
        """Return a token that is valid for so many seconds, or the newest one that Google issues."""
        if (known := self._valid(at_least)) is not None:
            return known
        async with self._renewing:
            if (known := self._valid(at_least)) is not None:
                return known
            self._access = await self._fetched()
            return self._access

    def discard(self, rejected: Access) -> None:
        """Drop a token that Google rejected before it expired."""
        if self._access is rejected:
            self._access = None

    def client(self, target: Target) -> SecretManagerServiceAsyncClient:
        """Return the client of a service address; its channel stays open while a store has this identity."""
        if target not in self._lines:
            self._lines[target] = opened(target)
        return self._lines[target].client

    def add(self, source: Source) -> None:
        self._sources.append(source)

    async def remove(self, source: Source) -> None:
        """Forget the source of a store that closes; the last one closes the channels. The token stays cached."""
        self._sources.remove(source)
        if self._sources:
            return
        lines, self._lines = self._lines, {}
        for line in lines.values():
            await line.channel.close()

    def _valid(self, at_least: float) -> Access | None:
        access = self._access
        enough = access is not None and access.expires - self._clock.now() > timedelta(seconds=at_least)
        return access if enough else None

    async def _fetched(self) -> Access:
        """Obtain a token. While the pause after a refused attempt lasts, its error is raised again without a call."""
        self._refusals.check(self._proof, self._clock.monotonic())
        try:
            access = await self._sources[-1].fetch()
        except ProviderError as failed:
            pauses = _REFUSED if failed.reason in REFUSALS else _FAILED
            self._refusals.add(self._proof, failed, pauses, self._clock.monotonic())
            if (known := self._valid(0.0)) is not None:
                return known
            raise
        self._refusals.forget(self._proof)
        return access


@dataclass(frozen=True, slots=True)
class Joined:
    """The part of one store in an identity."""

    identity: Identity
    source: Source


class Runtime:
    """The state that all sessions of a provider process share."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._refusals = Refusals()
        self._identities: WeakValueDictionary[Hashable, Identity] = WeakValueDictionary()
        self._recent: BoundedDict[Hashable, Identity] = BoundedDict(MAX_IDENTITIES)
        """Keeps tokens while no store is open: stores close when they were idle for minutes."""
        self._throttles: WeakValueDictionary[Hashable, Throttle] = WeakValueDictionary()
        self.feeds: dict[Hashable, Any] = {}
        """The change feeds of all stores, while they are in use."""
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def join(self, source: Source) -> Joined:
        """Return the identity of a source; every `join` needs a `leave`."""
        identity = self._identities.get(source.key)
        if identity is None:
            self._identities[source.key] = identity = Identity(source.key, self.clock, self._refusals)
        self._recent[source.key] = identity
        identity.add(source)
        return Joined(identity, source)

    async def leave(self, joined: Joined) -> None:
        await joined.identity.remove(joined.source)

    def throttle(self, identity: Identity, project: str, target: Target) -> Throttle:
        """Return the rate limiter of an identity in a project: one tenant's limits do not stop another."""
        key = (identity.key, project, target)
        found = self._throttles.get(key)
        if found is None:
            self._throttles[key] = found = Throttle(self.clock, f'Secret Manager of project "{project}"')
        return found

    def lock(self, name: str) -> asyncio.Lock:
        """Return the lock of the writes to one secret."""
        found = self._locks.get(name)
        if found is None:
            self._locks[name] = found = asyncio.Lock()
        return found


def runtime_of(clock: Clock) -> Runtime:
    """Return the runtime that all sessions of the process share."""
    return shared_table("gcp.runtime", clock, lambda: Runtime(clock))
