"""The GeneratorState controller: keeps states, deletes them at their deadline, and cleans up before they are removed.

    state -> decide -> hold it by a finalizer | delete it | clean up -> remove the finalizer

The kind has no status, so events and the log report errors. Neither ever contains a generated value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, assert_never

import structlog

from eso_api.generators.generatorstate import GENERATOR_STATE, GeneratorState
from eso_operator.controllers.base import Event, EventPublisher, Reconciler, TerminatingNamespaces
from eso_operator.controllers.generatorstate.checks import (
    CleanUp,
    CleanupLimits,
    Delete,
    Hold,
    Ignore,
    Tried,
    Trouble,
    decide,
    has_no_cleanup,
    is_off,
    is_over,
)
from eso_operator.controllers.generatorstate.sync import Cleaner
from eso_operator.dependencies import ANY_PROVIDER, Dependant, Dependencies, Dependency, on_object
from eso_operator.generators.ledger import FINALIZER, IDEMPOTENCY_KEY
from eso_operator.memory import Memory, Record
from eso_operator.stores.resolved import Reason, ResolutionError
from eso_operator.telemetry.subsystems import Subsystem
from eso_wire.errors import ProviderError
from kubebase.meta import ObjectKey
from kuberun.cache import Cache
from kuberun.client import Client
from kuberun.controller import Backoff, Done, ReconcileContext, Requeue, Result
from kuberun.errors import NotFound
from kuberun.events import EventType
from kuberun.ownership import add_finalizer, remove_finalizer
from kuberun.requests import DeleteOptions

_KIND: Final = GENERATOR_STATE.kind()
_RESOURCE: Final = GENERATOR_STATE.resource()

_log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class StateRecord(Record):
    """The record of one GeneratorState (`eso_operator.memory`)."""

    attempts: int = 0
    """Failed clean-ups of a state that is being deleted, since the process started. If lost, counting restarts."""


@dataclass(frozen=True, slots=True)
class StateDeps:
    """The dependencies of the reconciler."""

    client: Client
    cleaner: Cleaner
    dependencies: Dependencies
    memory: Memory[StateRecord]
    publisher: EventPublisher
    terminating: TerminatingNamespaces
    limits: CleanupLimits = field(default_factory=CleanupLimits)
    is_off: Callable[[GeneratorState], bool] = lambda _: False
    """Return whether the generator of a state is of a kind that is turned off: its values stay until it is on again."""


class GeneratorStateReconciler(Reconciler[GeneratorState]):
    """Reconciles GeneratorStates. The process has one."""

    def __init__(self, states: Cache[GeneratorState], deps: StateDeps) -> None:
        super().__init__(states, deps.memory)
        self._deps = deps

    async def reconcile(self, obj: GeneratorState, ctx: ReconcileContext) -> Result:
        """Decide what happens to the state, and do it."""
        try:
            return await self._act(obj, ctx.now)
        except NotFound:
            return self._finished(obj.metadata.key)

    async def _act(self, state: GeneratorState, now: datetime) -> Result:
        client, meta = self._deps.client, state.metadata
        match decide(state, now):
            case Hold(seconds=seconds):
                await add_finalizer(client, _KIND, meta, FINALIZER)
                return Done() if seconds is None else Requeue(seconds, "deadline")
            case Delete() if self._deps.is_off(state):
                return Done()
            case Delete():
                written = await add_finalizer(client, _KIND, meta, FINALIZER)
                latest = meta if written is None else written.metadata
                # Delete only the version that was read: if its deadline changed since then, the value is in use.
                exactly = DeleteOptions(uid=latest.uid, resource_version=latest.resource_version)
                await client.delete(_KIND, meta.key, exactly)
                return Done()  # the start of the deletion comes back as an event
            case CleanUp(waited=waited):
                return await self._clean_up(state, waited)
            case Ignore():
                return self._finished(meta.key)
            case other:
                assert_never(other)

    async def _clean_up(self, state: GeneratorState, waited: float) -> Result:
        try:
            await self._deps.cleaner.clean(state, lambda on: self._depend(state.metadata.key, on))
        except (ResolutionError, ProviderError) as error:
            return await self._failed(state, error, waited)
        return await self._release(state)

    async def _failed(self, state: GeneratorState, error: Trouble, waited: float) -> Result:
        """Retry, or abandon the state."""
        key, what = state.metadata.key, generator_of(state)
        if error.reason is Reason.UNMANAGED:
            return self._finished(key)  # another operator created it and cleans it up
        if has_no_cleanup(error):
            _log.info("generator has no clean-up, its state is let go", state=str(key), generator=what)
            return await self._release(state)
        terminating = self._deps.terminating.ending(key.namespace) is not None
        if isinstance(error, ResolutionError) and error.waits > 0 and not terminating:
            self._depend(key, frozenset({ANY_PROVIDER, on_object(error.subject)}))
            return Requeue(max(error.waits, 1.0), "the provider has had its time to start")
        record = self._deps.memory.of(key, state.metadata.uid)
        record.attempts += 1
        attempts = record.attempts
        if is_over(error, Tried(attempts, waited, terminating), self._deps.limits):
            self._publish(state, orphaned(state, error))
            _log.warning("generated state is let go", state=str(key), generator=what, why=error.reason)
            return await self._release(state)
        if isinstance(error, ResolutionError):
            self._depend(key, frozenset({ANY_PROVIDER, on_object(error.subject)}))
        self._publish(state, not_cleaned(state, error))
        _log.info("generated state not cleaned up yet", state=str(key), generator=what, why=error.reason)
        return Backoff(
            f"not cleaned up: {error.reason}", error.retry_after if isinstance(error, ProviderError) else 0.0
        )

    async def _release(self, state: GeneratorState) -> Result:
        await remove_finalizer(self._deps.client, _KIND, state.metadata, FINALIZER)
        return self._finished(state.metadata.key)

    def _publish(self, state: GeneratorState, events: Event) -> None:
        self._deps.publisher.publish_events(_RESOURCE, state.metadata, events)

    def _depend(self, key: ObjectKey, on: frozenset[Dependency]) -> None:
        self._deps.dependencies.record(Dependant(Subsystem.GENERATOR_STATE, key), on)

    def _finished(self, key: ObjectKey) -> Result:
        self._deps.memory.forget(key)
        return Done()


# --- events -----------------------------------------------------------------------------------------------------------


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
