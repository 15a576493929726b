"""The report of a controller about an object after a reconcile: a value, built by the controller's `outcome.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from eso_operator.report.words import READY, News
from kubebase.meta import Condition
from kuberun.conditions import find_condition
from kuberun.controller import Result


@dataclass(frozen=True, slots=True)
class Report:
    """The effects of an outcome: the status to write, the events to record, and the time of the next reconcile."""

    status: Any
    then: Result
    news: tuple[News, ...] = ()
    failed: bool = False
    """True if the reconcile counts as failed."""
    flush: bool = True
    """True if a changed status is written at once."""
    shown: bool = True
    """True if metrics show the conditions. False if they come from a cache and the report says nothing about them."""
    log: Mapping[str, object] | None = field(default=None, compare=False)
    """Fields of the log line besides the object's name; None for no line."""

    @property
    def ready(self) -> Condition | None:
        return find_condition(self.status.conditions, READY)
