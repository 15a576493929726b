"""Which Secrets, ConfigMaps and service accounts a target's configuration refers to: decided before anything is read.

The provider's handshake says where in the configuration references are, `ReferenceRule` which namespaces they may name:

| rule | reference names a namespace | reference names none |
|---|---|---|
| own namespace | must be the namespace of credentials | namespace of credentials |
| explicit, else auth namespace | that one | namespace of credentials |
| auth namespace, whatever it says | ignored | namespace of credentials |

A CA bundle is stricter: an object that may name namespaces must, every other one must not name a foreign one.

Some kinds may only read Secrets that are labelled for them (`SECRET_TYPES`). That is decided here and not by the
provider: it protects Secrets from whoever writes such an object.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, assert_never

import msgspec

from eso_api.references import GENERATORS_GROUP
from eso_api.v2.owned import GENERATOR_CONFIG_GROUP, STORE_CONFIG_GROUP
from eso_operator.stores.target import Reason, ReferenceRule, ResolutionError, ResolvedTarget
from eso_wire import pointers
from eso_wire.values import AudienceRule, AudienceSource, ConfigDelivery, CredentialKind, CredentialPath
from kuberun.meta import ObjectKey

MAX_CREDENTIALS: Final = 256

SECRET_TYPES: Final = {
    (GENERATORS_GROUP, "Webhook"): "webhook",
    (GENERATOR_CONFIG_GROUP, "Webhook"): "webhook",
    (STORE_CONFIG_GROUP, "Webhook"): "webhook",
    (STORE_CONFIG_GROUP, "ClusterWebhook"): "webhook",
}
"""What the label of a Secret must say, by the kind that refers to it: a webhook sends it to any address it likes."""
_V1_SECRET_TYPES: Final = {"webhook": "webhook"}
"""The same for v1 stores, by the key of their block."""
MIN_LIFETIME: Final = 600
MAX_LIFETIME: Final = 24 * 3600
"""What an API server gives: less than ten minutes is refused there, and a day is long enough for any login."""


@dataclass(frozen=True, slots=True)
class SecretKey:
    """One key of a Secret."""

    pointer: str
    object: ObjectKey
    key: str
    type: str = ""
    """What its label `SECRET_TYPE_LABEL` must say; empty for any Secret."""


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
    """Audiences that an annotation of the service account names; known once the account is read."""

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


def reads_of(target: ResolvedTarget) -> tuple[Read, ...]:
    """Every reference that is present in the configuration, once, in the order of the handshake's paths."""
    if target.config.spec is None:
        if target.config.delivery is ConfigDelivery.INLINE:
            raise referent(target, "its configuration")
        return ()
    spec = msgspec.json.decode(target.config.spec)
    reads: dict[str, Read] = {}
    for path, places in _places(target, spec):
        for pointer, reference in places:
            if path.kind is CredentialKind.CA_PROVIDER and _has_bundle(spec, pointer):
                continue  # a bundle that is written out wins
            if pointer not in reads:
                reads[pointer] = _read(target, path, pointer, reference, spec)
            if len(reads) > MAX_CREDENTIALS:
                raise _invalid(target, f"has more than {MAX_CREDENTIALS} references to credentials")
    return tuple(reads.values())


def _places(target: ResolvedTarget, spec: Any) -> Iterator[tuple[CredentialPath, list[pointers.Place]]]:
    """Where each path of the handshake finds something."""
    paths = target.config.credentials
    try:
        yield from zip(paths, pointers.expand(spec, [path.pattern for path in paths]), strict=True)
    except pointers.TooLargeError as problem:
        raise _invalid(target, f"is too large to look for references to credentials in it: {problem}") from None


def referent(target: ResolvedTarget, what: str) -> ResolutionError:
    """Nothing is wrong, and nothing can be read: there is no user whose namespace it would be."""
    return ResolutionError(
        Reason.REFERENT_AUTH,
        f"{target.store.kind} {target.store.name} takes {what} from the namespace of its user; it is checked when it is"
        " used",
        subject=target.store,
    )


