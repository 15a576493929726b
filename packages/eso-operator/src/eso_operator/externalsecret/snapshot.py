"""The frozen inputs of one reconcile, time included. Nothing after this reads a cache to decide."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from eso_api.externalsecret import ExternalSecret
from eso_operator.externalsecret.refresh import LastSync
from eso_operator.targets.target import Look


@dataclass(frozen=True, slots=True)
class Rules:
    """What an administrator decided."""

    controller_class: str = "default"
    cluster_stores: bool = True
    generic_targets: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    es: ExternalSecret
    last: LastSync
    now: datetime
    look: Look
    foreign_class: str
    """A store or generator that another operator handles; empty if there is none."""
    rules: Rules
