"""GeneratorState: generated values that need a later cleanup. Written by the operator, not by users."""

from __future__ import annotations

import msgspec

from eso_api.common import Conditions
from eso_api.crd import GENERATOR_CATEGORIES, CustomKind, age_column, string_column
from eso_api.references import GENERATORS_GROUP
from eso_api.shapes import Fragment, Json, Timestamp
from kubebase.meta import Object


class GeneratorStateSpec(Fragment, frozen=True, kw_only=True):
    """The generated value, its generator, and how long it is kept."""

    resource: Json
    """The generator at the time of the generation."""
    state: Json
    """The state that the generator needs for the clean-up."""
    garbage_collection_deadline: Timestamp = None
    """When it is cleaned up; absent means when its owner is deleted."""


class GeneratorStateStatus(Fragment, frozen=True, kw_only=True):
    """The state of the clean-up."""

    conditions: Conditions = []
    """Ready says whether the state is in use."""


class GeneratorState(Object, kw_only=True):
    """Generated values that need a later cleanup."""

    spec: GeneratorStateSpec
    status: GeneratorStateStatus = msgspec.field(default_factory=GeneratorStateStatus)


GENERATOR_STATE = CustomKind(
    GeneratorState,
    group=GENERATORS_GROUP,
    plural="generatorstates",
    versions=("v1alpha1",),
    short_names=("gs",),
    categories=GENERATOR_CATEGORIES,
    columns=(string_column("GC Deadline", ".spec.garbageCollectionDeadline"), age_column("Age")),
    status=False,
)
