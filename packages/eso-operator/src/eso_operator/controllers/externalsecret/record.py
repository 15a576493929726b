"""The record of one ExternalSecret in one bounded table (`eso_operator.memory`).

    field                             kept for                                     if the bound evicts it
    uid, written_on, depends_on       as for all kinds (`memory.py`)
    reconciled, restart_slot          overdue refreshes are spread after a start   it counts as new
    last                              refreshes that the status does not have yet  the status is used, minutes behind
    templates                         a changed template is rendered again         rendered at the next refresh
    generated                         the templates of values whose status is lost rendered at the next refresh
    repairs                           limits repairs against another writer        the limit starts again
    judged, overwrites, rounds        loops are found (`loops.py`)                 counting restarts
    loop, held_until                  an object in a loop refreshes slowly         at its interval, until found again
    follows, watches_all, notified_at push refresh (`changes/followers.py`)     polled until it is read again
    target                            an unchanged target is not read              it is read once
    share                             lost keys of a shared target are found       found at the next refresh
    intents                           a retry repeats a generator call             cleaned up and generated again

An evicted object is reconciled again within minutes, which restores `depends_on` and `follows`.

`Memory.forget` removes the object from these indexes: dependants (`dependencies.py`), streams and their
topics (`changes/followers.py`), rate limit and checkpoints of push refresh (`changes/feed.py`), PushSecrets in a loop
with it (`loops.py`), metric series (`controllers/base.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from eso_operator.changes.followers import FollowerRecord
from eso_operator.controllers.contention import Bucket, Contended, PushedKey
from eso_operator.controllers.refresh import LastSync
from eso_operator.generators.ledger import NO_INTENTS, Intent
from eso_operator.sources.templates import TemplateVersion
from eso_operator.targets.metadata import GeneratedMark
from eso_operator.targets.observed import ObservedTarget, Share
from kubebase.meta import ObjectKey

ReadKey = tuple[str, str]
"""The key of a store, as PushSecrets record it, and a remote key."""


@dataclass(frozen=True, slots=True)
class Overwrites:
    """Refreshes in a row that overwrote values of other ExternalSecrets; `same` of them with unchanged values."""

    desired: str
    same: int
    all: int


@dataclass(frozen=True, slots=True)
class LoopRounds:
    """Refreshes in a row that changed the target, and `count` of them because of what was pushed from it."""

    version: str
    """That of the ExternalSecret."""
    count: int
    inputs: Mapping[ReadKey, bytes]
    """Digests of what the last refresh read."""
    order: int
    """The number of its write, in one sequence with the writes of PushSecrets."""
    fed_by: tuple[PushedKey, ...] = ()


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop that was found: the condition, and the other objects in it."""

    contended: Contended
    others: frozenset[ObjectKey]


@dataclass(frozen=True, slots=True)
class GeneratedWrite:
    """A write of generated values that this process made, or may have made, before their status was written."""

    mark: GeneratedMark
    templates: frozenset[TemplateVersion]
    notified_at: float | None
    """The announced change that was read for it, as in the snapshot."""


@dataclass(slots=True, eq=False)
class ExternalSecretRecord(FollowerRecord):
    """The record of one ExternalSecret. The table above lists the fields."""

    reconciled: bool = False
    restart_slot: datetime | None = None
    last: LastSync | None = None
    templates: frozenset[TemplateVersion] = frozenset()
    generated: GeneratedWrite | None = None
    repairs: Bucket | None = None
    judged: bool = False
    overwrites: Overwrites | None = None
    rounds: LoopRounds | None = None
    loop: Loop | None = None
    held_until: datetime | None = None
    target: ObservedTarget | None = None
    share: Share | None = None
    intents: Mapping[str, Intent] = field(default_factory=lambda: NO_INTENTS)
