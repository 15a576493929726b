"""The credentials that the operator sent for the references of a configuration.

The operator resolves references; a provider never does. This module finds the value of a reference for the author, and
checks again that no reference points to a forbidden namespace.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec import inspect as types

from eso_api import marks
from eso_api.references import (
    GENERATORS_GROUP,
    CaProvider,
    ObjectKeySelector,
    RequiredSecretKeySelector,
    SecretKeySelector,
    SecretSelector,
    ServiceAccountSelector,
)
from eso_api.values import SecretBytes
from eso_sdk.errors import credentials_not_found, invalid_config
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import (
    AudienceRule,
    AudienceSource,
    Context,
    Credential,
    CredentialKind,
    CredentialPath,
    ObjectRef,
    SecretMap,
    Token,
)

# ---------------------------------------------------------------------------------------------------------------------
# The credential references of a configuration: as patterns of its type, and as pointers in a decoded object.
#
#     type of the config  -> patterns  -> handshake -> the operator resolves the references
#     decoded config      -> pointers  -> `credentials.py` finds the value that was sent for a reference
#
# The type identifies a reference: `SecretKeySelector`, `RequiredSecretKeySelector`, `SecretSelector`,
# `ServiceAccountSelector`, `ObjectKeySelector`, `CaProvider`. Marks on the field (`eso_api.marks`) add what the type
# does not express: a whole Secret or a ConfigMap, a default key, the audience and lifetime of a token.


Reference = (
    SecretKeySelector
    | RequiredSecretKeySelector
    | SecretSelector
    | ServiceAccountSelector
    | ObjectKeySelector
    | CaProvider
)

_KINDS: Final[dict[type, CredentialKind]] = {
    SecretKeySelector: CredentialKind.SECRET_KEY,
    RequiredSecretKeySelector: CredentialKind.SECRET_KEY,
    SecretSelector: CredentialKind.WHOLE_SECRET,
    ServiceAccountSelector: CredentialKind.SERVICE_ACCOUNT,
    ObjectKeySelector: CredentialKind.OBJECT_KEY,
    CaProvider: CredentialKind.CA_PROVIDER,
}
Marks = Mapping[str, Any]
"""The marks of a field, by name."""

_MAX_DEPTH: Final = 32  # a recursive type would never end


def patterns_of(config: type[msgspec.Struct]) -> tuple[CredentialPath, ...]:
    """Return every place in that type where a reference may be."""
    found = {(path.pattern, path.kind): path for path in _in_type(types.type_info(config), "", {}, 0)}
    return tuple(found[key] for key in sorted(found))


@dataclass(frozen=True, slots=True)
class Pointed:
    """One reference in one configuration."""

    pointer: str
    reference: Reference


def references_in(config: Any) -> Iterator[Pointed]:
    """Yield every reference of a decoded configuration with its pointer."""
    yield from _in_value(config, "")


def escaped(segment: str) -> str:
    """Escape a member name for a JSON pointer."""
    return segment.replace("~", "~0").replace("/", "~1")


def _in_type(type_: types.Type, pattern: str, marked: Marks, depth: int) -> Iterator[CredentialPath]:
    if depth > _MAX_DEPTH:
        return
    match type_:
        case types.Metadata(type=inner, extra=extra):
            yield from _in_type(inner, pattern, {**marked, **(extra or {})}, depth)
        case types.StructType(cls=cls) if cls in _KINDS:
            yield _path(pattern, _KINDS[cls], marked)
        case types.StructType(fields=fields):
            for field in fields:
                yield from _in_type(field.type, f"{pattern}/{escaped(field.encode_name)}", {}, depth + 1)
        case types.ListType(item_type=item) | types.DictType(value_type=item):
            yield from _in_type(item, f"{pattern}/*", marked, depth + 1)
        case types.UnionType(types=members):
            for member in members:
                yield from _in_type(member, pattern, marked, depth)
        case _:
            return


def _path(pattern: str, kind: CredentialKind, marked: Marks) -> CredentialPath:
    """Describe one reference, including the marks of its field."""
    if marked.get(marks.WHOLE):
        return CredentialPath(pattern, CredentialKind.WHOLE_SECRET)
    if marked.get(marks.CONFIG_MAP):
        return CredentialPath(pattern, CredentialKind.CONFIG_MAP_KEY)
    if kind is not CredentialKind.SERVICE_ACCOUNT:
        return CredentialPath(pattern, kind, default_key=marked.get(marks.DEFAULT_KEY, ""))
    rules = [AudienceRule(AudienceSource(rule.source), *rule[1:]) for rule in marked.get(marks.AUDIENCES, ())]
    life = marked.get(marks.LIFETIME, marks.Lifetime(0))
    # The fallback for operators that do not support rules.
    plain = tuple(name for rule in rules for name in (rule.names if _is_text(rule) else rule.otherwise))
    if all(map(_is_text, rules)):
        rules = []
    elif all(rule.source is not AudienceSource.REFERENCE for rule in rules):
        rules.append(AudienceRule(AudienceSource.REFERENCE))
    return CredentialPath(
        pattern,
        kind,
        plain,
        audience_rules=tuple(rules),
        lifetime_seconds=life.seconds,
        lifetime_pointer=life.sibling,
    )


def _is_text(rule: AudienceRule) -> bool:
    return rule.source is AudienceSource.TEXT


def _in_value(value: Any, pointer: str) -> Iterator[Pointed]:
    match value:
        case (
            SecretKeySelector()
            | RequiredSecretKeySelector()
            | SecretSelector()
            | ServiceAccountSelector()
            | ObjectKeySelector()
            | CaProvider()
        ):
            yield Pointed(pointer, value)
        case msgspec.Struct():
            names = zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True)
            for name, encoded in names:
                yield from _in_value(getattr(value, name), f"{pointer}/{escaped(encoded)}")
        case list():
            for index, entry in enumerate(value):
                yield from _in_value(entry, f"{pointer}/{index}")
        case dict():
            for name, member in value.items():
                yield from _in_value(member, f"{pointer}/{escaped(str(name))}")
        case _:
            return


# --- The credentials that the operator sent for the references of a configuration ------------------------------------


class Credentials:
    """The credentials of one configuration, by reference."""

    __slots__ = ("_pointed", "_values")

    def __init__(self, config: Any, sent: Iterable[Credential]) -> None:
        self._pointed = tuple(references_in(config))
        self._values = {credential.pointer: credential.value for credential in sent}

    def renew(self, sent: Iterable[Credential]) -> None:
        """Replace tokens by newer ones of the same accounts. Other credentials are part of the session's identity."""
        self._values.update({each.pointer: each.value for each in sent if isinstance(each.value, Token)})

    def secret(self, reference: Reference) -> SecretBytes:
        """Return the value of one key of a Secret, or a CA bundle."""
        pointer, value = self._of(reference)
        if isinstance(value, SecretBytes):
            return value
        raise credentials_not_found(f"{pointer} was not sent as one value")

    def token(self, reference: Reference) -> Token:
        """Return a token of a service account."""
        pointer, value = self._of(reference)
        if isinstance(value, Token):
            return value
        raise credentials_not_found(f"{pointer} was not sent as a token")

    def whole(self, reference: Reference) -> SecretMap:
        """Return all keys of a Secret."""
        pointer, value = self._of(reference)
        if isinstance(value, SecretBytes | Token):
            raise credentials_not_found(f"{pointer} was not sent as a whole Secret")
        return value

    def _of(self, reference: Reference) -> tuple[str, SecretBytes | Token | SecretMap]:
        pointer = self._pointer(reference)
        if pointer not in self._values:
            raise credentials_not_found(f"the operator sent nothing for {pointer}, which names {_named(reference)}")
        return pointer, self._values[pointer]

    def _pointer(self, reference: Reference) -> str:
        """Find the pointer by identity, or by equality for a copy that the author made."""
        same = (found.pointer for found in self._pointed if found.reference is reference)
        equal = (found.pointer for found in self._pointed if found.reference == reference)
        if (pointer := next(same, None) or next(equal, None)) is None:
            raise credentials_not_found("a credential was asked for that the configuration does not refer to")
        return pointer


