"""Status written once, as a difference.

    written = await write_status(client, KIND, obj, status)

The changes are sent as one merge patch to the status subresource; without changes no request is sent. Fields that the
Python type does not declare stay unchanged. The patch carries the object's resourceVersion, because a merge patch
replaces lists as a whole: if the object changed in between, the server refuses and `Conflict` is raised. The controller
must then read the new object and retry; this module does not loop.

A difference computed from a stale object may be empty and hide a needed write. A controller that
remembers the version of its last write can check that with `is_stale`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol, TypeVar

import msgspec

from kubebase.clock import rfc3339
from kubebase.mergepatch import difference
from kubebase.meta import Condition, JsonObject, Kind, ObjectMeta
from kuberun.client import Client
from kuberun.redaction import bounded

# --- status.conditions as values: set one, find one. Pure -------------------------------------------------------------
# The rules of the API: one condition per type, in a stable order; lastTransitionTime is the time of the last change of
# `status`. Setting an unchanged condition returns an equal list, so nothing needs to be written.


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


S_co = TypeVar("S_co", covariant=True)


class HasStatus(Protocol[S_co]):
    """A typed object with a status."""

    @property
    def metadata(self) -> ObjectMeta: ...

    @property
    def status(self) -> S_co: ...


T = TypeVar("T", bound=HasStatus[Any])


def is_stale(observed: str, written_on: str) -> bool:
    """Return whether a version of an object is older than our write, which was made on the version `written_on`.

    While a watch lags, several writes may follow one another on objects read from the server, and the cache is behind
    all of them. Decimal versions are compared as numbers; any other version is only compared for equality.
    """
    return observed == written_on or (
        observed.isdecimal() and written_on.isdecimal() and int(observed) < int(written_on)
    )


async def write_status(client: Client, kind: Kind[T], obj: T, status: Any) -> T:
    """Send what differs from the status of the object; return the written object, or `obj` if nothing differs."""
    patch = status_patch(obj.metadata, obj.status, status)
    if patch is None:
        return obj
    return await client.merge_patch(kind, obj.metadata.key, patch, subresource="status")


def status_patch(metadata: ObjectMeta, old: Any, new: Any) -> JsonObject | None:
    """Return the merge patch from one status to another; None if they are equal."""
    changes = difference(_plain(old), _plain(new))
    if not changes:
        return None
    return {"metadata": {"resourceVersion": metadata.resource_version}, "status": changes}


def _plain(status: Any) -> JsonObject:
    plain: JsonObject = {} if status is None else msgspec.to_builtins(status)
    return plain
