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

    def hide(self, variables: tuple[str, ...]) -> dict[str, Any]:
        """The outer variables that inner ones of the same name will cover."""
        return {name: self.names[name] for name in variables if name in self.names}

    def show(self, variables: tuple[str, ...], hidden: dict[str, Any]) -> None:
        """Forget inner variables, and bring back those that they covered."""
        for name in variables:
            self.names.pop(name, None)
        self.names.update(hidden)


Evaluate = Callable[[Frame], Any]
