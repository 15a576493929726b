"""The variables of a running expression, and the steps it may still take."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
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

    @contextmanager
    def binding(self, *variables: str) -> Iterator[None]:
        """Let inner variables hide outer ones for a while."""
        hidden = {name: self.names[name] for name in variables if name in self.names}
        try:
            yield
        finally:
            for name in variables:
                self.names.pop(name, None)
            self.names.update(hidden)


Evaluate = Callable[[Frame], Any]
