"""The frozen inputs of one reconcile, time included. Nothing after this reads a cache to decide."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from eso_api.externalsecret import ExternalSecret
from eso_operator.sync.floor import SHORTEST_INTERVAL
from eso_operator.targets.target import Look


@dataclass(frozen=True, slots=True)
class Rules:
    """What an administrator decided."""

    controller_class: str = "default"
    cluster_stores: bool = True
    generic_targets: bool = False
    shortest_interval: float = SHORTEST_INTERVAL


@dataclass(frozen=True, slots=True)
class LastSync:
    """The last successful sync: when, and of which version of the object."""

    at: datetime | None
    version: str
    renew_at: datetime | None = None
    """When values want to be read or made anew because they end; None if they do not."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    es: ExternalSecret
    last: LastSync
    now: datetime
    look: Look
    rules: Rules
    foreign_class: str = ""
    """A store or generator that another operator handles; empty if there is none."""
    turn: datetime | None = None
    """Before this a routine refresh that is overdue waits, so that a restart does not bring all of them at once."""
    new_templates: bool = False
    """A ConfigMap or Secret that the target was rendered from has changed since."""
    first_look: bool = False
    """This process has not looked at the object before."""
    told_at: float | None = None
    """When (monotonic) a provider said that something it reads has changed, if it has not been read since."""
    stretch: float = 1.0
    """How many intervals it may go without being read: more than one while it would hear of every change."""
    retry_within: float = 0.0
    """The most seconds until it is tried again, should it fail now."""
    interval_note: str = ""
    """What there is to say about its refresh interval."""
