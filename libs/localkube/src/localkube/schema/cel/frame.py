"""The variables of a running expression, and the steps it may still take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from localkube.schema.cel.errors import BudgetError


@dataclass(slots=True)
class Frame:
    names: dict[str, Any]
    budget: int

    def spend(self, steps: int) -> None:
        self.budget -= steps
        if self.budget < 0:
            raise BudgetError("operation cancelled: actual cost limit exceeded")


Evaluate = Callable[[Frame], Any]
