"""The credential references of a configuration: as patterns of its type, and as pointers in a decoded object.

    type of the config  -> patterns  -> handshake -> the operator resolves the references
    decoded config      -> pointers  -> `credentials.py` finds the value that was sent for a reference

The type identifies a reference: `SecretKeySelector`, `RequiredSecretKeySelector`, `SecretSelector`,
`ServiceAccountSelector`, `ObjectKeySelector`, `CaProvider`. Marks on the field (`eso_api.marks`) add what the type does
not express: a whole Secret or a ConfigMap, a default key, the audience and lifetime of a token.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec import inspect as types

from eso_api import marks
from eso_api.references import (
    CaProvider,
    ObjectKeySelector,
    RequiredSecretKeySelector,
    SecretKeySelector,
    SecretSelector,
    ServiceAccountSelector,
)
from eso_wire.values import AudienceRule, AudienceSource, CredentialKind, CredentialPath

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
