"""A provider's verdict on a configuration."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from eso_wire.errors import ProviderError
from eso_wire.messages.kinds import Operation
from eso_wire.messages.names import ObjectRef


class ValidationMode(StrEnum):
    """The depth of a validation: STATIC makes no backend call (admission), FULL may."""

    FULL = "FULL"
    STATIC = "STATIC"


class ValidationState(StrEnum):
    READY = "READY"
    UNKNOWN = "UNKNOWN"
    INVALID = "INVALID"


@dataclass(frozen=True, slots=True)
class ConditionReport:
    """A condition that the provider wants shown on the store."""

    type: str
    status: str
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Validation:
    """A provider's verdict on a configuration. `operations` None means all operations of the kind."""

    state: ValidationState
    warnings: tuple[str, ...] = ()
    error: ProviderError | None = None
    operations: frozenset[Operation] | None = None
    conditions: tuple[ConditionReport, ...] = ()
    dependencies: tuple[ObjectRef, ...] = ()
