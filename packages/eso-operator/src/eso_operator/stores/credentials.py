"""Credentials: which objects a configuration refers to, and the resolved store bound to their content.

    ResolvedStore -> reads_of (which) -> bind (read them) -> BoundStore

Which objects are read is decided before any of them is. The operator reads every Secret, ConfigMap and token itself.
The handshake of the provider says where references are in the configuration. `ReferenceRule` says which namespaces they
may name:

| rule | reference names a namespace | reference names none |
|---|---|---|
| own namespace | must be the namespace of credentials | namespace of credentials |
| explicit, else auth namespace | that one | namespace of credentials |
| always auth namespace | ignored | namespace of credentials |

References to CA bundles are stricter: an object that may name namespaces must name one, and any other object must not
name a foreign one. Some kinds may only read Secrets with a certain label (`SECRET_TYPES`). The operator enforces that,
not the provider: it protects Secrets from users who may create such objects.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, assert_never

import msgspec

from eso_api.externalsecret import SECRET_TYPE_LABEL
from eso_api.references import GENERATORS_GROUP
from eso_api.v2.owned import GENERATOR_CONFIG_GROUP, STORE_CONFIG_GROUP
from eso_api.values import SecretBytes
from eso_operator.stores.credentialreader import Content, CredentialReader, CredentialReadError
from eso_operator.stores.resolved import BoundStore, Reason, ReferenceRule, ResolutionError, ResolvedStore
from eso_wire import pointers
from eso_wire.errors import RetryClass
from eso_wire.kinds import AudienceRule, AudienceSource, ConfigDelivery, CredentialKind, CredentialPath, ObjectRef
from eso_wire.values import Config, Credential, SecretMap, Token
from kubebase.hints import with_hint
from kubebase.meta import ObjectKey

MAX_CREDENTIALS: Final = 256

SECRET_TYPES: Final = {
    (GENERATORS_GROUP, "Webhook"): "webhook",
    (GENERATOR_CONFIG_GROUP, "Webhook"): "webhook",
    (STORE_CONFIG_GROUP, "Webhook"): "webhook",
    (STORE_CONFIG_GROUP, "ClusterWebhook"): "webhook",
}
"""The required label value of a Secret, by the kind that refers to it: a webhook can send the value to any address."""
_V1_SECRET_TYPES: Final = {"webhook": "webhook"}
"""The same for v1 stores, by the key of their block."""
MIN_LIFETIME: Final = 600
MAX_LIFETIME: Final = 24 * 3600
"""Bounds of token lifetimes in seconds. API servers refuse less than ten minutes."""


@dataclass(frozen=True, slots=True)
class SecretKey:
    """One key of a Secret."""

    pointer: str
    object: ObjectKey
    key: str
    type: str = ""
    """The required value of its label `SECRET_TYPE_LABEL`; empty for any Secret."""


@dataclass(frozen=True, slots=True)
class WholeSecret:
    pointer: str
    object: ObjectKey
    type: str = ""
    """As of `SecretKey`."""


@dataclass(frozen=True, slots=True)
class ConfigMapKey:
    """One key of a ConfigMap's `data`."""

    pointer: str
    object: ObjectKey
    key: str


@dataclass(frozen=True, slots=True)
class FromAnnotation:
    """Audiences from an annotation of the service account; known once the account is read."""

    names: tuple[str, ...]
    suffix: str
    otherwise: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AccountToken:
    """A token of a service account."""

    pointer: str
    object: ObjectKey
    audiences: tuple[str | FromAnnotation, ...]
    lifetime: int = 0
    """Seconds that the token should live; 0 leaves it to the reader."""


Read = SecretKey | WholeSecret | ConfigMapKey | AccountToken


def reads_of(resolved: ResolvedStore) -> tuple[Read, ...]:
    """Return every reference in the configuration once, in the order of the handshake's paths."""
    if resolved.config.spec is None:
        if resolved.config.delivery is ConfigDelivery.INLINE:
            raise referent_auth_error(resolved, "its configuration")
        return ()
    spec = msgspec.json.decode(resolved.config.spec)
    reads: dict[str, Read] = {}
    for path, places in _references(resolved, spec):
        for pointer, reference in places:
            if path.kind is CredentialKind.CA_PROVIDER and _has_bundle(spec, pointer):
                continue  # an inline caBundle wins
            if pointer not in reads:
                reads[pointer] = _read(resolved, path, pointer, reference, spec)
            if len(reads) > MAX_CREDENTIALS:
                raise _invalid(resolved, f"has more than {MAX_CREDENTIALS} references to credentials")
    return tuple(reads.values())