def check_namespaces(config: Any, context: Context) -> None:
    """Refuse references to a namespace from which credentials must not come.

    Only a cluster-scoped object may name namespaces: its author may read everywhere. v1 generators have always ignored
    the namespace of a reference; there the operator pins it.
    """
    holder = context.config.ref
    if not holder.namespace or holder.api_version.startswith(f"{GENERATORS_GROUP}/"):
        return
    for found in references_in(config):
        if found.reference.namespace not in ("", context.auth_namespace):
            raise _namespace_error(found, context)


def check_scope(context: Context) -> None:
    """Refuse a namespaced store whose caller, configuration or credentials are from another namespace.

    The operator checks this before it calls. The check runs in every call, because an open session does not repeat it.
    """
    store_namespace = context.store.namespace
    used = {
        "caller": context.caller.namespace,
        "configuration": context.config.ref.namespace,
        # Without an auth namespace no credential came from any namespace.
        "credentials": context.auth_namespace or store_namespace,
    }
    for what, namespace in used.items():
        if store_namespace and namespace != store_namespace:
            raise ProviderError(
                ErrorReason.NAMESPACE_DENIED,
                f'the {what} of the call is of namespace "{namespace}", but its store is in "{store_namespace}" and'
                " serves only that; use a cluster-scoped store",
                subject=context.store,
            )


def _namespace_error(found: Pointed, context: Context) -> ProviderError:
    return ProviderError(
        ErrorReason.NAMESPACE_DENIED,
        f'{found.pointer} names namespace "{found.reference.namespace}", but credentials may only come from'
        f' "{context.auth_namespace}"; remove the namespace, or use a cluster-scoped object',
        subject=context.config.ref,
    )


def _named(reference: msgspec.Struct) -> str:
    name, key = getattr(reference, "name", ""), getattr(reference, "key", "")
    return f'"{name}"' + (f', key "{key}"' if key else "")


# --- References that cluster-scoped stores must spell out ------------------------------------------------------------


NamespacedReference = SecretKeySelector | RequiredSecretKeySelector | SecretSelector | ServiceAccountSelector


def require_namespaces(holder: ObjectRef, references: Mapping[str, NamespacedReference | None]) -> None:
    """Require the namespace of each reference in a cluster-scoped store: its caller's Secrets are not meant.

    `references` are by the path of their field. Absent ones pass.
    """
    if holder.namespace:
        return
    for path, reference in references.items():
        if reference is not None and not reference.namespace:
            raise invalid_config(f"{path}/namespace", "must be set in a cluster-scoped store")
