"""All metrics of the process in one registry. Other parts add their own metrics to the registry.

Nothing is registered globally: two operators in one process, as tests have them, do not mix.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from functools import partial
from typing import Final, assert_never

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from eso_operator.telemetry.settings import MetricsSettings
from eso_operator.telemetry.subsystems import Subsystem
from kubebase.clock import Clock
from kubebase.meta import Condition, ObjectKey, ObjectMeta
from kuberun.controller import Backoff, Controller, Done, Reconcile, ReconcileContext, Requeue, Result
from kuberun.events import Counts
from kuberun.status import ConditionStatus
from kuberun.transport import RequestTally


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


_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_RESULTS: Final = ("error", "success", "requeue", "requeue_after")
_BY_CONTROLLER: Final = ("controller",)
_BY_QUEUE: Final = ("name", "controller")


class ControllerSeries(Collector):
    """Counts and times reconciles. The state of queues is read at each scrape.

    Every series of a controller begins at 0, so that a query sees its first increase.
    """

    def __init__(self, registry: CollectorRegistry, clock: Clock) -> None:
        self._clock = clock
        self._controllers: list[Controller] = []
        self._total = Counter(
            "controller_runtime_reconcile_total", "Reconciles by result", ("controller", "result"), registry=registry
        )
        self._errors = Counter(
            "controller_runtime_reconcile_errors_total", "Failed reconciles", _BY_CONTROLLER, registry=registry
        )
        self._time = Histogram(
            "controller_runtime_reconcile_time_seconds",
            "Duration of reconciles",
            _BY_CONTROLLER,
            buckets=_BUCKETS,
            registry=registry,
        )
        self._workers = Gauge(
            "controller_runtime_max_concurrent_reconciles",
            "Reconciles a controller runs at once",
            _BY_CONTROLLER,
            registry=registry,
        )
        self._waits = Histogram(
            "workqueue_queue_duration_seconds",
            "How long due keys waited for a worker",
            _BY_QUEUE,
            buckets=_BUCKETS,
            registry=registry,
        )
        self._works = Histogram(
            "workqueue_work_duration_seconds", "Duration of runs", _BY_QUEUE, buckets=_BUCKETS, registry=registry
        )
        registry.register(self)

    def timed(self, controller: str, reconcile: Reconcile) -> Reconcile:
        """Return a reconcile function that counts and times `reconcile`."""
        totals = {result: self._total.labels(controller, result) for result in _RESULTS}
        errors, duration = self._errors.labels(controller), self._time.labels(controller)

        async def timed_reconcile(key: ObjectKey, ctx: ReconcileContext) -> Result:
            started = self._clock.monotonic()
            result = "error"
            try:
                outcome = await reconcile(key, ctx)
                result = _result(outcome)
            finally:
                duration.observe(self._clock.monotonic() - started)
                totals[result].inc()
                if result == "error":
                    errors.inc()
            return outcome

        return timed_reconcile

    def add(self, controller: Controller, workers: int) -> None:
        """Add the queue of a controller to the metrics."""
        self._controllers.append(controller)
        self._workers.labels(controller.name).set(workers)
        name = (controller.name, controller.name)
        controller.queue.listen(self._waits.labels(*name).observe, self._works.labels(*name).observe)

    def collect(self) -> Iterator[Metric]:
        yield from self._queues()
        panics = CounterMetricFamily(
            "controller_runtime_reconcile_panics", "Reconciles that ended with an exception", labels=_BY_CONTROLLER
        )
        timeouts = CounterMetricFamily(
            "controller_runtime_reconcile_timeouts", "Reconciles that exceeded their deadline", labels=_BY_CONTROLLER
        )
        terminal = CounterMetricFamily(
            "controller_runtime_terminal_reconcile_errors",
            "Failed reconciles that are never tried again: always 0, because every failure is tried again",
            labels=_BY_CONTROLLER,
        )
        for controller in self._controllers:
            panics.add_metric((controller.name,), controller.crashes)
            timeouts.add_metric((controller.name,), controller.timeouts)
            terminal.add_metric((controller.name,), 0)
        yield from (panics, timeouts, terminal)

    def _queues(self) -> Iterator[Metric]:
        depth = GaugeMetricFamily(
            "workqueue_depth", "Keys that are due and wait for a worker", labels=(*_BY_QUEUE, "priority")
        )
        active = GaugeMetricFamily(
            "controller_runtime_active_workers", "Reconciles that run now", labels=_BY_CONTROLLER
        )
        oldest = GaugeMetricFamily(
            "workqueue_longest_waiting_seconds", "How long the oldest due key has waited", labels=("name",)
        )
        adds = CounterMetricFamily("workqueue_adds", "Requests to reconcile a key", labels=_BY_QUEUE)
        retries = CounterMetricFamily(
            "workqueue_retries", "Keys that were queued again after a failure", labels=_BY_QUEUE
        )
        unfinished = GaugeMetricFamily(
            "workqueue_unfinished_work_seconds", "Seconds that all runs together have taken so far", labels=_BY_QUEUE
        )
        longest = GaugeMetricFamily(
            "workqueue_longest_running_processor_seconds", "Seconds that the longest run has taken", labels=_BY_QUEUE
        )
        for controller in self._controllers:
            name, stats, running = controller.name, controller.queue.stats(), controller.queue.running().values()
            depth.add_metric((name, name, ""), sum(stats.depth.values()))
            active.add_metric((name,), stats.running)
            oldest.add_metric((name,), stats.oldest_age)
            adds.add_metric((name, name), stats.adds)
            retries.add_metric((name, name), stats.retries)
            unfinished.add_metric((name, name), sum(running))
            longest.add_metric((name, name), max(running, default=0.0))
        yield from (depth, active, oldest, adds, retries, unfinished, longest)


class ProcessSeries(Collector):
    """The requests to the API server, the leadership and the build of the process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._tally = RequestTally()
        self._leads: Mapping[str, Callable[[], bool]] = {}
        self._build: tuple[str, str] | None = None
        self._events = Counts()
        registry.register(self)

    def requests(self, tally: RequestTally) -> None:
        self._tally = tally

    def events(self, counts: Counts) -> None:
        self._events = counts

    def elections(self, leads: Mapping[str, Callable[[], bool]]) -> None:
        """Show for each Lease whether this process holds it. Without an election the metric has no series."""
        self._leads = leads

    def build(self, version: str, commit: str) -> None:
        self._build = (version, commit)

    def collect(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "rest_client_requests", "Requests to the API server", labels=("code", "method", "host")
        )
        for (method, code, host), count in self._tally.counts.items():
            requests.add_metric((code, method, host), count)
        master = GaugeMetricFamily(
            "leader_election_master_status", "1 if this process leads, 0 if it stands by", labels=("name",)
        )
        for lease, leads in self._leads.items():
            master.add_metric((lease,), 1.0 if leads() else 0.0)
        info = GaugeMetricFamily(
            "eso_build_info", "The version and commit of the operator", labels=("version", "commit")
        )
        if self._build is not None:
            info.add_metric(self._build, 1.0)
        events = CounterMetricFamily(
            "eso_events", "Kubernetes events of the operator by what became of them", labels=("result",)
        )
        for result, count in asdict(self._events).items():
            events.add_metric((result,), count)
        yield from (requests, master, info, events)


def _result(outcome: Result) -> str:
    match outcome:
        case Done():
            return "success"
        case Requeue():
            return "requeue_after"
        case Backoff():
            return "error"
        case _:
            assert_never(outcome)


class Metrics:
    """The metrics of the process. Reconcilers write to `objects` and `controllers`."""

    def __init__(self, settings: MetricsSettings, clock: Clock) -> None:
        self.registry = CollectorRegistry()
        self.objects = ObjectSeries(LabelSet.EXTENDED if settings.extended_labels else LabelSet.PLAIN)
        self.controllers = ControllerSeries(self.registry, clock)
        self.process = ProcessSeries(self.registry)
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)

    def pages(self) -> Iterator[bytes]:
        """Render all metrics in the text format of Prometheus, in pages that take about a millisecond each."""
        yield generate_latest(self.registry)
        yield from self.objects.pages()

    def exposition(self) -> bytes:
        """Return all pages at once."""
        return b"".join(self.pages())
