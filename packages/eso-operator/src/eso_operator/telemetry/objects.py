"""Metrics of single objects: conditions, duration of the last reconcile, syncs.

Names and labels are those of the existing operator, so that its dashboards and alerts keep working. There is one row
for each object; `forget` drops the row with all its series when the object is deleted. Labels are those of the object
at the time of writing, so a changed label leaves no second series.

An operator has five lines for each of up to 50,000 objects: rendering all of them takes seconds. So they are not in the
registry of `prometheus_client`, which renders everything in one step. `pages` renders a few hundred objects at a time,
and the caller lets other tasks run between two pages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Final

from eso_operator.telemetry.subsystems import Subsystem
from kubebase.meta import Condition, ObjectKey, ObjectMeta
from kuberun.conditions import ConditionStatus


class LabelSet(Enum):
    """The labels of a metric: the plain ones, optionally with labels of the object."""

    PLAIN = ("name", "namespace")
    EXTENDED = (
        "name",
        "namespace",
        "app_kubernetes_io_name",
        "app_kubernetes_io_instance",
        "app_kubernetes_io_version",
        "app_kubernetes_io_component",
        "app_kubernetes_io_part_of",
        "app_kubernetes_io_managed_by",
    )


_SYNCED: Final = Subsystem.EXTERNAL_SECRET
_NOT_A_LABEL: Final = re.compile(r"[^a-zA-Z0-9 ]+")
_PAGE: Final = 250
"""Objects on one page: about a millisecond of work."""


@dataclass(slots=True)
class _Row:
    labels: str
    """As they are rendered."""
    conditions: dict[str, str] = field(default_factory=dict)
    nanoseconds: float | None = None
    syncs: int = 0
    errors: int = 0


@dataclass(frozen=True, slots=True)
class _Family:
    """One metric: its head, and the lines of one object."""

    name: str
    type: str
    help: str
    rows: Callable[[], Sequence[_Row]]
    lines: Callable[[str, _Row], str]

    def pages(self) -> Iterator[bytes]:
        """Render the objects that exist now. Other tasks may change, add and remove objects between two pages."""
        yield f"# HELP {self.name} {self.help}\n# TYPE {self.name} {self.type}\n".encode()
        rows = self.rows()
        for start in range(0, len(rows), _PAGE):
            yield "".join([self.lines(self.name, row) for row in rows[start : start + _PAGE]]).encode()


class ObjectSeries:
    """The metrics by controller and object."""

    def __init__(self, labels: LabelSet = LabelSet.PLAIN) -> None:
        self._labels = labels
        self._rows: dict[Subsystem, dict[ObjectKey, _Row]] = {subsystem: {} for subsystem in Subsystem}

    def conditions(self, subsystem: Subsystem, about: ObjectMeta, conditions: Sequence[Condition]) -> None:
        """Set the conditions of an object; conditions that it no longer has are removed."""
        self._row(subsystem, about).conditions = {condition.type: condition.status for condition in conditions}

    def reconciled(self, subsystem: Subsystem, about: ObjectMeta, seconds: float) -> None:
        """Set the duration of the last reconcile."""
        self._row(subsystem, about).nanoseconds = seconds * 1e9

    def synced(self, about: ObjectMeta) -> None:
        """Count a reconcile of an ExternalSecret."""
        self._row(_SYNCED, about).syncs += 1

    def failed(self, about: ObjectMeta) -> None:
        """Count a failed reconcile of an ExternalSecret."""
        self._row(_SYNCED, about).errors += 1

    def forget(self, subsystem: Subsystem, key: ObjectKey) -> None:
        """Remove the metrics of a deleted object."""
        self._rows[subsystem].pop(key, None)

    def pages(self) -> Iterator[bytes]:
        """Render all metrics in the text format of Prometheus, a few objects at a time."""
        for family in self._families():
            yield from family.pages()

    def _row(self, subsystem: Subsystem, about: ObjectMeta) -> _Row:
        rows, key = self._rows[subsystem], about.key
        row = rows.get(key)
        if row is None:
            row = rows[key] = _Row(self._rendered(about))
        elif self._labels is LabelSet.EXTENDED:
            row.labels = self._rendered(about)
        return row

    def _rendered(self, about: ObjectMeta) -> str:
        said = {_NOT_A_LABEL.sub("_", name): value for name, value in about.labels.items()}
        values = (about.name, about.namespace, *(said.get(name, "") for name in self._labels.value[2:]))
        return ",".join(
            f'{name}="{_escaped(value)}"' for name, value in sorted(zip(self._labels.value, values, strict=True))
        )

    def _families(self) -> Iterator[_Family]:
        for subsystem in Subsystem:
            rows = partial(self._of, subsystem)
            name, what = f"{subsystem}_status_condition", "Whether the object has this status of this condition"
            yield _Family(name, "gauge", what, rows, self._condition_lines)
            name, what = f"{subsystem}_reconcile_duration", "Duration of the last reconcile, in nanoseconds"
            yield _Family(name, "gauge", what, rows, self._duration_line)
        rows = partial(self._of, _SYNCED)
        yield _Family(
            f"{_SYNCED}_sync_calls_total", "counter", "Reconciles of the ExternalSecret", rows, self._sync_line
        )
        # Without the suffix `_total`, as existing dashboards expect.
        name, what = f"{_SYNCED}_sync_calls_error", "Failed reconciles of the ExternalSecret"
        yield _Family(name, "untyped", what, rows, self._error_line)

    def _of(self, subsystem: Subsystem) -> list[_Row]:
        return list(self._rows[subsystem].values())

    def _condition_lines(self, name: str, row: _Row) -> str:
        lines = ""
        for type_, status in row.conditions.items():
            start = f'{name}{{condition="{_escaped(type_)}",{row.labels},status="'
            for shown in _SHOWN if status in _SHOWN else (*_SHOWN, status):
                lines += f'{start}{_escaped(shown)}"}} {1.0 if shown == status else 0.0}\n'
        return lines

    def _duration_line(self, name: str, row: _Row) -> str:
        return "" if row.nanoseconds is None else f"{name}{{{row.labels}}} {row.nanoseconds!r}\n"

    def _sync_line(self, name: str, row: _Row) -> str:
        return f"{name}{{{row.labels}}} {float(row.syncs)}\n"

    def _error_line(self, name: str, row: _Row) -> str:
        return f"{name}{{{row.labels}}} {float(row.errors)}\n"


def _escaped(value: str) -> str:
    return value.translate(_ESCAPES)


_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_SHOWN: Final = (ConditionStatus.TRUE.value, ConditionStatus.FALSE.value)
