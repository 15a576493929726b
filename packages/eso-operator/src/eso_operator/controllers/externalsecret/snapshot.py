"""The frozen inputs of one reconcile, including the time; the checks of `decide.py` use nothing else.

Later steps read more: stores and credentials when values are fetched, the target when it is written, and the object
itself if the cache is older than our own last write.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from eso_api.externalsecret import ExternalSecret
from eso_operator.controllers.externalsecret.schedule import LastSync, current_version
from eso_operator.controllers.floor import SHORTEST_INTERVAL
from eso_operator.targets.marks import GeneratedMark
from eso_operator.targets.target import Look


@dataclass(frozen=True, slots=True)
class Rules:
    """The administrator's settings."""

    controller_class: str = "default"
    cluster_stores: bool = True
    generic_targets: bool = False
    v2_stores: bool = True
    shortest_interval: float = SHORTEST_INTERVAL


@dataclass(frozen=True, slots=True)
class Snapshot:
    es: ExternalSecret
    last: LastSync
    now: datetime
    look: Look
    rules: Rules
    foreign_class: str = ""
    """Kind and name of the first store or generator that another operator handles; empty if there is none."""
    turn: datetime | None = None
    """An overdue routine refresh waits until then, so that a restart does not run all of them at once."""
    held_until: datetime | None = None
    """An object in a loop does not refresh before then, unless it is edited."""
    new_templates: bool = False
    """True if a ConfigMap or Secret with templates changed after the target was rendered."""
    first_look: bool = False
    """True if this process has not reconciled the object before."""
    notified_at: float | None = None
    """When (monotonic) a provider announced a change of a key that has not been read since."""
    stretch: float = 1.0
    """How many intervals may pass between reads: more than one while streams announce every change."""
    retry_within: float = 0.0
    """The maximum number of seconds until a retry, if this reconcile fails."""
    interval_note: str = ""
    """A remark about its refresh interval for the condition."""

    generated: GeneratedMark | None = None
    """What an intact target says of the values that this object generated; None if it says nothing."""
    unreported: bool = False
    """True if the values were generated later than the status says: the status of that sync was lost."""
    version: str = ""
    """The version of the object that is synced, if `es` is a newer state of it."""

    @property
    def synced_version(self) -> str:
        return self.version or current_version(self.es)

    def about(self, es: ExternalSecret) -> Snapshot:
        """Return the snapshot with a newer state of the object, to report on it what was done for the older one."""
        return self if es is self.es else replace(self, es=es, version=self.synced_version)
