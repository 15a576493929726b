"""The common definition of all v1alpha1 generators as API kinds."""

from __future__ import annotations

from typing import TypeVar

from eso_api.crd import CATEGORY, GENERATOR_CATEGORY, CustomKind
from eso_api.references import GENERATORS_GROUP
from kubebase.meta import Object

T = TypeVar("T", bound=Object)

GENERATOR_CATEGORIES = (CATEGORY, GENERATOR_CATEGORY)


def generator_kind(type_: type[T], plural: str) -> CustomKind[T]:
    """Define a namespaced generator. As existing clients expect, it has a status subresource, which stays empty."""
    return CustomKind(
        type_, group=GENERATORS_GROUP, plural=plural, versions=("v1alpha1",), categories=GENERATOR_CATEGORIES
    )
