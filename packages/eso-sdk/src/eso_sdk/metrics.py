"""The metrics of a provider, in their own registry; `exposition` joins those of one process.

Each series has the label `provider`, the provider's name, which is added when it is exposed. The calls to the backend
are the exception: dashboards expect the name of the API there. Other labels are closed sets (methods, codes, reasons)
or names that the author wrote; never a key, a name or a value of a user. So the number of series stays small, whatever
is requested.
"""

from __future__ import annotations

import threading
from collections import Counter as Tally
from collections.abc import Iterable, Iterator
from typing import Final

from kubebase.withouthttp import without_http

with without_http():
    import prometheus_client  # noqa: F401 - before the imports from it

# isort: split
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

_LATENCY_BUCKETS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_MAX_CALL_NAMES: Final = 200  # otherwise an author who names calls by key would fill the memory
_OTHER: Final = "other"


class ApiCallSeries(Collector):
    """Calls to the backend, under the name that dashboards use; it lacks `_total`, hence no declared type."""

    def __init__(self, provider: str, registry: CollectorRegistry) -> None:
        self._provider = provider
        self._lock = threading.Lock()
        self._names: set[str] = set()
        self._calls: Tally[tuple[str, str, str]] = Tally()
        self._latency = Histogram(
            "eso_provider_backend_latency_seconds",
            "Time of a call to the backend",
            ["call"],
            buckets=_LATENCY_BUCKETS,
            registry=registry,
        )
        registry.register(self)

    def count(self, call: str, status: str, seconds: float, *, api: str = "") -> None:
        with self._lock:
            if len(self._names) < _MAX_CALL_NAMES:
                self._names.add(call)
            name = call if call in self._names else _OTHER
            self._calls[(api or self._provider, name, status)] += 1
        self._latency.labels(name).observe(seconds)

    def collect(self) -> Iterator[Metric]:
        series = Metric("externalsecret_provider_api_calls_count", "Calls to the backend", "unknown")
        with self._lock:
            calls = dict(self._calls)
        for (provider, call, status), count in sorted(calls.items()):
            series.add_sample(series.name, {"provider": provider, "call": call, "status": status}, count)
        yield series


class Metrics:
    """All series of one provider. `api` is its name in the metrics of backend calls; by default the provider's."""

    def __init__(self, provider: str, api: str = "") -> None:
        self.provider = provider
        self.registry = CollectorRegistry()
        self.api_calls = ApiCallSeries(api or provider, self.registry)
        self.started = Counter("eso_grpc_server_started", "Calls begun", ["method"], registry=self.registry)
        self.handled = Counter(
            "eso_grpc_server_handled", "Calls ended", ["method", "code", "reason"], registry=self.registry
        )
        self.latency = Histogram(
            "eso_grpc_server_latency_seconds",
            "Time from a call's begin to its end",
            ["method"],
            buckets=_LATENCY_BUCKETS,
            registry=self.registry,
        )
        self.in_flight = Gauge("eso_provider_calls_in_flight", "Calls that run", registry=self.registry)
        self.sessions = Gauge("eso_provider_sessions", "Sessions that are open", registry=self.registry)
        self.serving = Gauge(
            "eso_provider_serving", "1 while the provider takes calls, otherwise 0", registry=self.registry
        )
        self.tls_reloads = Counter(
            "eso_provider_tls_reloads", "Changes of the certificates", ["result"], registry=self.registry
        )

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return exposition((self,))


def exposition(parts: Iterable[Metrics]) -> bytes:
    """Return the metrics of several providers in Prometheus' text format, told apart by the label `provider`."""
    joined = CollectorRegistry()
    joined.register(_Joined(tuple(parts)))
    return generate_latest(joined)


class _Joined(Collector):
    """The series of several registries: one family for each name, as the text format demands."""

    def __init__(self, parts: tuple[Metrics, ...]) -> None:
        self._parts = parts

    def collect(self) -> Iterator[Metric]:
        families: dict[str, tuple[Metric, dict[tuple[str, ...], Sample]]] = {}
        for part in self._parts:
            for metric in part.registry.collect():
                new = Metric(metric.name, metric.documentation, metric.type)
                samples = families.setdefault(metric.name, (new, {}))[1]
                for sample in metric.samples:
                    labels = {"provider": part.provider, **sample.labels}
                    same = (sample.name, *(text for label in sorted(labels.items()) for text in label))
                    # Two providers may call one API, and then have the same labels.
                    known = samples[same].value if same in samples else 0.0
                    samples[same] = sample._replace(labels=labels, value=known + sample.value)
        for family, found in families.values():
            family.samples = list(found.values())
            yield family