def _read(target: ResolvedTarget, path: CredentialPath, pointer: str, reference: Any, spec: Any) -> Read:
    name = _text(target, pointer, reference, "name")
    match path.kind:
        case CredentialKind.SECRET_KEY:
            place = ObjectKey(_namespace(target, pointer, reference), name)
            return SecretKey(pointer, place, _key(target, path, pointer, reference), _type(target))
        case CredentialKind.CONFIG_MAP_KEY:
            place = ObjectKey(_namespace(target, pointer, reference), name)
            return ConfigMapKey(pointer, place, _key(target, path, pointer, reference))
        case CredentialKind.OBJECT_KEY:
            place = ObjectKey(_namespace(target, pointer, reference), name)
            return _of_kind(target, pointer, reference, place, "kind")
        case CredentialKind.WHOLE_SECRET:
            return WholeSecret(pointer, ObjectKey(_namespace(target, pointer, reference), name), _type(target))
        case CredentialKind.SERVICE_ACCOUNT:
            place = ObjectKey(_namespace(target, pointer, reference), name)
            audiences = _audiences(target, path, pointer, reference, spec)
            return AccountToken(pointer, place, audiences, _lifetime(target, path, pointer, spec))
        case CredentialKind.CA_PROVIDER:
            place = ObjectKey(_ca_namespace(target, pointer, reference), name)
            return _of_kind(target, pointer, reference, place, "type")
        case _:
            assert_never(path.kind)


def _of_kind(
    target: ResolvedTarget, pointer: str, reference: dict[str, Any], place: ObjectKey, field: str
) -> SecretKey | ConfigMapKey:
    """The reference itself says whether it names a Secret or a ConfigMap."""
    key = _text(target, pointer, reference, "key")
    match reference.get(field):
        case "ConfigMap":
            return ConfigMapKey(pointer, place, key)
        case "Secret":
            return SecretKey(pointer, place, key)
        case _:
            raise _invalid(target, f"{pointer}/{field} must be Secret or ConfigMap")


def _type(target: ResolvedTarget) -> str:
    """What the label of a Secret must say; a v1 block is judged by its key, whatever kind serves it."""
    return SECRET_TYPES.get((target.config.kind.group, target.config.kind.kind)) or _V1_SECRET_TYPES.get(
        target.config.v1_key, ""
    )


def _key(target: ResolvedTarget, path: CredentialPath, pointer: str, reference: dict[str, Any]) -> str:
    if path.default_key and not reference.get("key"):
        return path.default_key
    return _text(target, pointer, reference, "key")


def _namespace(target: ResolvedTarget, pointer: str, reference: dict[str, Any]) -> str:
    said = reference.get("namespace") or ""
    match target.config.rule:
        case ReferenceRule.OWN_NAMESPACE:
            _check_own(target, pointer, said)
            namespace = target.auth_namespace
        case ReferenceRule.EXPLICIT_OR_AUTH:
            namespace = said or target.auth_namespace
        case ReferenceRule.IGNORE_EXPLICIT:
            namespace = target.auth_namespace
        case other:
            assert_never(other)
    if not namespace:
        raise referent(target, pointer)
    return str(namespace)


def _ca_namespace(target: ResolvedTarget, pointer: str, reference: dict[str, Any]) -> str:
    said = reference.get("namespace") or ""
    if target.config.rule is not ReferenceRule.EXPLICIT_OR_AUTH:
        _check_own(target, pointer, said)
        return _namespace(target, pointer, reference)
    if not said:
        raise _invalid(target, f"{pointer} must name the namespace of the CA bundle")
    return str(said)


def _check_own(target: ResolvedTarget, pointer: str, said: str) -> None:
    if said not in ("", target.auth_namespace):
        raise ResolutionError(
            Reason.CROSS_NAMESPACE,
            f"{_shown(target)}: {pointer} names namespace {said}; credentials may only come from"
            f" {target.auth_namespace or 'the namespace of its user'}",
            subject=target.config.ref,
        )


