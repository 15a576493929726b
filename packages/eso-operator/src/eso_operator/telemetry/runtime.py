"""Metrics of controllers, under the names that dashboards for controller-runtime read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kubebase.clock import Clock
from kubebase.meta import ObjectKey
from kuberun.controller import After, Controller, Done, Outcome, Reconcile, Retry

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class ControllerSeries(Collector):
    """Counts and times reconciles. The depth of queues is read at each scrape."""

    def __init__(self, registry: CollectorRegistry, clock: Clock) -> None:
        self._clock = clock
        self._controllers: list[Controller] = []
        self._total = Counter(
            "controller_runtime_reconcile_total", "Reconciles by result", ("controller", "result"), registry=registry
        )
        self._errors = Counter(
            "controller_runtime_reconcile_errors_total", "Failed reconciles", ("controller",), registry=registry
        )
        self._time = Histogram(
            "controller_runtime_reconcile_time_seconds",
            "Duration of reconciles",
            ("controller",),
            buckets=_BUCKETS,
            registry=registry,
        )
        self._workers = Gauge(
            "controller_runtime_max_concurrent_reconciles",
            "Reconciles a controller runs at once",
            ("controller",),
            registry=registry,
        )
        registry.register(self)

    def timed(self, controller: str, reconcile: Reconcile) -> Reconcile:
        """Return a reconcile function that counts and times `reconcile`."""

        async def timed_reconcile(key: ObjectKey) -> Outcome:
            started = self._clock.monotonic()
            result = "error"
            try:
                outcome = await reconcile(key)
                result = _result(outcome)
            finally:
                self._time.labels(controller).observe(self._clock.monotonic() - started)
                self._total.labels(controller, result).inc()
                if result == "error":
                    self._errors.labels(controller).inc()
            return outcome

        return timed_reconcile

    def add(self, controller: Controller, workers: int) -> None:
        """Add the queue of a controller to the metrics."""
        self._controllers.append(controller)
        self._workers.labels(controller.name).set(workers)

    def collect(self) -> Iterator[Metric]:
        depth = GaugeMetricFamily("workqueue_depth", "Keys that are due and wait for a worker", labels=("name",))
        active = GaugeMetricFamily(
            "controller_runtime_active_workers", "Reconciles that run now", labels=("controller",)
        )
        oldest = GaugeMetricFamily(
            "workqueue_longest_waiting_seconds", "How long the oldest due key has waited", labels=("name",)
        )
        for controller in self._controllers:
            stats = controller.queue.stats()
            depth.add_metric((controller.name,), sum(stats.depth.values()))
            active.add_metric((controller.name,), stats.running)
            oldest.add_metric((controller.name,), stats.oldest_age)
        yield from (depth, active, oldest)


def _result(outcome: Outcome) -> str:
    match outcome:
        case Done():
            return "success"
        case After():
            return "requeue_after"
        case Retry():
            return "error"
        case _:
            assert_never(outcome)
