"""Binding of a resolved store to its credentials: the operator reads every Secret, ConfigMap and token itself.

    ResolvedStore -> reads_of (which) -> bind (read them) -> BoundStore

`reads.py` decides which objects are read; `kubecredentials.py` reads them from the API server.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol, assert_never

import msgspec

from eso_api.externalsecret import SECRET_TYPE_LABEL
from eso_api.values import SecretBytes
from eso_operator.stores.reads import (
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
from kubebase.hints import with_hint
from kubebase.meta import ObjectKey

# Identities are compared within this process only. The random key keeps them from revealing credentials.
_IDENTITY_KEY: Final = secrets.token_bytes(32)


class UnreadableError(Exception):
    """A Secret, ConfigMap or token could not be read, for example for lack of permission or of an answer."""


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
    """Read the objects that the configuration refers to, and the token for calls if the store asks for one."""
    reading = _Reading(resolved, reader)
    credentials = [Credential(read.pointer, await reading.value(read)) for read in reads_of(resolved)]
    token = await reading.call_token()
    resolved = _unbound_from_the_caller(resolved, {place.namespace for _, place in reading.sources})
    config = Config(
        ref=resolved.config.ref,
        kind=resolved.config.kind,
        spec_json=SecretBytes(resolved.config.spec) if resolved.config.spec is not None else None,
        credentials=tuple(credentials),
    )
    return BoundStore(
        resolved=resolved,
        config=config,
        identity=_identity(resolved, reading.facts),
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
        self.facts: list[tuple[str, ...]] = []
        self.sources: dict[tuple[str, ObjectKey], ObjectRef] = {}

    async def value(self, read: Read) -> SecretBytes | Token | SecretMap:
        match read:
            case SecretKey():
                return self._entry(await self._secret(read), "Secret", read)
            case ConfigMapKey(pointer=pointer, object=place):
                return self._entry(await self._content("ConfigMap", place, pointer), "ConfigMap", read)
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
        place = ObjectKey(wanted.namespace, wanted.name)
        token = await self._token(place, wanted.audiences, "auth.serviceAccountRef")
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

    async def _content(self, kind: str, place: ObjectKey, pointer: str) -> Content:
        if (kind, place) not in self._contents:
            try:
                found = await self._readers[kind](place)
            except UnreadableError as error:
                raise self._unreadable(kind, place, pointer, error) from None
            if found is None:
                raise self._missing(kind, place, f"there is no {kind} {place}, which {pointer} names: create it")
            self._contents[kind, place] = found
            self.sources[kind, place] = _source(kind, place, found.uid)
        content = self._contents[kind, place]
        self.facts.append((pointer, kind, *place, content.uid, content.resource_version))
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

    async def _token(self, place: ObjectKey, audiences: tuple[str, ...], pointer: str, lifetime: int = 0) -> Token:
        kind = "ServiceAccount"
        try:
            if self._resolved.endpoint.tenant:
                await self._check_audiences(place, audiences, pointer)
            token = await self._reader.token(place, audiences, lifetime)
        except UnreadableError as error:
            raise self._unreadable(kind, place, pointer, error) from None
        if token is None:
            raise self._missing(kind, place, f"there is no {kind} {place}, which {pointer} names: create it")
        self.sources.setdefault((kind, place), _source(kind, place, ""))
        self.facts.append((pointer, kind, *place, *audiences))
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

    def _missing(self, kind: str, place: ObjectKey, message: str) -> ResolutionError:
        return ResolutionError(
            Reason.CREDENTIALS_NOT_FOUND, f"{_user(self._resolved)}: {message}", subject=_source(kind, place, "")
        )

    def _unreadable(self, kind: str, place: ObjectKey, pointer: str, error: UnreadableError) -> ResolutionError:
        return ResolutionError(
            Reason.CREDENTIALS_UNREADABLE,
            f"{_user(self._resolved)}: {kind} {place}, which {pointer} names, cannot be read: {error}",
            subject=_source(kind, place, ""),
            retry=RetryClass.BACKOFF,
        )


def _named(audiences: tuple[str | FromAnnotation, ...], annotations: Mapping[str, str]) -> Iterator[str]:
    for audience in audiences:
        match audience:
            case str():
                yield audience
            case FromAnnotation(names=names, suffix=suffix, otherwise=otherwise):
                said = next((annotations[name] for name in names if annotations.get(name)), "")
                yield from (f"{said}{suffix}",) if said else otherwise


def _source(kind: str, place: ObjectKey, uid: str) -> ObjectRef:
    return ObjectRef(api_version="v1", kind=kind, namespace=place.namespace, name=place.name, uid=uid)


def _user(resolved: ResolvedStore) -> str:
    ref = resolved.config.ref
    return f"{ref.kind} {ref.namespace}/{ref.name}" if ref.namespace else f"{ref.kind} {ref.name}"


def _unbound_from_the_caller(resolved: ResolvedStore, read_from: set[str]) -> ResolvedStore:
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


def _identity(resolved: ResolvedStore, facts: list[tuple[str, ...]]) -> str:
    """Return the identity: equal for the same store and configuration with the same versions of credentials."""
    store, config = resolved.store, resolved.config
    decides: list[Any] = [
        [store.api_version, store.kind, store.namespace, store.name, store.uid],
        [*config.kind, config.ref.namespace, config.ref.name, config.ref.uid],
        # A provider that reads the object itself reads its newest state, so the generation has to count.
        config.ref.generation if config.spec is None else "",
        resolved.auth_namespace,
        resolved.caller_namespace,
        facts,
    ]
    digest = hashlib.blake2b(msgspec.json.encode(decides), key=_IDENTITY_KEY, digest_size=20)
    digest.update(config.spec or b"")
    return digest.hexdigest()
