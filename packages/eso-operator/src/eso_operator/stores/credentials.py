"""Credentials: which objects a resolved store is bound to, and how they are read from the API server.

    ResolvedStore -> reads_of (which) -> bind (read them) -> BoundStore

The operator reads every Secret, ConfigMap and token itself; `credentialrefs.py` decides which ones. `KubeCredentials`
reads them. Tokens are cached for 80 % of their life. Concurrent callers share the next read, so that a burst of binds
costs two reads. A cached Secret, ConfigMap or token is used only if its resourceVersion in the informer is unchanged.
So a credential is never stale, and a token never belongs to a service account that was deleted and created again.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, Protocol, TypeVar, assert_never

import msgspec

from eso_api.externalsecret import SECRET_TYPE_LABEL
from eso_api.values import SecretBytes
from eso_operator.stores.credentialrefs import (
    AccountToken,
    ConfigMapKey,
    FromAnnotation,
    Read,
    SecretKey,
    WholeSecret,
    reads_of,
    referent,
)
from eso_operator.stores.resolved import BoundStore, Reason, ReferenceRule, ResolutionError, ResolvedStore
from eso_wire.errors import RetryClass
from eso_wire.kinds import ConfigDelivery, ObjectRef
from eso_wire.values import Config, Credential, SecretMap, Token
from kubebase.bounded import BoundedDict
from kubebase.clock import Clock
from kubebase.deadline import Deadline
from kubebase.hints import with_hint
from kubebase.meta import Kind, Object, ObjectKey, Resource, metadata_of
from kuberun.client import Client
from kuberun.errors import ApiError, NotFound, NotServed

# Identities are compared within this process only. The random key keeps them from revealing credentials.
_IDENTITY_KEY: Final = secrets.token_bytes(32)


class UnreadableError(Exception):
    """A Secret, ConfigMap or token could not be read, for example for lack of permission or of a response."""


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a Secret or ConfigMap; for a ServiceAccount, its identity without data."""

    uid: str
    resource_version: str
    data: SecretMap = field(repr=False)
    labels: Mapping[str, str] = field(default_factory=dict, repr=False)
    annotations: Mapping[str, str] = field(default_factory=dict, repr=False)


class CredentialReader(Protocol):
    """Reader of credentials. None means that the object does not exist; `UnreadableError`, that a read failed."""

    async def secret(self, key: ObjectKey) -> Content | None: ...

    async def config_map(self, key: ObjectKey) -> Content | None: ...

    async def service_account(self, key: ObjectKey) -> Content | None: ...

    async def token(self, account: ObjectKey, audiences: tuple[str, ...], lifetime: int = 0) -> Token | None: ...

    async def api_audiences(self, account: ObjectKey) -> frozenset[str]:
        """Return the audiences of the API server, read from a token of this account."""
        ...


async def bind(resolved: ResolvedStore, reader: CredentialReader) -> BoundStore:
    """Read the objects that the configuration refers to, and the token for calls if the store requires one."""
    reading = _Reading(resolved, reader)
    credentials = [Credential(read.pointer, await reading.value(read)) for read in reads_of(resolved)]
    token = await reading.call_token()
    resolved = _without_caller_namespace(resolved, {key.namespace for _, key in reading.sources})
    config = Config(
        ref=resolved.config.ref,
        kind=resolved.config.kind,
        spec_json=SecretBytes(resolved.config.spec) if resolved.config.spec is not None else None,
        credentials=tuple(credentials),
    )
    return BoundStore(
        resolved=resolved,
        config=config,
        identity=_identity(resolved, reading.versions),
        sources=tuple(reading.sources.values()),
        token=token,
    )


@dataclass(frozen=True, slots=True)
class Followed:
    """The credentials that the metadata of a push refers to, and the objects they were read from."""

    credentials: tuple[Credential, ...] = ()
    sources: tuple[ObjectRef, ...] = ()


async def follow_metadata(
    resolved: ResolvedStore, metadata: Mapping[str, Any] | None, reader: CredentialReader
) -> Followed:
    """Read the objects that the metadata of a push refers to, only from the namespace of the PushSecret."""
    paths = resolved.config.metadata_references
    if not paths or metadata is None:
        return Followed()
    config = replace(
        resolved.config,
        ref=resolved.caller,
        delivery=ConfigDelivery.INLINE,
        spec=msgspec.json.encode(metadata),
        credentials=paths,
        rule=ReferenceRule.OWN_NAMESPACE,
        v1_key="",
    )
    own = replace(resolved, config=config, auth_namespace=resolved.caller.namespace)
    reading = _Reading(own, reader)
    credentials = [Credential(read.pointer, await reading.value(read)) for read in reads_of(own)]
    return Followed(tuple(credentials), tuple(reading.sources.values()))


