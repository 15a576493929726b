"""Values made by a provider, and the state to undo that."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from eso_api.values import SecretBytes
from eso_wire.values.calls import SecretMap
from eso_wire.values.reading import ValueMetadata


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """Make values. Equal idempotency keys give the same state where the backend can do that."""

    idempotency_key: str = ""
    previous_state: SecretBytes | None = None


@dataclass(frozen=True, slots=True)
class Generated:
    """Values made, and what is needed to clean up after them; no state, nothing to clean up."""

    data: SecretMap
    state: SecretBytes | None = None
    metadata: ValueMetadata = field(default_factory=ValueMetadata)


@dataclass(frozen=True, slots=True)
class CleanupRequest:
    """Undo one generation. Repeating it is harmless.

    Without state the answer of Generate got lost, and the key is the one of that call.
    """

    state: SecretBytes
    idempotency_key: str = ""


class CleanupOutcome(StrEnum):
    CLEANED = "CLEANED"
    ALREADY_GONE = "ALREADY_GONE"
