"""The kinds that can be explained, by any name that kubectl accepts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any, Final

from eso_api.crd import CustomKind
from eso_api.externalsecret import CLUSTER_EXTERNAL_SECRET, EXTERNAL_SECRET
from eso_api.generators.clustergenerator import CLUSTER_GENERATOR
from eso_api.generators.generatorstate import GENERATOR_STATE
from eso_api.kinds import GENERATOR_KINDS, KINDS, installed_kinds
from eso_api.pushsecret import CLUSTER_PUSH_SECRET, PUSH_SECRET
from eso_api.v2.generator import CLUSTER_GENERATOR_V2, GENERATOR
from eso_api.v2.owned import GENERATOR_CONFIG_GROUP
from eso_api.v2.providerclass import CLUSTER_PROVIDER_CLASS, PROVIDER_CLASS

AnyKind = CustomKind[Any]


class Role(Enum):
    """How objects of a kind are explained."""

    READS = "ExternalSecret"
    PUSHES = "PushSecret"
    FANS_OUT = "parent of objects in namespaces"
    STORE = "store"
    GENERATOR = "generator"
    STATE = "state of a generator"
    CLASS = "provider class"


_ROLES: Final[dict[AnyKind, Role]] = {
    EXTERNAL_SECRET: Role.READS,
    PUSH_SECRET: Role.PUSHES,
    CLUSTER_EXTERNAL_SECRET: Role.FANS_OUT,
    CLUSTER_PUSH_SECRET: Role.FANS_OUT,
    GENERATOR_STATE: Role.STATE,
    PROVIDER_CLASS: Role.CLASS,
    CLUSTER_PROVIDER_CLASS: Role.CLASS,
    **dict.fromkeys((*GENERATOR_KINDS, CLUSTER_GENERATOR, GENERATOR, CLUSTER_GENERATOR_V2), Role.GENERATOR),
}


_OURS: Final = tuple(kind for kind in KINDS if kind not in GENERATOR_KINDS)
"""Kinds whose names no provider has, so that finding them loads no provider."""


def role_of(kind: AnyKind) -> Role:
    """Return the role; a kind of a provider is a store or a generator by its group."""
    return _ROLES.get(kind, Role.GENERATOR if kind.group == GENERATOR_CONFIG_GROUP else Role.STORE)


def kinds_named(name: str) -> list[AnyKind]:
    """Return the kinds of a name, those of v1 groups first: two groups have a SecretStore. A group selects one.

    The kind of a short name comes first, and kinds of installed providers come last: several have a name of ours.
    """
    return named_among(_OURS, name) or named_among(_all_kinds(), name)


def named_among(kinds: Sequence[AnyKind], name: str) -> list[AnyKind]:
    """Return those of the kinds that have the name."""
    wanted = name.lower()
    names = {kind.name for kind in kinds if wanted in _names(kind)}
    found = [kind for kind in kinds if kind.name in names or wanted in _qualified(kind)]
    return sorted(found, key=lambda kind: wanted not in _names(kind))


def known_names() -> list[str]:
    """Return the names for messages and shell completion, without short names."""
    return sorted({kind.name.lower() for kind in _all_kinds()})


def _all_kinds() -> list[AnyKind]:
    """Return all kinds; without those of a broken provider, which `eso up` reports."""
    return list(dict.fromkeys((*KINDS, *installed_kinds(lambda _name, _problem: None))))


def _names(kind: AnyKind) -> tuple[str, ...]:
    return (kind.name.lower(), kind.plural, *kind.short_names)


def _qualified(kind: AnyKind) -> Iterator[str]:
    for name in _names(kind):
        yield f"{name}.{kind.group}"
        yield from (f"{name}.{version}.{kind.group}" for version in kind.versions)
