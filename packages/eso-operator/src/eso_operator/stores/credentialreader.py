"""Reads Secrets, ConfigMaps and tokens of service accounts from the API server.

Tokens are cached for 80 % of their life. Concurrent callers share the next read, so that a burst of binds costs two
reads. A cached Secret, ConfigMap or token is used only if its resourceVersion in the informer is unchanged. So a
credential is never stale, and a token never belongs to a service account that was deleted and created again.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

import msgspec

from eso_api.values import SecretBytes
from eso_wire.values import SecretMap, Token
from kubebase.bounded import BoundedDict
from kubebase.clock import Clock
from kubebase.deadline import Deadline
from kubebase.meta import Kind, Object, ObjectKey, Resource, metadata_of
from kuberun.client import Client
from kuberun.errors import ApiError, NotFound, NotServed

T = TypeVar("T")

MAX_CONTENTS: Final = 512
MAX_CONTENT_BYTES: Final = 64 * 1024
MAX_TOKENS: Final = 2048
TOKEN_SECONDS: Final = 3600
USED_SHARE: Final = 0.8
READ_SECONDS: Final = 10.0


class CredentialReadError(Exception):
    """A Secret, ConfigMap or token could not be read, for example for lack of permission or of a response."""


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a Secret or ConfigMap; for a ServiceAccount, its identity without data."""

    uid: str
    resource_version: str
    data: SecretMap = field(repr=False)
    labels: Mapping[str, str] = field(default_factory=dict, repr=False)
    annotations: Mapping[str, str] = field(default_factory=dict, repr=False)


VersionOf = Callable[[str, ObjectKey], str]
"""Returns the resourceVersion of a Secret, ConfigMap or ServiceAccount; empty if it is not known."""


class _Secret(Object, kw_only=True):
    data: dict[str, bytes] | None = None

    def __repr__(self) -> str:
        return f"Secret({self.key})"


class _ConfigMap(Object, kw_only=True):
    data: dict[str, str] | None = None

    def __repr__(self) -> str:
        return f"ConfigMap({self.key})"


SECRETS: Final = Kind(Resource("", "v1", "secrets", "Secret"), _Secret)
SERVICE_ACCOUNTS: Final = metadata_of(Resource("", "v1", "serviceaccounts", "ServiceAccount"))
CONFIG_MAPS: Final = Kind(Resource("", "v1", "configmaps", "ConfigMap"), _ConfigMap)


def _unknown(_kind: str, _key: ObjectKey) -> str:
    return ""


