"""Values that a provider creates, and the state to remove them again."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from eso_api.values import SecretBytes
from eso_wire.messages.calls import SecretMap
from eso_wire.messages.reading import ValueMetadata


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """Create values. Equal idempotency keys give the same state if the backend supports it."""

    idempotency_key: str = ""
    previous_state: SecretBytes | None = None


@dataclass(frozen=True, slots=True)
class Generated:
    """Created values and the state to clean them up; without state there is nothing to clean up."""

    data: SecretMap
    state: SecretBytes | None = None
    metadata: ValueMetadata = field(default_factory=ValueMetadata)

    @property
    def size(self) -> int:
        """Return the bytes of keys, values and state."""
        values = sum(len(key) + len(value) for key, value in self.data.items())
        return values + (0 if self.state is None else len(self.state))


@dataclass(frozen=True, slots=True)
class CleanupRequest:
    """Undo one generation. Idempotent.

    State is missing if the answer of Generate was lost; then the idempotency key is that of the lost call.
    """

    state: SecretBytes
    idempotency_key: str = ""


class CleanupOutcome(StrEnum):
    CLEANED = "CLEANED"
    ALREADY_GONE = "ALREADY_GONE"
