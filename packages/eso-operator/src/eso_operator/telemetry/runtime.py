"""Metrics of controllers, their queues and requests, under the names that dashboards for controller-runtime read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Final, assert_never

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kubebase.clock import Clock
from kubebase.meta import ObjectKey
from kuberun.controller import Backoff, Controller, Done, Reconcile, Requeue, Result
from kuberun.events import Counts
from kuberun.transport import RequestTally

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

        async def timed_reconcile(key: ObjectKey) -> Result:
            started = self._clock.monotonic()
            result = "error"
            try:
                outcome = await reconcile(key)
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
        controller.queue.listen(_Times(self._waits.labels(*name), self._works.labels(*name)))

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


class _Times:
    """Receives the times of one queue."""

    def __init__(self, waits: Histogram, works: Histogram) -> None:
        self._waits = waits
        self._works = works

    def waited(self, seconds: float) -> None:
        self._waits.observe(seconds)

    def worked(self, seconds: float) -> None:
        self._works.observe(seconds)


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
