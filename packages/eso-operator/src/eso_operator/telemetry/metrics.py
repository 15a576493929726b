"""All metrics of the process in one registry. Other parts add their own metrics to the registry.

Nothing is registered globally: two operators in one process, as tests have them, do not mix.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import generate_latest

from eso_operator.telemetry.objects import LabelSet, ObjectSeries
from eso_operator.telemetry.runtime import ControllerSeries, ProcessSeries
from eso_operator.telemetry.settings import MetricsSettings
from kubebase.clock import Clock


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
