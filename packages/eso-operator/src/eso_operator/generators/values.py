"""Generated values, and the records of what must be cleaned up after them.

    intend   -> the call is recorded in a GeneratorState, if the generator may need a clean-up
    generate -> Made (values, state) -> keep       record the state before a value is written
                                     -> retire     the values were written: older states of the entry get a deadline
                                     -> discard    they were not: the new state gets a deadline of now
             -> another entry failed -> roll_back  clean up at once; if that fails, leave it to the collector

ExternalSecrets write the values to their target, PushSecrets to their stores. A push that reached only some of its
stores neither retires nor discards, because the other stores still hold values of an older state. The collector
(`controllers/generatorstate/`) cleans up states that passed their deadline or lost their owner.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol

from eso_api.references import GeneratorRef
from eso_api.values import SecretBytes
from eso_operator.dependencies.dependencies import Dependency
from eso_operator.stores.resolved import BoundStore
from eso_wire.values import ObjectRef
from kubebase.meta import ObjectKey, ObjectMeta, Resource


@dataclass(frozen=True, slots=True)
class Intent:
    """A planned call of a generator. `record` is None if the call needs no clean-up."""

    idempotency_key: str
    record: ObjectKey | None = None
    owner: ObjectKey | None = None
    entry: str = ""
    """The name of the owner's entry."""
    asks: str = ""
    """A digest of the generator, so that a changed generator never takes over the intent of the former one."""


@dataclass(frozen=True, slots=True)
class Made:
    """The values and state that a generator returned for one entry of its owner."""

    index: int
    bound: BoundStore
    values: dict[str, SecretBytes]
    state: SecretBytes | None = None
    depends_on: frozenset[Dependency] = frozenset()
    refresh_within: float | None = None
    intent: Intent | None = None
    """The call that returned it."""


@dataclass(frozen=True, slots=True)
class StateOwner:
    """The owner of generated values. `entries` are the names of its entries, by `Made.index`."""

    resource: Resource
    metadata: ObjectMeta
    entries: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Kept:
    """The recorded states: new ones of this reconcile, and older ones."""

    new: tuple[ObjectKey, ...] = ()
    older: tuple[ObjectKey, ...] = ()


class HasIntents(Protocol):
    """The fields of the owner's record that are used here."""

    uid: str
    intents: Mapping[str, Intent]
    """By entry: calls whose answer got lost. A retry repeats such a call under the same idempotency key."""


NO_INTENTS: Final[Mapping[str, Intent]] = MappingProxyType({})


class Intents(Protocol):
    """Record of calls whose answer may get lost."""

    async def intend(self, bound: BoundStore, index: int) -> Intent:
        """Record the call for entry `index`. Raises ApiError if that fails; then the call must not be made."""
        ...

    async def give_up(self, intent: Intent) -> None:
        """Record that the call made nothing. Never raises."""
        ...

    async def roll_back(self, made: Sequence[Made]) -> None:
        """Clean up new states at once, or leave them to the collector if that fails. Never raises."""
        ...


class Generators(Protocol):
    async def generate(self, caller: ObjectRef, index: int, ref: GeneratorRef) -> Made:
        """Generate the values of entry `index`. Raises ResolutionError, ProviderError."""
        ...


class GeneratorLedger(Protocol):
    """Record of generated state."""

    async def keep(self, owner: StateOwner, made: Sequence[Made]) -> Kept:
        """Record the states. If that fails, discard or clean up the new states and raise ApiError."""
        ...

    async def retire(self, kept: Kept) -> None:
        """Give older states a deadline, after the new values were written. Never raises."""
        ...

    async def retire_all_but(self, owner: StateOwner, in_use: Collection[str]) -> None:
        """Give every state of the owner a deadline, except these, after an interrupted run. Never raises."""
        ...

    async def discard(self, kept: Kept) -> None:
        """Give new states a deadline of now, because their values were not written. Never raises."""
        ...

    async def roll_back(self, made: Sequence[Made]) -> None:
        """Clean up new states at once, or leave them to the collector if that fails. Never raises."""
        ...
