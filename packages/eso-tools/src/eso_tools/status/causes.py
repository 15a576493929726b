"""Problems grouped by cause: one entry for a broken store, not one for each of its users. Pure.

    object that is not ready -> first needed object that is missing or not ready -> ... -> root

The roots of a cause are the objects to repair; `waiting` are the objects that fail only because of them. Objects whose
problem has no such root are one cause if one repair repairs them: they have the same kind, reason and faults.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from eso_api.crd import CustomKind
from eso_operator.stores.resolved import Reason
from eso_tools.status.overview import (
    NO_STATUS,
    OVERVIEW_KINDS,
    PROVIDERS,
    SYNCED,
    Fault,
    Health,
    ObjectId,
    Overview,
    Row,
)

MANY_ROOTS: Final = 5
"""More stores than this with the same reason and message are one cause."""
_DEEPEST: Final = 4
_ABSENT: Final = "it does not exist; create it, or correct the objects that name it"
_BY_ID: Final = {(custom.group, custom.name): custom for custom in OVERVIEW_KINDS}


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing to repair, and everything that waits for it."""

    custom: CustomKind[Any]
    reason: str
    roots: tuple[Row, ...]
    waiting: tuple[Row, ...] = ()
    at_risk: int = 0
    """The number of objects that need a root and still work."""

    @property
    def affected(self) -> int:
        """Return the number of existing objects that are not ready because of the cause."""
        return len(self.waiting) + sum(root.health is not Health.ABSENT for root in self.roots)

    @property
    def since(self) -> str:
        """Return when the cause began according to its roots; else when the first waiting object became not ready."""
        times = [row.since for row in self.roots if row.since] or [row.since for row in self.waiting if row.since]
        return min(times, default="")

    @property
    def next_attempt(self) -> str:
        return min((row.next_attempt for row in (*self.waiting, *self.roots) if row.next_attempt), default="")

    @property
    def message(self) -> str:
        """Return the message of the first root."""
        return next(iter(self.messages), "")

    @property
    def messages(self) -> tuple[str, ...]:
        """Return the different messages of the roots."""
        return tuple(dict.fromkeys(row.message for row in self.roots if row.message))

    @property
    def headline(self) -> str:
        """Return the cause in one sentence without its time."""
        named = str_of(self.roots[0]) if len(self.roots) == 1 else counted(len(self.roots), self.custom)
        state = self._unreported if self.reason == NO_STATUS else self.reason
        if not self.waiting:
            return f"{named}: {state}"
        return f"{_listed(self.waiting)} {_verb(self.waiting)} for {named}: {state}"

    @property
    def _unreported(self) -> str:
        return f"no operator has reported on {'it' if len(self.roots) == 1 else 'them'} yet"


@dataclass(slots=True)
class _Found:
    root: Row
    waiting: list[Row] = field(default_factory=list)


def causes_of(overview: Overview) -> tuple[Cause, ...]:
    """Return the causes of everything that is not ready: those that affect most objects first."""
    rows = {row.id: row for row in overview.rows}
    known = _complete(overview)
    found: dict[ObjectId, _Found] = {}
    for row in overview.rows:
        if row.health is Health.GOOD:
            continue
        root = _root(row, rows, known)
        entry = found.setdefault(root.id, _Found(root))
        if root.id != row.id:
            entry.waiting.append(row)
    users = _users(overview.rows, found)
    causes = [replace(cause, at_risk=_risk(cause, users)) for cause in _merged(found.values())]
    return tuple(sorted(causes, key=lambda cause: (-cause.affected, cause.since, cause.headline)))


def str_of(row: Row) -> str:
    return f"{'v2 ' if row.generation == 'v2' and row.custom not in PROVIDERS else ''}{row.id}"


def counted(count: int, custom: CustomKind[Any]) -> str:
    ending = "" if count == 1 else "es" if custom.name.endswith("s") else "s"
    return f"{count} {custom.name}{ending}"


# --- from an object to the root of its problem ------------------------------------------------------------------------


def _complete(overview: Overview) -> frozenset[tuple[str, str]]:
    """Return the kinds of which every object is known, so that an unknown object does not exist."""
    if overview.left_out:
        return frozenset()
    return frozenset(_BY_ID) - {(gap.custom.group, gap.custom.name) for gap in overview.gaps}


def _root(row: Row, rows: Mapping[ObjectId, Row], known: frozenset[tuple[str, str]]) -> Row:
    for _ in range(_DEEPEST):
        deeper = next(_broken_needs(row, rows, known), None)
        if deeper is None or deeper.id == row.id:
            return row
        row = deeper
    return row


def _broken_needs(row: Row, rows: Mapping[ObjectId, Row], known: frozenset[tuple[str, str]]) -> Iterator[Row]:
    for need in row.blamed:
        there = rows.get(need)
        if there is not None and (there.health is Health.BAD or _is_starting(there)):
            yield there
        elif there is None and (need.group, need.kind) in known:
            custom = _BY_ID[need.group, need.kind]
            reason = Reason.CLASS_NOT_FOUND if custom in PROVIDERS else Reason.NOT_FOUND
            yield Row(need, custom, Health.ABSENT, reason.value, _ABSENT)


def _is_starting(row: Row) -> bool:
    """Return whether an operator reported that the object waits, as opposed to no report at all."""
    return row.health is Health.WAITING and row.reason != NO_STATUS


# --- from roots to causes ---------------------------------------------------------------------------------------------


def _merged(found: Iterable[_Found]) -> Iterator[Cause]:
    """Merge objects without a root by kind, reason and faults; stores and classes only if there are many."""
    alike: dict[tuple[CustomKind[Any], str, frozenset[Fault]], list[_Found]] = {}
    for entry in found:
        alike.setdefault((entry.root.custom, entry.root.reason, entry.root.faults), []).append(entry)
    for (custom, reason, _), entries in alike.items():
        whole = Cause(
            custom,
            reason,
            tuple(entry.root for entry in entries),
            tuple(row for entry in entries for row in entry.waiting),
        )
        if custom in SYNCED or reason == NO_STATUS or len(entries) > MANY_ROOTS:
            yield whole
        else:
            yield from (replace(whole, roots=(each.root,), waiting=tuple(each.waiting)) for each in entries)


def _users(rows: Iterable[Row], roots: Collection[ObjectId]) -> dict[ObjectId, set[ObjectId]]:
    """Return which objects that are ready need which root."""
    users: dict[ObjectId, set[ObjectId]] = {}
    for row in rows:
        if row.ready:
            for need in row.needs:
                if need in roots:
                    users.setdefault(need, set()).add(row.id)
    return users


def _risk(cause: Cause, users: Mapping[ObjectId, set[ObjectId]]) -> int:
    return len(set().union(*(users.get(root.id, ()) for root in cause.roots)))


# --- texts ------------------------------------------------------------------------------------------------------------


def _listed(rows: Sequence[Row]) -> str:
    by_kind: dict[CustomKind[Any], int] = {}
    for row in rows:
        by_kind[row.custom] = by_kind.get(row.custom, 0) + 1
    parts = [counted(count, custom) for custom, count in by_kind.items()]
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _verb(rows: Sequence[Row]) -> str:
    return "waits" if len(rows) == 1 else "wait"
