"""From a resolved target to one with its credentials: the operator reads every Secret, ConfigMap and token itself.

    ResolvedTarget -> reads_of (what) -> bind (read it) -> BoundTarget

Which objects are read is decided in `reads.py`; `kubecredentials.py` reads them from an API server.
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
from eso_operator.stores.target import BoundTarget, Reason, ReferenceRule, ResolutionError, ResolvedTarget
from eso_wire.errors import RetryClass
from eso_wire.values import Config, ConfigDelivery, Credential, ObjectRef, SecretMap, Token
from kuberun.meta import ObjectKey

# An identity only tells apart what this process has read; keyed, it reveals nothing about what it was made of.
_IDENTITY_KEY: Final = secrets.token_bytes(32)


class UnreadableError(Exception):
    """A Secret, ConfigMap or token that may exist and could not be read: no permission, no answer."""


@dataclass(frozen=True, slots=True)
class Content:
    """What one Secret or ConfigMap holds; of a ServiceAccount, who it is."""

    uid: str
    resource_version: str
    data: SecretMap = field(repr=False)
    labels: Mapping[str, str] = field(default_factory=dict, repr=False)
    annotations: Mapping[str, str] = field(default_factory=dict, repr=False)


class CredentialReader(Protocol):
    """None means that the object is not there; `UnreadableError`, that this could not be found out."""

    async def secret(self, key: ObjectKey) -> Content | None: ...

    async def config_map(self, key: ObjectKey) -> Content | None: ...

    async def service_account(self, key: ObjectKey) -> Content | None: ...

    async def token(self, account: ObjectKey, audiences: tuple[str, ...], lifetime: int = 0) -> Token | None: ...

    async def api_audiences(self, account: ObjectKey) -> frozenset[str]:
        """The audiences of the API server itself, found out with a token of this account."""
        ...


async def bind(target: ResolvedTarget, reader: CredentialReader) -> BoundTarget:
    """Read what the configuration refers to, and get the token for the call if one is asked for."""
    reading = _Reading(target, reader)
    credentials = [Credential(read.pointer, await reading.value(read)) for read in reads_of(target)]
    token = await reading.call_token()
    target = _unbound_from_the_caller(target, {place.namespace for _, place in reading.sources})
    config = Config(
        ref=target.config.ref,
        kind=target.config.kind,
        spec_json=SecretBytes(target.config.spec) if target.config.spec is not None else None,
        credentials=tuple(credentials),
    )
    return BoundTarget(
        target=target,
        config=config,
        identity=_identity(target, reading.facts),
        sources=tuple(reading.sources.values()),
        token=token,
    )


@dataclass(frozen=True, slots=True)
class Followed:
    """What the metadata of a push refers to, and the objects it was read from."""

    credentials: tuple[Credential, ...] = ()
    sources: tuple[ObjectRef, ...] = ()


async def follow_metadata(
    target: ResolvedTarget, metadata: Mapping[str, Any] | None, reader: CredentialReader
) -> Followed:
    """Read what the metadata of a push refers to, from the namespace of the PushSecret and no other."""
    paths = target.config.metadata_references
    if not paths or metadata is None:
        return Followed()
    config = replace(
        target.config,
        ref=target.caller,
        delivery=ConfigDelivery.INLINE,
        spec=msgspec.json.encode(metadata),
        credentials=paths,
        rule=ReferenceRule.OWN_NAMESPACE,
        v1_key="",
    )
    own = replace(target, config=config, auth_namespace=target.caller.namespace)
    reading = _Reading(own, reader)
    credentials = [Credential(read.pointer, await reading.value(read)) for read in reads_of(own)]
    return Followed(tuple(credentials), tuple(reading.sources.values()))


class _Reading:
    """The reads of one target: each object once, and what is to be remembered of it."""

    def __init__(self, target: ResolvedTarget, reader: CredentialReader) -> None:
        self._target = target
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
        wanted = self._target.call_token
        if wanted is None:
            return ""
        if not wanted.namespace:
            raise referent(self._target, "the token for calls")
        place = ObjectKey(wanted.namespace, wanted.name)
        token = await self._token(place, wanted.audiences, "auth.serviceAccountRef")
        return token.token.reveal().decode()

    async def _secret(self, read: SecretKey | WholeSecret) -> Content:
        content = await self._content("Secret", read.object, read.pointer)
        if read.type and content.labels.get(SECRET_TYPE_LABEL) != read.type:
            raise ResolutionError(
                Reason.CREDENTIALS_DENIED,
                f"{_user(self._target)}: Secret {read.object}, which {read.pointer} names, may not be used for it; to"
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
            raise self._missing(
                kind, read.object, f"{kind} {read.object} has no key {read.key}, which {read.pointer} names: add it"
            )
        return content.data[read.key]

    async def _account_token(self, read: AccountToken) -> Token:
        """A token with whose it is: several backends take their own role from an annotation of the account."""
        account = await self._content("ServiceAccount", read.object, read.pointer)
        audiences = tuple(dict.fromkeys(_named(read.audiences, account.annotations)))
        token = await self._token(read.object, audiences, read.pointer, read.lifetime)
        namespace, name = read.object
        return replace(token, namespace=namespace, name=name, uid=account.uid, annotations=account.annotations)

    async def _token(self, place: ObjectKey, audiences: tuple[str, ...], pointer: str, lifetime: int = 0) -> Token:
        kind = "ServiceAccount"
        try:
            if self._target.endpoint.tenant:
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
        """Keep from a tenant's provider what the API server would accept: it could act as the account with it."""
        if audiences and not (await self._reader.api_audiences(account)).intersection(audiences):
            return
        service = self._target.endpoint.service
        raise ResolutionError(
            Reason.CREDENTIALS_DENIED,
            f"{_user(self._target)}: {pointer} asks for a token of ServiceAccount {account} that the API server"
            f" accepts; Service {service} is a provider of the namespace itself and never gets one: name the audiences"
            " of its backend, or have the provider run in the operator's namespace",
            subject=_source("ServiceAccount", account, ""),
        )

    def _missing(self, kind: str, place: ObjectKey, message: str) -> ResolutionError:
        return ResolutionError(
            Reason.CREDENTIALS_NOT_FOUND, f"{_user(self._target)}: {message}", subject=_source(kind, place, "")
        )

    def _unreadable(self, kind: str, place: ObjectKey, pointer: str, error: UnreadableError) -> ResolutionError:
        return ResolutionError(
            Reason.CREDENTIALS_UNREADABLE,
            f"{_user(self._target)}: {kind} {place}, which {pointer} names, cannot be read: {error}",
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


def _user(target: ResolvedTarget) -> str:
    ref = target.config.ref
    return f"{ref.kind} {ref.namespace}/{ref.name}" if ref.namespace else f"{ref.kind} {ref.name}"


def _unbound_from_the_caller(target: ResolvedTarget, read_from: set[str]) -> ResolvedTarget:
    """A cluster-scoped store that took nothing from its caller's namespace looks the same from every namespace.

    Not so if the provider reads the configuration itself: then only it knows what it follows from there. Nor if results
    depend on the namespace of the caller.
    """
    if target.config.by_caller:
        return target
    if target.store.namespace or target.pinned or target.config.spec is None or target.auth_namespace in read_from:
        return target
    return replace(target, auth_namespace="", pinned=True)


def _identity(target: ResolvedTarget, facts: list[tuple[str, ...]]) -> str:
    """Equal for equal eyes: the same store and configuration with the same credentials in the same state."""
    store, config = target.store, target.config
    decides: list[Any] = [
        [store.api_version, store.kind, store.namespace, store.name, store.uid],
        [*config.kind, config.ref.namespace, config.ref.name, config.ref.uid],
        # A provider that reads the object itself reads its newest state, which only the generation tells apart.
        config.ref.generation if config.spec is None else "",
        target.auth_namespace,
        target.caller_namespace,
        facts,
    ]
    digest = hashlib.blake2b(msgspec.json.encode(decides), key=_IDENTITY_KEY, digest_size=20)
    digest.update(config.spec or b"")
    return digest.hexdigest()
