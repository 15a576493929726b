"""What a provider thinks of a configuration."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from eso_wire.errors import ProviderError
from eso_wire.values.calls import ObjectRef
from eso_wire.values.kinds import Operation


class ValidationMode(StrEnum):
    """How far a validation goes: STATIC asks no backend (admission), FULL may."""

    FULL = "FULL"
    STATIC = "STATIC"


class ValidationState(StrEnum):
    READY = "READY"
    UNKNOWN = "UNKNOWN"
    INVALID = "INVALID"


@dataclass(frozen=True, slots=True)
class ConditionReport:
    """A condition the provider wants shown on the store."""

    type: str
    status: str
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Validation:
    """What a provider thinks of a configuration. `operations` None means: all that the kind has."""

    state: ValidationState
    warnings: tuple[str, ...] = ()
    error: ProviderError | None = None
    operations: frozenset[Operation] | None = None
    conditions: tuple[ConditionReport, ...] = ()
    dependencies: tuple[ObjectRef, ...] = ()