def _references(resolved: ResolvedStore, spec: Any) -> Iterator[tuple[CredentialPath, list[pointers.Match]]]:
    """Yield each path of the handshake with the references that it matches."""
    paths = resolved.config.credentials
    try:
        yield from zip(paths, pointers.expand(spec, [path.pattern for path in paths]), strict=True)
    except pointers.TooLargeError as problem:
        raise _invalid(resolved, f"is too large to look for references to credentials in it: {problem}") from None


def referent_auth_error(resolved: ResolvedStore, what: str) -> ResolutionError:
    """Return the error for a validation without a caller: the credentials are in the caller's namespace."""
    return ResolutionError(
        Reason.REFERENT_AUTH,
        f"{resolved.store.kind} {resolved.store.name} takes {what} from the namespace of its user; it is checked when"
        " it is used",
        subject=resolved.store,
    )


def _read(resolved: ResolvedStore, path: CredentialPath, pointer: str, reference: Any, spec: Any) -> Read:
    name = _text(resolved, pointer, reference, "name")
    match path.kind:
        case CredentialKind.SECRET_KEY:
            place = ObjectKey(_namespace(resolved, pointer, reference), name)
            return SecretKey(pointer, place, _key(resolved, path, pointer, reference), _type(resolved))
        case CredentialKind.CONFIG_MAP_KEY:
            place = ObjectKey(_namespace(resolved, pointer, reference), name)
            return ConfigMapKey(pointer, place, _key(resolved, path, pointer, reference))
        case CredentialKind.OBJECT_KEY:
            place = ObjectKey(_namespace(resolved, pointer, reference), name)
            return _of_kind(resolved, pointer, reference, place, "kind")
        case CredentialKind.WHOLE_SECRET:
            return WholeSecret(pointer, ObjectKey(_namespace(resolved, pointer, reference), name), _type(resolved))
        case CredentialKind.SERVICE_ACCOUNT:
            place = ObjectKey(_namespace(resolved, pointer, reference), name)
            audiences = _audiences(resolved, path, pointer, reference, spec)
            return AccountToken(pointer, place, audiences, _lifetime(resolved, path, pointer, spec))
        case CredentialKind.CA_PROVIDER:
            place = ObjectKey(_ca_namespace(resolved, pointer, reference), name)
            return _of_kind(resolved, pointer, reference, place, "type")
        case _:
            assert_never(path.kind)


def _of_kind(
    resolved: ResolvedStore, pointer: str, reference: dict[str, Any], place: ObjectKey, field: str
) -> SecretKey | ConfigMapKey:
    """Return the read of a reference whose `field` says whether it names a Secret or a ConfigMap."""
    key = _text(resolved, pointer, reference, "key")
    match reference.get(field):
        case "ConfigMap":
            return ConfigMapKey(pointer, place, key)
        case "Secret":
            return SecretKey(pointer, place, key)
        case _:
            raise _invalid(resolved, f"{pointer}/{field} must be Secret or ConfigMap")


def _type(resolved: ResolvedStore) -> str:
    """Return the required label value of a Secret; for a v1 block its key counts, not the kind that serves it."""
    return SECRET_TYPES.get((resolved.config.kind.group, resolved.config.kind.kind)) or _V1_SECRET_TYPES.get(
        resolved.config.v1_key, ""
    )


def _key(resolved: ResolvedStore, path: CredentialPath, pointer: str, reference: dict[str, Any]) -> str:
    if path.default_key and not reference.get("key"):
        return path.default_key
    return _text(resolved, pointer, reference, "key")


def _namespace(resolved: ResolvedStore, pointer: str, reference: dict[str, Any]) -> str:
    given = reference.get("namespace") or ""
    match resolved.config.rule:
        case ReferenceRule.OWN_NAMESPACE:
            _check_own(resolved, pointer, given)
            namespace = resolved.auth_namespace
        case ReferenceRule.EXPLICIT_OR_AUTH:
            namespace = given or resolved.auth_namespace
        case ReferenceRule.IGNORE_EXPLICIT:
            namespace = resolved.auth_namespace
        case other:
            assert_never(other)
    if not namespace:
        raise referent_auth_error(resolved, pointer)
    return str(namespace)