class _Reading:
    """The reads of one store. Each object is read once; `facts` and `sources` record what was read."""

    def __init__(self, resolved: ResolvedStore, reader: CredentialReader) -> None:
        self._resolved = resolved
        self._reader = reader
        self._readers = {
            "Secret": reader.secret,
            "ConfigMap": reader.config_map,
            "ServiceAccount": reader.service_account,
        }
        self._contents: dict[tuple[str, ObjectKey], Content] = {}
        self.versions: list[tuple[str, ...]] = []
        self.sources: dict[tuple[str, ObjectKey], ObjectRef] = {}

    async def value(self, read: Read) -> SecretBytes | Token | SecretMap:
        match read:
            case SecretKey():
                return self._entry(await self._secret(read), "Secret", read)
            case ConfigMapKey(pointer=pointer, object=key):
                return self._entry(await self._content("ConfigMap", key, pointer), "ConfigMap", read)
            case WholeSecret():
                return (await self._secret(read)).data
            case AccountToken():
                return await self._account_token(read)
            case _:
                assert_never(read)

    async def call_token(self) -> str:
        wanted = self._resolved.call_token
        if wanted is None:
            return ""
        if not wanted.namespace:
            raise referent(self._resolved, "the token for calls")
        key = ObjectKey(wanted.namespace, wanted.name)
        token = await self._token(key, wanted.audiences, "auth.serviceAccountRef")
        return token.token.reveal().decode()

    async def _secret(self, read: SecretKey | WholeSecret) -> Content:
        content = await self._content("Secret", read.object, read.pointer)
        if read.type and content.labels.get(SECRET_TYPE_LABEL) != read.type:
            raise ResolutionError(
                Reason.CREDENTIALS_DENIED,
                f"{_user(self._resolved)}: Secret {read.object}, which {read.pointer} names, may not be used for it; to"
                f' allow that, give it the label "{SECRET_TYPE_LABEL}: {read.type}"',
                subject=_source("Secret", read.object, content.uid),
            )
        return content

    async def _content(self, kind: str, key: ObjectKey, pointer: str) -> Content:
        if (kind, key) not in self._contents:
            try:
                found = await self._readers[kind](key)
            except UnreadableError as error:
                raise self._unreadable(kind, key, pointer, error) from None
            if found is None:
                raise self._missing(kind, key, f"there is no {kind} {key}, which {pointer} names: create it")
            self._contents[kind, key] = found
            self.sources[kind, key] = _source(kind, key, found.uid)
        content = self._contents[kind, key]
        self.versions.append((pointer, kind, *key, content.uid, content.resource_version))
        return content

    def _entry(self, content: Content, kind: str, read: SecretKey | ConfigMapKey) -> SecretBytes:
        if read.key not in content.data:
            message = f"{kind} {read.object} has no key {read.key}, which {read.pointer} names: add it"
            raise self._missing(kind, read.object, with_hint(message, read.key, content.data))
        return content.data[read.key]

    async def _account_token(self, read: AccountToken) -> Token:
        """Return a token with its account: several backends take a role from an annotation of the account."""
        account = await self._content("ServiceAccount", read.object, read.pointer)
        audiences = tuple(dict.fromkeys(_named(read.audiences, account.annotations)))
        token = await self._token(read.object, audiences, read.pointer, read.lifetime)
        namespace, name = read.object
        return replace(token, namespace=namespace, name=name, uid=account.uid, annotations=account.annotations)

    async def _token(self, key: ObjectKey, audiences: tuple[str, ...], pointer: str, lifetime: int = 0) -> Token:
        kind = "ServiceAccount"
        try:
            if self._resolved.endpoint.tenant:
                await self._check_audiences(key, audiences, pointer)
            token = await self._reader.token(key, audiences, lifetime)
        except UnreadableError as error:
            raise self._unreadable(kind, key, pointer, error) from None
        if token is None:
            raise self._missing(kind, key, f"there is no {kind} {key}, which {pointer} names: create it")
        self.sources.setdefault((kind, key), _source(kind, key, ""))
        self.versions.append((pointer, kind, *key, *audiences))
        return token

    async def _check_audiences(self, account: ObjectKey, audiences: tuple[str, ...], pointer: str) -> None:
        """Refuse a token for a tenant's provider that the API server accepts: it could impersonate the account."""
        if audiences and not (await self._reader.api_audiences(account)).intersection(audiences):
            return
        service = self._resolved.endpoint.service
        raise ResolutionError(
            Reason.CREDENTIALS_DENIED,
            f"{_user(self._resolved)}: {pointer} asks for a token of ServiceAccount {account} that the API server"
            f" accepts; Service {service} is a provider of the namespace itself and never gets one: name the audiences"
            " of its backend, or have the provider run in the operator's namespace",
            subject=_source("ServiceAccount", account, ""),
        )

    def _missing(self, kind: str, key: ObjectKey, message: str) -> ResolutionError:
        return ResolutionError(
            Reason.CREDENTIALS_NOT_FOUND, f"{_user(self._resolved)}: {message}", subject=_source(kind, key, "")
        )

    def _unreadable(self, kind: str, key: ObjectKey, pointer: str, error: UnreadableError) -> ResolutionError:
        return ResolutionError(
            Reason.CREDENTIALS_UNREADABLE,
            f"{_user(self._resolved)}: {kind} {key}, which {pointer} names, cannot be read: {error}",
            subject=_source(kind, key, ""),
            retry=RetryClass.BACKOFF,
        )