class CredentialReader:
    """Reads credentials. None means that the object does not exist; CredentialReadError, that a read failed."""

    def __init__(self, client: Client, clock: Clock, version_of: VersionOf = _unknown) -> None:
        self._client = client
        self._clock = clock
        self._version_of = version_of
        self._contents: BoundedDict[Hashable, Content] = BoundedDict(MAX_CONTENTS)
        self._tokens: BoundedDict[Hashable, _Lease] = BoundedDict(MAX_TOKENS)
        self._content_reads: _Shared[Content | None] = _Shared()
        self._token_reads: _Shared[_Lease | None] = _Shared()
        self._api_audiences: frozenset[str] = frozenset()

    async def secret(self, key: ObjectKey) -> Content | None:
        async def read() -> Content | None:
            found = await self._requested(self._client.get(SECRETS, key))
            return None if found is None else _content(found, found.data or {})

        return await self._content("Secret", key, read)

    async def config_map(self, key: ObjectKey) -> Content | None:
        async def read() -> Content | None:
            found = await self._requested(self._client.get(CONFIG_MAPS, key))
            if found is None:
                return None
            return _content(found, {name: text.encode() for name, text in (found.data or {}).items()})

        return await self._content("ConfigMap", key, read)

    async def service_account(self, key: ObjectKey) -> Content | None:
        async def read() -> Content | None:
            found = await self._requested(self._client.get(SERVICE_ACCOUNTS, key))
            return None if found is None else _content(found, {})

        return await self._content("ServiceAccount", key, read)

    async def token(self, account: ObjectKey, audiences: tuple[str, ...], lifetime: int = 0) -> Token | None:
        name = (account, audiences, lifetime)
        version, cached = self._version_of("ServiceAccount", account), self._tokens.use(name)
        if cached is not None and cached.version == version and self._clock.monotonic() < cached.renew_at:
            return cached.token

        async def read() -> _Lease | None:
            return await self._new_token(account, version, audiences, lifetime or TOKEN_SECONDS)

        lease = await self._token_reads.run(name, read)
        if lease is None:
            self._tokens.pop(name, None)
            return None
        self._tokens[name] = lease
        return lease.token

    async def api_audiences(self, account: ObjectKey) -> frozenset[str]:
        """Return the audiences of a token requested without any: the API server's own. Cached, as they never change."""
        if not self._api_audiences:
            token = await self.token(account, ())
            self._api_audiences = frozenset() if token is None else _audiences_in(token)
        return self._api_audiences

    async def _content(
        self, kind: str, key: ObjectKey, read: Callable[[], Awaitable[Content | None]]
    ) -> Content | None:
        known, cached = self._version_of(kind, key), self._contents.use((kind, key))
        if cached is not None and known and cached.resource_version == known:
            return cached
        content = await self._content_reads.run((kind, key), read)
        if content is not None and sum(map(len, content.data.values())) <= MAX_CONTENT_BYTES:
            self._contents[kind, key] = content
        else:
            self._contents.pop((kind, key), None)
        return content

    async def _new_token(
        self, account: ObjectKey, version: str, audiences: tuple[str, ...], lifetime: int
    ) -> _Lease | None:
        requested_at = self._clock.monotonic()
        request = self._client.token_request(account, audiences=audiences, expiration_seconds=lifetime)
        given = await self._requested(request)
        if given is None:
            return None
        # The server may grant less than was requested.
        life = (given.expires - self._clock.now()).total_seconds()
        token = Token(SecretBytes(given.value.encode()), given.expires, audiences)
        return _Lease(token, version, requested_at + life * USED_SHARE)

    async def _requested(self, request: Awaitable[T]) -> T | None:
        """Return the response; None if the object does not exist. Raises CredentialReadError for any other failure."""
        try:
            async with Deadline(self._clock, READ_SECONDS):
                return await request
        except NotServed as error:
            raise CredentialReadError(error.message) from None
        except NotFound:
            return None
        except ApiError as error:
            raise CredentialReadError(error.message) from None
        except TimeoutError:
            raise CredentialReadError(f"the API server did not answer within {READ_SECONDS:g} s") from None


@dataclass(frozen=True, slots=True)
class _Lease:
    token: Token
    version: str
    """The resourceVersion of the service account when the token was requested."""
    renew_at: float


class _AudienceClaim(msgspec.Struct):
    aud: list[str]


def _audiences_in(token: Token) -> frozenset[str]:
    """Return the `aud` claim of a token from the API server."""
    try:
        _, claims, _ = token.token.reveal().split(b".")
        padded = claims + b"=" * (-len(claims) % 4)
        return frozenset(msgspec.json.decode(base64.urlsafe_b64decode(padded), type=_AudienceClaim).aud)
    except (ValueError, msgspec.MsgspecError):
        raise CredentialReadError("the API server's own audiences cannot be read from its tokens") from None


def _content(found: Object, data: dict[str, bytes]) -> Content:
    hidden = {name: SecretBytes(value) for name, value in data.items()}
    meta = found.metadata
    return Content(meta.uid, meta.resource_version, hidden, meta.labels, meta.annotations)


class _SharedRead(Generic[T]):
    """The callers that wait for one name, and the last result with the moment when its read began."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0
        self.result: tuple[int, T] | None = None


class _Shared(Generic[T]):
    """Serialised reads for each name. A read that began after a caller arrived serves that caller too."""

    def __init__(self) -> None:
        self._running: dict[Hashable, _SharedRead[T]] = {}
        self._moment = 0

    async def run(self, name: Hashable, read: Callable[[], Awaitable[T]]) -> T:
        requested_at = self._moment = self._moment + 1
        async with self._joined(name) as shared:
            if shared.result is not None and shared.result[0] > requested_at:
                return shared.result[1]
            began = self._moment = self._moment + 1
            result = await read()
            shared.result = (began, result)
            return result

    @asynccontextmanager
    async def _joined(self, name: Hashable) -> AsyncIterator[_SharedRead[T]]:
        shared = self._running.setdefault(name, _SharedRead())
        shared.users += 1
        try:
            async with shared.lock:
                yield shared
        finally:
            shared.users -= 1
            if not shared.users:
                del self._running[name]
