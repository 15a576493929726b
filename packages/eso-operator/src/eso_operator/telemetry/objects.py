"""Metrics of single objects: conditions, duration of the last reconcile, syncs.

Names and labels are those of the existing operator, so that its dashboards and alerts keep working. There is one row
for each object; `forget` drops the row with all its series when the object is deleted. Labels are those of the object
at the time of writing, so a changed label leaves no second series.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

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


@dataclass(slots=True)
class _Row:
    labels: tuple[str, ...]
    conditions: dict[str, str] = field(default_factory=dict)
    nanoseconds: float | None = None
    syncs: int = 0
    errors: int = 0


class ObjectSeries(Collector):
    """The metrics by controller and object. Prometheus reads them through `collect`."""

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

    def collect(self) -> Iterator[Metric]:
        for subsystem in Subsystem:
            yield self._condition_series(subsystem)
            yield self._duration_series(subsystem)
        yield self._sync_series()
        yield self._error_series()

    def _row(self, subsystem: Subsystem, about: ObjectMeta) -> _Row:
        labels = self._values(about)
        row = self._rows[subsystem].setdefault(about.key, _Row(labels))
        row.labels = labels
        return row

    def _values(self, about: ObjectMeta) -> tuple[str, ...]:
        if self._labels is LabelSet.PLAIN:
            return (about.name, about.namespace)
        said = {_NOT_A_LABEL.sub("_", name): value for name, value in about.labels.items()}
        return (about.name, about.namespace, *(said.get(name, "") for name in LabelSet.EXTENDED.value[2:]))

    def _condition_series(self, subsystem: Subsystem) -> Metric:
        series = GaugeMetricFamily(
            f"{subsystem}_status_condition",
            "Whether the object has this status of this condition",
            labels=(*self._labels.value, "condition", "status"),
        )
        for row in self._rows[subsystem].values():
            for type_, status in row.conditions.items():
                for possible in {*_SHOWN, status}:
                    series.add_metric((*row.labels, type_, possible), 1.0 if possible == status else 0.0)
        return series

    def _duration_series(self, subsystem: Subsystem) -> Metric:
        series = GaugeMetricFamily(
            f"{subsystem}_reconcile_duration",
            "Duration of the last reconcile, in nanoseconds",
            labels=self._labels.value,
        )
        for row in self._rows[subsystem].values():
            if row.nanoseconds is not None:
                series.add_metric(row.labels, row.nanoseconds)
        return series

    def _sync_series(self) -> Metric:
        series = CounterMetricFamily(
            f"{_SYNCED}_sync_calls", "Reconciles of the ExternalSecret", labels=self._labels.value
        )
        for row in self._rows[_SYNCED].values():
            series.add_metric(row.labels, row.syncs)
        return series

    def _error_series(self) -> Metric:
        """Return a counter without the suffix `_total`, as existing dashboards expect; its type is undeclared."""
        series = Metric(f"{_SYNCED}_sync_calls_error", "Failed reconciles of the ExternalSecret", "unknown")
        for row in self._rows[_SYNCED].values():
            series.add_sample(series.name, dict(zip(self._labels.value, row.labels, strict=True)), row.errors)
        return series


_SHOWN: Final = (ConditionStatus.TRUE.value, ConditionStatus.FALSE.value)
