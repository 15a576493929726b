"""Kinds owned by a provider: its configuration as an object, referenced directly or through a store.

A provider names the type once; the namespaced kind and, where useful, its cluster-scoped twin are derived from it.
"""

from __future__ import annotations

from typing import TypeVar

from eso_api.conditions import Conditions
from eso_api.crd import CATEGORY, CustomKind, age_column, ready_reason, ready_status
from eso_api.shapes import Fragment
from kubebase.meta import Object

T = TypeVar("T", bound=Object)

STORE_CONFIG_GROUP = "provider.secretstore.external-secrets.io"
GENERATOR_CONFIG_GROUP = "provider.generator.external-secrets.io"
OWNED_COLUMNS = (age_column("AGE"), ready_reason("Status"), ready_status("Ready"))


class OwnedStatus(Fragment, frozen=True, kw_only=True):
    """The provider's verdict on its configuration."""

    conditions: Conditions = []
    """Ready says whether the configuration can be used."""
    observed_generation: int = 0
    """Generation to which the conditions refer."""


def namespaced_config(
    type_: type[T], group: str, plural: str, categories: tuple[str, ...] = (CATEGORY,)
) -> CustomKind[T]:
    """Define a provider's configuration inside one namespace."""
    return CustomKind(
        type_, group=group, plural=plural, versions=("v2alpha1",), categories=categories, columns=OWNED_COLUMNS
    )


def cluster_config(type_: type[T], group: str, plural: str) -> CustomKind[T]:
    """Define a provider's configuration for many namespaces."""
    return CustomKind(
        type_, group=group, plural=plural, versions=("v2alpha1",), namespaced=False, columns=OWNED_COLUMNS
    )
