"""The events about a GeneratorState that is not cleaned up. Pure.

    result of a clean-up              event            then
    it failed, and is retried         CleanupFailed    back-off
    it failed for too long            Orphaned         the state is deleted; the value stays in its backend

The kind has no status, so events are the only report.
"""

from __future__ import annotations

from typing import Any

from eso_api.generators.generatorstate import GeneratorState
from eso_operator.controllers.base import Event
from eso_operator.controllers.generatorstate.checks import Trouble, is_off
from eso_operator.generators.ledger import FINALIZER, IDEMPOTENCY_KEY
from kuberun.events import EventType


def orphaned(state: GeneratorState, error: Trouble) -> Event:
    message = f"{_made(state)} could not be cleaned up and stays behind in its backend: {error.message}"
    return Event(EventType.WARNING, "Orphaned", message)


def not_cleaned(state: GeneratorState, error: Trouble) -> Event:
    message = f"{_made(state)} is not cleaned up yet: {error.message}"
    if is_off(error):
        message += f"; to leave it behind in its backend, remove the finalizer {FINALIZER} of this GeneratorState"
    return Event(EventType.WARNING, "CleanupFailed", message)


def _made(state: GeneratorState) -> str:
    """Describe the values to clean up; they are unknown for a call whose response was lost."""
    lost = state.metadata.annotations.get(IDEMPOTENCY_KEY)
    if lost:
        return f"What {generator_of(state)} may have made in a call without answer (idempotency key {lost})"
    return f"What {generator_of(state)} made"


def generator_of(state: GeneratorState) -> str:
    """Return the generator for messages."""
    resource: Any = state.spec.resource
    stored = resource if isinstance(resource, dict) else {}
    metadata = stored.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return f"{stored.get('kind') or 'a generator'} {name or state.metadata.name}"