def _has_bundle(spec: Any, pointer: str) -> bool:
    holder = pointers.at(spec, pointers.parent(pointer))
    return isinstance(holder, dict) and bool(holder.get("caBundle"))


def _text(target: ResolvedTarget, pointer: str, reference: Any, field: str) -> str:
    value = reference.get(field) if isinstance(reference, dict) else None
    if not isinstance(value, str) or not value:
        raise _invalid(target, f"{pointer} needs a {field}")
    if not isinstance(reference.get("namespace") or "", str):
        raise _invalid(target, f"{pointer}/namespace must be a string")
    return value


def _audiences(
    target: ResolvedTarget, path: CredentialPath, pointer: str, reference: dict[str, Any], spec: Any
) -> tuple[str | FromAnnotation, ...]:
    """Those of the provider's rules; without rules, those the provider needs and then those of the reference."""
    said = _texts(target, f"{pointer}/audiences", reference.get("audiences"))
    if not path.audience_rules:
        return tuple(dict.fromkeys((*path.audiences, *said)))
    found: list[str | FromAnnotation] = []
    for rule in path.audience_rules:
        match rule.source:
            case AudienceSource.ANNOTATION:
                found.append(FromAnnotation(rule.names, rule.suffix, rule.otherwise))
            case AudienceSource.TEXT:
                found += _filled(rule, rule.names)
            case AudienceSource.SPEC:
                found += _filled(rule, _in_spec(target, rule, pointer, spec))
            case AudienceSource.REFERENCE:
                found += _filled(rule, said)
            case AudienceSource.STORE:
                found += _filled(rule, (_store_audience(target),))
            case None:
                raise _invalid(
                    target,
                    f"{pointer} needs a token whose audiences this operator cannot compute: upgrade it",
                )
            case _:
                assert_never(rule.source)
    return tuple(dict.fromkeys(found))


def _filled(rule: AudienceRule, names: Sequence[str]) -> list[str]:
    return [f"{name}{rule.suffix}" for name in names if name] or list(rule.otherwise)


def _in_spec(target: ResolvedTarget, rule: AudienceRule, pointer: str, spec: Any) -> tuple[str, ...]:
    """What the configuration says at the first of the rule's places where it says something."""
    for name in rule.names:
        place = pointers.relative(pointer, name)
        if place is not None and (said := pointers.at(spec, place)):
            return _texts(target, place, [said] if isinstance(said, str) else said)
    return ()


def _store_audience(target: ResolvedTarget) -> str:
    store = target.store
    return f"secretStore:{store.namespace}:{store.name}" if store.namespace else f"clusterSecretStore:{store.name}"


def _texts(target: ResolvedTarget, pointer: str, said: Any) -> tuple[str, ...]:
    said = said or []
    if not isinstance(said, list) or not all(isinstance(each, str) for each in said):
        raise _invalid(target, f"{pointer} must be a list of strings")
    return tuple(said)


def _lifetime(target: ResolvedTarget, path: CredentialPath, pointer: str, spec: Any) -> int:
    place = pointers.relative(pointer, path.lifetime_pointer) if path.lifetime_pointer else None
    said = pointers.at(spec, place) if place is not None else None
    if said is None:
        return path.lifetime_seconds
    if isinstance(said, bool) or not isinstance(said, int):
        raise _invalid(target, f"{place} must be a number of seconds")
    return min(max(said, MIN_LIFETIME), MAX_LIFETIME)


def _invalid(target: ResolvedTarget, problem: str) -> ResolutionError:
    return ResolutionError(Reason.INVALID_CONFIG, f"{_shown(target)}: {problem}", subject=target.config.ref)


def _shown(target: ResolvedTarget) -> str:
    ref = target.config.ref
    return f"{ref.kind} {ref.namespace}/{ref.name}" if ref.namespace else f"{ref.kind} {ref.name}"
