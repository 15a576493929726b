"""The frozen inputs of one reconcile, including the time: the input of the checks in `decide.py`.

Later steps read more: sources and templates, stores and credentials, and the pushes of other PushSecrets.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from eso_api.pushsecret import PushSecret
from eso_api.references import StoreRef
from eso_operator.controllers.pushsecret.memory import LastPush
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
    """The reason why the stores cannot be determined."""

    path: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class SeenSource:
    """A source Secret with its cached metadata."""

    name: str
    uid: str
    version: str
    created_at: datetime | None

    @property
    def mark(self) -> str:
        return f"{self.name} {self.uid} {self.version}"


@dataclass(frozen=True, slots=True)
class PushSnapshot:
    """`remembered` is None for an object that this process has not pushed yet."""

    push: PushSecret
    now: datetime
    remembered: LastPush | None
    sources: tuple[SeenSource, ...]
    stores: tuple[Chosen, ...] | NoChoice
    new_templates: bool = False
    """True if a template that the last push read from another object has changed."""
    unrecorded: bool = False
    """Something was pushed, and the status could not be written since."""
    interval_note: str = ""
    """The note about its refresh interval."""
    freed: bool = False
    """True if another PushSecret overwrote a value and no longer pushes there."""
    version: str = ""
    """The version of the object that is pushed, if `push` is a newer state of it."""

    @property
    def store_marks(self) -> frozenset[str]:
        stores = () if isinstance(self.stores, NoChoice) else self.stores
        return frozenset(f"{store.key} {store.uid}" for store in stores)

    @property
    def source_marks(self) -> frozenset[str]:
        return frozenset(source.mark for source in self.sources)
