"""The dependencies of the reconciler of ExternalSecrets, each as a narrow Protocol."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from eso_api.externalsecret import ExternalSecret
from eso_operator.changes.watchedkeys import ReadState, WatchedKey
from eso_operator.controllers.contention import Allowance, Bucket
from eso_operator.controllers.externalsecret.cleanup import Cleanup
from eso_operator.controllers.externalsecret.gather import Gatherer
from eso_operator.controllers.externalsecret.loops import Loops
from eso_operator.controllers.externalsecret.settlement import Settlement
from eso_operator.dependencies.dependencies import Dependencies, OnObject
from eso_operator.generators.values import GeneratorLedger
from eso_operator.memory import Memory
from eso_operator.report.reporter import Reporter
from eso_operator.sources.results import Fetched
from eso_operator.targets.target import Target
from kubebase.clock import Clock
from kubebase.meta import ObjectKey


class Fetches(Protocol):
    """Reads the values of ExternalSecrets: `sources.fetch.Fetcher`."""

    async def fetch(self, es: ExternalSecret, *, notified_at: float | None = None) -> Fetched:
        """Return the values and failures of all entries. Never raises."""
        ...

    async def watched_keys(self, es: ExternalSecret) -> tuple[WatchedKey, ...]:
        """Return the reads whose providers can announce changes. Raises ResolutionError, ProviderError."""
        ...

    def watchable_stores(self, es: ExternalSecret) -> frozenset[OnObject]:
        """Return the stores that can announce changes. Raises ResolutionError."""
        ...


class Changes(Protocol):
    """Announces changes at backends: `changes.feed.ChangeFeed`."""

    def subscribe(
        self, key: ObjectKey, watched_keys: Sequence[WatchedKey], read_state: ReadState = ReadState.PART
    ) -> None:
        """Notify the object when one of these reads changes. Replaces its former reads."""
        ...

    def unsubscribe(self, key: ObjectKey) -> None:
        """Stop notifying the object."""
        ...

    def stores_of(self, key: ObjectKey) -> frozenset[OnObject]:
        """Return the stores whose changes the object follows."""
        ...

    def mark_read(self, key: ObjectKey, at: float | None) -> None:
        """Record that the object has read the change that was announced at that time."""
        ...


class Repaired(Protocol):
    """The fields of a record that are used here."""

    uid: str
    repairs: Bucket | None
    """The allowance for repairs, while another writer keeps changing the target."""


@dataclass(frozen=True, slots=True)
class Outside:
    """The dependencies of the reconciler."""

    clock: Clock
    gatherer: Gatherer
    fetcher: Fetches
    ledger: GeneratorLedger
    settlement: Settlement
    cleanup: Cleanup
    memory: Memory[Repaired]
    repairs: Allowance
    loops: Loops
    dependencies: Dependencies
    reporter: Reporter[ExternalSecret]
    target_of: Callable[[ExternalSecret], Target]
    changes: Changes