def _named(audiences: tuple[str | FromAnnotation, ...], annotations: Mapping[str, str]) -> Iterator[str]:
    for audience in audiences:
        match audience:
            case str():
                yield audience
            case FromAnnotation(names=names, suffix=suffix, otherwise=otherwise):
                named = next((annotations[name] for name in names if annotations.get(name)), "")
                yield from (f"{named}{suffix}",) if named else otherwise


def _source(kind: str, key: ObjectKey, uid: str) -> ObjectRef:
    return ObjectRef(api_version="v1", kind=kind, namespace=key.namespace, name=key.name, uid=uid)


def _user(resolved: ResolvedStore) -> str:
    ref = resolved.config.ref
    return f"{ref.kind} {ref.namespace}/{ref.name}" if ref.namespace else f"{ref.kind} {ref.name}"


def _without_caller_namespace(resolved: ResolvedStore, read_from: set[str]) -> ResolvedStore:
    """Drop the caller's namespace from a cluster-scoped store that read nothing from it, so that callers can share.

    The namespace stays if the provider reads the configuration itself, because the provider may follow references from
    there, or if results depend on the namespace of the caller.
    """
    if resolved.config.by_caller:
        return resolved
    if (
        resolved.store.namespace
        or resolved.pinned
        or resolved.config.spec is None
        or resolved.auth_namespace in read_from
    ):
        return resolved
    return replace(resolved, auth_namespace="", pinned=True)


def _identity(resolved: ResolvedStore, versions: list[tuple[str, ...]]) -> str:
    """Return the identity: equal for the same store and configuration with the same versions of credentials."""
    store, config = resolved.store, resolved.config
    decides: list[Any] = [
        [store.api_version, store.kind, store.namespace, store.name, store.uid],
        [*config.kind, config.ref.namespace, config.ref.name, config.ref.uid],
        # A provider that reads the object itself reads its newest state, so the generation has to count.
        config.ref.generation if config.spec is None else "",
        resolved.auth_namespace,
        resolved.caller_namespace,
        versions,
    ]
    digest = hashlib.blake2b(msgspec.json.encode(decides), key=_IDENTITY_KEY, digest_size=20)
    digest.update(config.spec or b"")
    return digest.hexdigest()


T = TypeVar("T")

MAX_CONTENTS: Final = 512
MAX_CONTENT_BYTES: Final = 64 * 1024
MAX_TOKENS: Final = 2048
TOKEN_SECONDS: Final = 3600
USED_SHARE: Final = 0.8
READ_SECONDS: Final = 10.0

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


class KubeCredentials:
    """A `CredentialReader` over an API server."""

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
        """Return the response; None if the object does not exist. Raises UnreadableError for any other failure."""
        try:
            async with Deadline(self._clock, READ_SECONDS):
                return await request
        except NotServed as error:
            raise UnreadableError(error.message) from None
        except NotFound:
            return None
        except ApiError as error:
            raise UnreadableError(error.message) from None
        except TimeoutError:
            raise UnreadableError(f"the API server did not answer within {READ_SECONDS:g} s") from None


@dataclass(frozen=True, slots=True)
class _Lease:
    token: Token
    version: str
    """The resourceVersion of the service account when the token was requested."""
    renew_at: float


class _Claims(msgspec.Struct):
    aud: list[str]


def _audiences_in(token: Token) -> frozenset[str]:
    """Return the `aud` claim of a token from the API server."""
    try:
        _, claims, _ = token.token.reveal().split(b".")
        padded = claims + b"=" * (-len(claims) % 4)
        return frozenset(msgspec.json.decode(base64.urlsafe_b64decode(padded), type=_Claims).aud)
    except (ValueError, msgspec.MsgspecError):
        raise UnreadableError("the API server's own audiences cannot be read from its tokens") from None


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
