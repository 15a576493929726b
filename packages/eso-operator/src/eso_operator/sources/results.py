"""The result of reading all entries of an ExternalSecret, as values. `fetch.py` makes it, controllers use it."""

from __future__ import annotations

from dataclasses import dataclass, field

from eso_api.values import SecretBytes
from eso_operator.changes.followers import ReadState, WatchedKey
from eso_operator.dependencies.dependencies import Dependency
from eso_operator.generators.ledger import GeneratedValues
from eso_operator.sources.entries import ReadEntry
from eso_wire.errors import RetryClass


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason why one entry has no value. The message never contains a value."""

    path: str
    reason: str
    message: str
    remote_key: str = ""
    store: str = ""
    retry: RetryClass = RetryClass.BACKOFF
    retry_after: float = 0.0
    waits: float = 0.0
    """Seconds during which it does not count as a failure, because a provider is starting; 0 if it does."""
    unreachable: bool = False
    """True if the provider was not reached: its return causes the next attempt."""


@dataclass(frozen=True, slots=True)
class Missing:
    """An entry whose remote key does not exist, where the deletion policy allows that."""

    path: str
    remote_key: str


@dataclass(frozen=True, slots=True)
class Fetched:
    """The result of all entries. A change of one of `depends_on` wakes the ExternalSecret."""

    values: dict[str, SecretBytes]
    missing: tuple[Missing, ...] = ()
    failures: tuple[Failure, ...] = ()
    depends_on: frozenset[Dependency] = frozenset()
    made: tuple[GeneratedValues, ...] = ()
    refresh_within: float | None = None
    """Seconds until the first source wants to be read again; None if no source says so."""
    watched_keys: tuple[WatchedKey, ...] = ()
    """The reads whose providers can announce changes."""
    read_state: ReadState = ReadState.PART
    """WHOLE if `sights` covers every entry."""
    read: tuple[ReadEntry, ...] = field(default=(), repr=False)
    """The entries with their values before they were shaped."""
    remarks: tuple[str, ...] = ()
    """Notes on results that the user may not have intended."""
