"""Errors of an expression.

CelError
|- CompileError      the source is not CEL, or its types do not fit; carries the offset
`- EvaluationError   the expression failed on these values
   `- BudgetError    it would take too many steps
"""

from __future__ import annotations


class CelError(Exception):
    pass


class CompileError(CelError):
    def __init__(self, message: str, source: str, at: int) -> None:
        super().__init__(message)
        self.message = message
        self.source = source
        self.at = at

    def __str__(self) -> str:
        """Return message, line and a mark under the position, as kube-apiserver shows it."""
        before = self.source[: self.at]
        row = before.count("\n")
        column = len(before) - (before.rfind("\n") + 1)
        line = self.source.split("\n")[row] if self.source else ""
        return f"ERROR: <input>:{row + 1}:{column + 1}: {self.message}\n | {line}\n | {'.' * column}^"


class EvaluationError(CelError):
    pass


class BudgetError(EvaluationError):
    pass
