"""Where a configuration refers to credentials: in its type, as patterns, and in one decoded object, as pointers.

    type of the config  -> patterns  -> handshake -> the operator reads what the references name
    decoded config      -> pointers  -> `credentials.py` finds what was sent for one reference

A reference is known by its type: `SecretKeySelector`, `RequiredSecretKeySelector`, `SecretSelector`,
`ServiceAccountSelector`, `CaProvider`; `WholeSecret` is the first of them, read whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec import inspect as types

from eso_api.references import (
    CaProvider,
    RequiredSecretKeySelector,
    SecretKeySelector,
    SecretSelector,
    ServiceAccountSelector,
)
from eso_wire.values import CredentialKind, CredentialPath

Reference = SecretKeySelector | RequiredSecretKeySelector | SecretSelector | ServiceAccountSelector | CaProvider

_KINDS: Final[dict[type, CredentialKind]] = {
    SecretKeySelector: CredentialKind.SECRET_KEY,
    RequiredSecretKeySelector: CredentialKind.SECRET_KEY,
    SecretSelector: CredentialKind.WHOLE_SECRET,
    ServiceAccountSelector: CredentialKind.SERVICE_ACCOUNT,
    CaProvider: CredentialKind.CA_PROVIDER,
}
_MAX_DEPTH: Final = 32  # a type that refers to itself would go on forever


def audiences(*names: str) -> msgspec.Meta:
    """For a `ServiceAccountSelector` field: whom the backend wants tokens to be for."""
    return msgspec.Meta(extra={"audiences": names})


def patterns_of(config: type[msgspec.Struct]) -> tuple[CredentialPath, ...]:
    """Every place in that type where a reference may stand."""
    found = {(path.pattern, path.kind): path for path in _in_type(types.type_info(config), "", (), 0)}
    return tuple(found[key] for key in sorted(found))


@dataclass(frozen=True, slots=True)
class Pointed:
    """One reference in one configuration."""

    pointer: str
    reference: Reference


def references_in(config: Any) -> Iterator[Pointed]:
    """Every reference of a decoded configuration, with the pointer to it."""
    yield from _in_value(config, "")


def escaped(segment: str) -> str:
    """A member name as a JSON pointer spells it."""
    return segment.replace("~", "~0").replace("/", "~1")


def _in_type(type_: types.Type, pattern: str, wanted: tuple[str, ...], depth: int) -> Iterator[CredentialPath]:
    if depth > _MAX_DEPTH:
        return
    match type_:
        case types.Metadata(extra={"whole": True}):
            yield CredentialPath(pattern, CredentialKind.WHOLE_SECRET)
        case types.Metadata(type=inner, extra=extra):
            yield from _in_type(inner, pattern, tuple((extra or {}).get("audiences", wanted)), depth)
        case types.StructType(cls=cls) if cls in _KINDS:
            yield CredentialPath(pattern, _KINDS[cls], wanted)
        case types.StructType(fields=fields):
            for field in fields:
                yield from _in_type(field.type, f"{pattern}/{escaped(field.encode_name)}", (), depth + 1)
        case types.ListType(item_type=item) | types.DictType(value_type=item):
            yield from _in_type(item, f"{pattern}/*", wanted, depth + 1)
        case types.UnionType(types=members):
            for member in members:
                yield from _in_type(member, pattern, wanted, depth)
        case _:
            return


def _in_value(value: Any, pointer: str) -> Iterator[Pointed]:
    match value:
        case (
            SecretKeySelector()
            | RequiredSecretKeySelector()
            | SecretSelector()
            | ServiceAccountSelector()
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
