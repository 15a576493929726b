"""status.conditions as values: set one, find one. Pure.

The rules of the API: one condition per type, in a stable order; lastTransitionTime is the time of the last change of
`status`. Setting an unchanged condition returns an equal list, so nothing needs to be written.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

import msgspec

from kubebase.clock import rfc3339
from kubebase.meta import Condition
from kuberun.redaction import bounded

MAX_MESSAGE_BYTES = 32768
"""The API's own limit for a condition message."""


class ConditionStatus(StrEnum):
    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


def set_condition(conditions: Sequence[Condition], new: Condition, now: datetime) -> list[Condition]:
    """Replace the condition of the same type with `new`, or append it."""
    old = find_condition(conditions, new.type)
    since = old.last_transition_time if old is not None and old.status == new.status else None
    placed = msgspec.structs.replace(
        new, message=bounded(new.message, MAX_MESSAGE_BYTES), last_transition_time=since or rfc3339(now)
    )
    if old is None:
        return [*conditions, placed]
    return [placed if condition is old else condition for condition in conditions if _is_retained(condition, old)]


def remove_condition(conditions: Sequence[Condition], type_: str) -> list[Condition]:
    return [condition for condition in conditions if condition.type != type_]


def find_condition(conditions: Sequence[Condition], type_: str) -> Condition | None:
    return next((condition for condition in conditions if condition.type == type_), None)


def is_true(conditions: Sequence[Condition], type_: str) -> bool:
    return _has(conditions, type_, ConditionStatus.TRUE)


def is_false(conditions: Sequence[Condition], type_: str) -> bool:
    """Return whether the status is explicitly False; a missing or Unknown condition does not count."""
    return _has(conditions, type_, ConditionStatus.FALSE)


def same_verdict(one: Condition | None, other: Condition | None) -> bool:
    """Return whether two conditions are equal apart from their times."""
    if one is None or other is None:
        return one is other
    return (one.type, one.status, one.reason, one.message) == (other.type, other.status, other.reason, other.message)


def _has(conditions: Sequence[Condition], type_: str, status: ConditionStatus) -> bool:
    found = find_condition(conditions, type_)
    return found is not None and found.status == status


def _is_retained(condition: Condition, old: Condition) -> bool:
    """Drop further conditions of the same type, which a user may have written by hand."""
    return condition is old or condition.type != old.type
