"""The frozen inputs of one reconcile, time included. Nothing after this reads a cache to decide."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from eso_api.pushsecret import PushSecret
from eso_api.references import StoreRef
from eso_operator.pushsecret.memory import LastPush
from eso_wire.values import KindId


@dataclass(frozen=True, slots=True)
class Chosen:
    """A store that is pushed to. `key` is its name in `status.syncedPushSecrets`."""

    ref: StoreRef
    kind: KindId
    key: str
    uid: str = ""
    labels: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.kind.kind} {self.ref.name}"


@dataclass(frozen=True, slots=True)
class NoChoice:
    """Why it cannot be said which stores are meant."""

    path: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class SeenSource:
    """A source Secret as its metadata is known."""

    name: str
    uid: str
    version: str
    created_at: datetime | None

    @property
    def mark(self) -> str:
        return f"{self.name} {self.uid} {self.version}"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`remembered` is None for an object that this process has not pushed yet."""

    push: PushSecret
    now: datetime
    remembered: LastPush | None
    sources: tuple[SeenSource, ...]
    stores: tuple[Chosen, ...] | NoChoice
    new_templates: bool = False
    """A template that the last push took from another object is not the same any more."""
    unrecorded: bool = False
    """Something was pushed, and the status could not be written since."""
    interval_note: str = ""
    """What there is to say about its refresh interval."""
    freed: bool = False
    """Another PushSecret overwrote a value and does not push there any more."""

    @property
    def store_marks(self) -> frozenset[str]:
        stores = () if isinstance(self.stores, NoChoice) else self.stores
        return frozenset(f"{store.key} {store.uid}" for store in stores)

    @property
    def source_marks(self) -> frozenset[str]:
        return frozenset(source.mark for source in self.sources)
