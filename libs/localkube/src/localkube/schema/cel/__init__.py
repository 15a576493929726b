"""CEL, the language of x-kubernetes-validations: parser, type checker and an interpreter with a step budget.

Pure Python on purpose: a rule is type-checked against its schema, sees JSON values without copying them, and cannot
run longer than its budget.
"""

from localkube.schema.cel.program import STEP_LIMIT, Program, compile_program
from localkube.schema.cel.types import (
    BOOL,
    STRING,
    BudgetError,
    CelError,
    CompileError,
    EvaluationError,
    ObjectType,
    Type,
    type_of_schema,
)

__all__ = [
    "BOOL",
    "STEP_LIMIT",
    "STRING",
    "BudgetError",
    "CelError",
    "CompileError",
    "EvaluationError",
    "ObjectType",
    "Program",
    "Type",
    "compile_program",
    "type_of_schema",
]
