"""The GeneratorState controller: keeps, deletes when the time is over, cleans up before it lets go.

    state -> decide -> hold it by a finalizer | delete it | clean up -> let go

The kind has no status, so what goes wrong is told by events and the log. What was made is never in either.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, assert_never

import structlog

from eso_api.generators.generatorstate import GENERATOR_STATE, GeneratorState
from eso_operator.generatorstate.cleaner import WentBy
from eso_operator.generatorstate.decide import (
    CleanUp,
    Delete,
    Home,
    Ignore,
    Keep,
    Limits,
    Tried,
    Trouble,
    decide,
    has_no_cleanup,
    is_over,
)
from eso_operator.stores.target import Connection, Reason, ResolutionError
from eso_operator.sync.dependencies import ANY_PROVIDER, Dependant, Dependencies, Dependency, on_object
from eso_operator.sync.homes import Homes
from eso_operator.sync.ledger import FINALIZER, IDEMPOTENCY_KEY
from eso_operator.telemetry.objects import Subsystem
from eso_wire.errors import ProviderError
from kuberun.cache import Store
from kuberun.client import Client
from kuberun.clock import Clock
from kuberun.controller import After, Done, Outcome, Retry
from kuberun.errors import ApiError, Conflict, NotFound
from kuberun.events import EventRecorder, EventType
from kuberun.meta import Malformed, Object, ObjectKey
from kuberun.ownership import add_finalizer, remove_finalizer
from kuberun.requests import DeleteOptions

_KIND: Final = GENERATOR_STATE.kind()
_RESOURCE: Final = GENERATOR_STATE.resource()

_log = structlog.get_logger(__name__)


class CleansStates(Protocol):
    async def clean(self, state: GeneratorState, went_by: WentBy) -> None: ...


@dataclass(frozen=True, slots=True)
class Outside:
    """Everything the reconciler acts on."""

    client: Client
    clock: Clock
    cleaner: CleansStates
    dependencies: Dependencies
    forget_connection: Callable[[Connection], None]
    recorder: EventRecorder
    namespaces: Store[Object]
    limits: Limits = field(default_factory=Limits)


class GeneratorStateReconciler:
    """One for the process. `attempts` are those since the process started, of states that are being deleted."""

    def __init__(self, states: Store[GeneratorState], outside: Outside) -> None:
        self._states = states
        self._outside = outside
        self._homes = Homes(outside.namespaces)
        self._attempts: dict[ObjectKey, int] = {}

    async def reconcile(self, key: ObjectKey) -> Outcome:
        state = self._states.get(key)
        if isinstance(state, Malformed):
            return Done()  # told by `sync.misfits`
        if state is None:
            return self._finished(key)
        try:
            return await self._act(state)
        except NotFound:
            return self._finished(key)
        except Conflict:
            return Retry("the GeneratorState changed meanwhile")
        except ApiError as problem:
            return Retry(f"the API server answered {problem.reason or problem.code}")

    async def _act(self, state: GeneratorState) -> Outcome:
        client, meta = self._outside.client, state.metadata
        match decide(state, self._outside.clock.now()):
            case Keep(seconds=seconds):
                await add_finalizer(client, _KIND, meta, FINALIZER)
                return Done() if seconds is None else After(seconds, "deadline")
            case Delete():
                held = await add_finalizer(client, _KIND, meta, FINALIZER)
                seen = meta if held is None else held.metadata
                # Exactly what was seen: where the deadline was moved or taken back meanwhile, it is in use.
                exactly = DeleteOptions(uid=seen.uid, resource_version=seen.resource_version)
                await client.delete(_KIND, meta.key, exactly)
                return Done()  # that deletion has begun comes back as an event
            case CleanUp(waited=waited):
                return await self._clean_up(state, waited)
            case Ignore():
                return self._finished(meta.key)
            case other:
                assert_never(other)

    async def _clean_up(self, state: GeneratorState, waited: float) -> Outcome:
        try:
            await self._outside.cleaner.clean(state, lambda on: self._depend(state.metadata.key, on))
        except (ResolutionError, ProviderError) as error:
            return await self._failed(state, error, waited)
        return await self._let_go(state)

    async def _failed(self, state: GeneratorState, error: Trouble, waited: float) -> Outcome:
        """Try again, or let go."""
        key, what = state.metadata.key, _name_of(state)
        if error.reason is Reason.UNMANAGED:
            return self._finished(key)  # another operator made it, and cleans up after it
        if has_no_cleanup(error):
            _log.info("generator has no clean-up, its state is let go", state=str(key), generator=what)
            return await self._let_go(state)
        attempts = self._attempts[key] = self._attempts.get(key, 0) + 1
        home = Home.STAYS if self._homes.ending(key.namespace) is None else Home.ENDS
        if is_over(error, Tried(attempts, waited, home), self._outside.limits):
            message = f"{_made(state)} could not be cleaned up and stays behind in its backend: {error.message}"
            self._tell(state, "Orphaned", message)
            _log.warning("generated state is let go", state=str(key), generator=what, why=error.reason)
            return await self._let_go(state)
        if isinstance(error, ResolutionError):
            self._depend(key, frozenset({ANY_PROVIDER, on_object(error.subject)}))
        self._tell(state, "CleanupFailed", f"{_made(state)} is not cleaned up yet: {error.message}")
        _log.info("generated state not cleaned up yet", state=str(key), generator=what, why=error.reason)
        return Retry(f"not cleaned up: {error.reason}", error.retry_after if isinstance(error, ProviderError) else 0.0)

    async def _let_go(self, state: GeneratorState) -> Outcome:
        await remove_finalizer(self._outside.client, _KIND, state.metadata, FINALIZER)
        return self._finished(state.metadata.key)

    def _tell(self, state: GeneratorState, reason: str, message: str) -> None:
        resource, about = self._homes.subject(_RESOURCE, state.metadata)
        self._outside.recorder.record(resource, about, EventType.WARNING, reason, message)

    def _depend(self, key: ObjectKey, on: frozenset[Dependency]) -> None:
        dependant = Dependant(Subsystem.GENERATOR_STATE, key)
        for unused in self._outside.dependencies.record(dependant, on):
            self._outside.forget_connection(unused)

    def _finished(self, key: ObjectKey) -> Outcome:
        self._attempts.pop(key, None)
        self._depend(key, frozenset())
        return Done()


def _made(state: GeneratorState) -> str:
    """What there is to clean up, for people; of a call whose answer got lost nobody knows."""
    lost = state.metadata.annotations.get(IDEMPOTENCY_KEY)
    if lost:
        return f"What {_name_of(state)} may have made in a call without answer (idempotency key {lost})"
    return f"What {_name_of(state)} made"


def _name_of(state: GeneratorState) -> str:
    """The generator, for people."""
    resource: Any = state.spec.resource
    stored = resource if isinstance(resource, dict) else {}
    metadata = stored.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return f"{stored.get('kind') or 'a generator'} {name or state.metadata.name}"