def _ca_namespace(resolved: ResolvedStore, pointer: str, reference: dict[str, Any]) -> str:
    given = reference.get("namespace") or ""
    if resolved.config.rule is not ReferenceRule.EXPLICIT_OR_AUTH:
        _check_own(resolved, pointer, given)
        return _namespace(resolved, pointer, reference)
    if not given:
        raise _invalid(resolved, f"{pointer} must name the namespace of the CA bundle")
    return str(given)


def _check_own(resolved: ResolvedStore, pointer: str, given: str) -> None:
    if given not in ("", resolved.auth_namespace):
        raise ResolutionError(
            Reason.CROSS_NAMESPACE,
            f"{_shown(resolved)}: {pointer} names namespace {given}; credentials may only come from"
            f" {resolved.auth_namespace or 'the namespace of its user'}",
            subject=resolved.config.ref,
        )


def _has_bundle(spec: Any, pointer: str) -> bool:
    holder = pointers.at(spec, pointers.parent(pointer))
    return isinstance(holder, dict) and bool(holder.get("caBundle"))


def _text(resolved: ResolvedStore, pointer: str, reference: Any, field: str) -> str:
    value = reference.get(field) if isinstance(reference, dict) else None
    if not isinstance(value, str) or not value:
        raise _invalid(resolved, f"{pointer} needs a {field}")
    if not isinstance(reference.get("namespace") or "", str):
        raise _invalid(resolved, f"{pointer}/namespace must be a string")
    return value


def _audiences(
    resolved: ResolvedStore, path: CredentialPath, pointer: str, reference: dict[str, Any], spec: Any
) -> tuple[str | FromAnnotation, ...]:
    """Return the audiences by the provider's rules; without rules, those of the provider, then of the reference."""
    given = _texts(resolved, f"{pointer}/audiences", reference.get("audiences"))
    if not path.audience_rules:
        return tuple(dict.fromkeys((*path.audiences, *given)))
    found: list[str | FromAnnotation] = []
    for rule in path.audience_rules:
        match rule.source:
            case AudienceSource.ANNOTATION:
                found.append(FromAnnotation(rule.names, rule.suffix, rule.otherwise))
            case AudienceSource.TEXT:
                found += _filled(rule, rule.names)
            case AudienceSource.SPEC:
                found += _filled(rule, _in_spec(resolved, rule, pointer, spec))
            case AudienceSource.REFERENCE:
                found += _filled(rule, given)
            case AudienceSource.STORE:
                found += _filled(rule, (_store_audience(resolved),))
            case None:
                raise _invalid(
                    resolved,
                    f"{pointer} needs a token whose audiences this operator cannot compute: upgrade it",
                )
            case _:
                assert_never(rule.source)
    return tuple(dict.fromkeys(found))


def _filled(rule: AudienceRule, names: Sequence[str]) -> list[str]:
    return [f"{name}{rule.suffix}" for name in names if name] or list(rule.otherwise)


def _in_spec(resolved: ResolvedStore, rule: AudienceRule, pointer: str, spec: Any) -> tuple[str, ...]:
    """Return the audiences at the first pointer of the rule that has a value in the configuration."""
    for name in rule.names:
        place = pointers.relative(pointer, name)
        if place is not None and (given := pointers.at(spec, place)):
            return _texts(resolved, place, [given] if isinstance(given, str) else given)
    return ()


def _store_audience(resolved: ResolvedStore) -> str:
    store = resolved.store
    return f"secretStore:{store.namespace}:{store.name}" if store.namespace else f"clusterSecretStore:{store.name}"


def _texts(resolved: ResolvedStore, pointer: str, given: Any) -> tuple[str, ...]:
    given = given or []
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        raise _invalid(resolved, f"{pointer} must be a list of strings")
    return tuple(given)


def _lifetime(resolved: ResolvedStore, path: CredentialPath, pointer: str, spec: Any) -> int:
    place = pointers.relative(pointer, path.lifetime_pointer) if path.lifetime_pointer else None
    given = pointers.at(spec, place) if place is not None else None
    if given is None:
        return path.lifetime_seconds
    if isinstance(given, bool) or not isinstance(given, int):
        raise _invalid(resolved, f"{place} must be a number of seconds")
    return min(max(given, MIN_LIFETIME), MAX_LIFETIME)


