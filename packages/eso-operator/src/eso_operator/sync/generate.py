"""Values made by generators, and what must be cleaned up after them.

    intend   -> the call itself is on record, if something may have to be cleaned up after it
    generate -> Made (values, state) -> keep       on record in a GeneratorState before a value is written anywhere
                                     -> retire     it is written: older states of the entry get a deadline
                                     -> discard    it was not: the new state gets a deadline of now
             -> another entry failed -> roll_back  cleaned up at once, or left to the collector if that fails

Both directions go this way: what is written is the target of an ExternalSecret, or the stores of a PushSecret. A push
that reached some stores and not others neither retires nor discards: the others still hold what the older state stands
for. The collector (`generatorstate/`) cleans up what has passed its deadline or lost its owner.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from eso_api.references import GeneratorRef
from eso_api.values import SecretBytes
from eso_operator.stores.target import BoundTarget
from eso_operator.sync.dependencies import Dependency
from eso_wire.values import ObjectRef
from kuberun.meta import ObjectKey, ObjectMeta, Resource


@dataclass(frozen=True, slots=True)
class Intent:
    """A call of a generator, before it is made. `record` is None if nothing has to be cleaned up after it."""

    idempotency_key: str
    record: ObjectKey | None = None
    place: tuple[str, str] = ("", "")
    """For whom, and for which entry of it."""
    asks: str = ""
    """A digest of the generator that is asked: what another one made is not cleaned up in its name."""


@dataclass(frozen=True, slots=True)
class Made:
    """What a generator made for one entry of its owner."""

    index: int
    bound: BoundTarget
    values: dict[str, SecretBytes]
    state: SecretBytes | None = None
    depends_on: frozenset[Dependency] = frozenset()
    refresh_within: float | None = None
    intent: Intent | None = None
    """The call that made it."""


@dataclass(frozen=True, slots=True)
class StateOwner:
    """Who has values made. `entries` name the places for which that can be, by `Made.index`."""

    resource: Resource
    metadata: ObjectMeta
    entries: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Kept:
    """States on record: those of this pass, and those that were there before it."""

    new: tuple[ObjectKey, ...] = ()
    older: tuple[ObjectKey, ...] = ()


class Intents(Protocol):
    """Keeps account of calls whose answer may get lost."""

    async def intend(self, bound: BoundTarget, index: int) -> Intent:
        """Put the call for entry `index` on record. Raises ApiError when that fails; then it must not be made."""
        ...

    async def give_up(self, intent: Intent) -> None:
        """The call made nothing. Never raises."""
        ...


class Generators(Protocol):
    async def generate(self, caller: ObjectRef, index: int, ref: GeneratorRef) -> Made:
        """Values of the generator that entry `index` refers to. Raises ResolutionError, ProviderError."""
        ...


class GeneratorLedger(Protocol):
    """Keeps account of generated state."""

    async def keep(self, owner: StateOwner, made: Sequence[Made]) -> Kept:
        """Put the state on record. Raises ApiError when that fails; then nothing new is left behind."""
        ...

    async def retire(self, kept: Kept) -> None:
        """The new values are in place: those that were there before get a deadline. Never raises."""
        ...

    async def discard(self, kept: Kept) -> None:
        """Nothing was written: nobody will ever see the new values. Never raises."""
        ...

    async def roll_back(self, made: Sequence[Made]) -> None:
        """Nothing will be written: clean up at once, or leave it to the collector. Never raises."""
        ...