def _invalid(resolved: ResolvedStore, problem: str) -> ResolutionError:
    return ResolutionError(Reason.INVALID_CONFIG, f"{_shown(resolved)}: {problem}", subject=resolved.config.ref)


def _shown(resolved: ResolvedStore) -> str:
    ref = resolved.config.ref
    return f"{ref.kind} {ref.namespace}/{ref.name}" if ref.namespace else f"{ref.kind} {ref.name}"


# --- binding ---------------------------------------------------------------------------------------------------------

# Identities are compared within this process only. The random key keeps them from revealing credentials.
_IDENTITY_KEY: Final = secrets.token_bytes(32)


async def bind(resolved: ResolvedStore, reader: CredentialReader) -> BoundStore:
    """Read the objects that the configuration refers to, and the token for calls if the store requires one."""
    reading = _Reads(resolved, reader)
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
    reading = _Reads(own, reader)
    credentials = [Credential(read.pointer, await reading.value(read)) for read in reads_of(own)]
    return Followed(tuple(credentials), tuple(reading.sources.values()))


class _Reads:
    """The reads of one store. Each object is read once; `versions` and `sources` record what was read."""

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
            raise referent_auth_error(self._resolved, "the token for calls")
        key = ObjectKey(wanted.namespace, wanted.name)
        token = await self._token(key, wanted.audiences, "auth.serviceAccountRef")
        return token.token.reveal().decode()

    async def _secret(self, read: SecretKey | WholeSecret) -> Content:
        content = await self._content("Secret", read.object, read.pointer)
        if read.type and content.labels.get(SECRET_TYPE_LABEL) != read.type:
            raise ResolutionError(
                Reason.CREDENTIALS_DENIED,
                f"{_shown(self._resolved)}: Secret {read.object}, which {read.pointer} names, may not be used for it;"
                f' to allow that, give it the label "{SECRET_TYPE_LABEL}: {read.type}"',
                subject=_source("Secret", read.object, content.uid),
            )
        return content

    async def _content(self, kind: str, key: ObjectKey, pointer: str) -> Content:
        if (kind, key) not in self._contents:
            try:
                found = await self._readers[kind](key)
            except CredentialReadError as error:
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
        audiences = tuple(dict.fromkeys(_audience_names(read.audiences, account.annotations)))
        token = await self._token(read.object, audiences, read.pointer, read.lifetime)
        namespace, name = read.object
        return replace(token, namespace=namespace, name=name, uid=account.uid, annotations=account.annotations)

    async def _token(self, key: ObjectKey, audiences: tuple[str, ...], pointer: str, lifetime: int = 0) -> Token:
        kind = "ServiceAccount"
        try:
            if self._resolved.endpoint.tenant:
                await self._check_audiences(key, audiences, pointer)
            token = await self._reader.token(key, audiences, lifetime)
        except CredentialReadError as error:
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
            f"{_shown(self._resolved)}: {pointer} asks for a token of ServiceAccount {account} that the API server"
            f" accepts; Service {service} is a provider of the namespace itself and never gets one: name the audiences"
            " of its backend, or have the provider run in the operator's namespace",
            subject=_source("ServiceAccount", account, ""),
        )

    def _missing(self, kind: str, key: ObjectKey, message: str) -> ResolutionError:
        return ResolutionError(
            Reason.CREDENTIALS_NOT_FOUND, f"{_shown(self._resolved)}: {message}", subject=_source(kind, key, "")
        )

    def _unreadable(self, kind: str, key: ObjectKey, pointer: str, error: CredentialReadError) -> ResolutionError:
        return ResolutionError(
            Reason.CREDENTIALS_UNREADABLE,
            f"{_shown(self._resolved)}: {kind} {key}, which {pointer} names, cannot be read: {error}",
            subject=_source(kind, key, ""),
            retry=RetryClass.BACKOFF,
        )


def _audience_names(audiences: tuple[str | FromAnnotation, ...], annotations: Mapping[str, str]) -> Iterator[str]:
    for audience in audiences:
        match audience:
            case str():
                yield audience
            case FromAnnotation(names=names, suffix=suffix, otherwise=otherwise):
                named = next((annotations[name] for name in names if annotations.get(name)), "")
                yield from (f"{named}{suffix}",) if named else otherwise


def _source(kind: str, key: ObjectKey, uid: str) -> ObjectRef:
    return ObjectRef(api_version="v1", kind=kind, namespace=key.namespace, name=key.name, uid=uid)


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
