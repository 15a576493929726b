"""The calls that this process made to providers: how many, how fast, how many at once. Read from its own metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from prometheus_client import CollectorRegistry

from eso_operator.providers.limits import STATES, InFlight

_LATENCY: Final = "eso_grpc_client_latency_seconds"
_HANDLED: Final = "eso_grpc_client_handled"
_BREAKER: Final = "eso_provider_breaker_state"
_TROUBLED: Final = "eso_provider_identities_in_trouble"
_GOOD_CODES: Final = frozenset({"OK"})
_HIGH: Final = 0.95


@dataclass(slots=True)
class ProviderCalls:
    """The calls to one provider. Times are in seconds; None before the first call."""

    calls: int = 0
    failed: int = 0
    seconds: float = 0.0
    breaker: str = ""
    running: int = 0
    slots: int = 0
    queued: int = 0
    buckets: dict[float, float] = field(default_factory=dict)

    @property
    def mean(self) -> float | None:
        return self.seconds / self.calls if self.calls else None

    @property
    def high(self) -> float | None:
        """The upper bound of the bucket that holds the 95th percentile."""
        if not self.calls:
            return None
        return next((bound for bound, count in sorted(self.buckets.items()) if count >= _HIGH * self.calls), None)


@dataclass(frozen=True, slots=True)
class Calls:
    """All calls, by the label of the provider; `refused` counts credentials that a backend has refused lately."""

    providers: dict[str, ProviderCalls]
    refused: int = 0

    def of(self, labels: Iterable[str]) -> ProviderCalls:
        """Return the sum over all labels of one provider: its class, or its Service if no class was needed."""
        total = ProviderCalls()
        for calls in (self.providers[label] for label in labels if label in self.providers):
            total.calls += calls.calls
            total.failed += calls.failed
            total.seconds += calls.seconds
            total.breaker = max(total.breaker, calls.breaker, key=_worst)
            total.running += calls.running
            total.slots, total.queued = max(total.slots, calls.slots), total.queued + calls.queued
            for bound, count in calls.buckets.items():
                total.buckets[bound] = total.buckets.get(bound, 0.0) + count
        return total


def _worst(breaker: str) -> int:
    return STATES.index(breaker) if breaker in STATES else -1


def calls_of(registry: CollectorRegistry, in_flight: Callable[[], Iterable[InFlight]]) -> Calls:
    found: dict[str, ProviderCalls] = {}
    refused = 0
    names = [f"{_LATENCY}_count", f"{_LATENCY}_sum", f"{_LATENCY}_bucket", f"{_HANDLED}_total", _BREAKER, _TROUBLED]
    for metric in registry.restricted_registry(names).collect():
        for sample in metric.samples:
            if sample.name == _TROUBLED:
                refused = int(sample.value)
                continue
            calls = found.setdefault(sample.labels.get("provider", ""), ProviderCalls())
            _add(calls, sample.name, sample.labels, sample.value)
    for slots in in_flight():
        calls = found.setdefault(slots.label, ProviderCalls())
        calls.running, calls.slots, calls.queued = slots.taken, slots.slots, slots.queued
    return Calls(found, refused)


def _add(calls: ProviderCalls, name: str, labels: dict[str, str], value: float) -> None:
    match name.removeprefix(_LATENCY):
        case "_count":
            calls.calls += int(value)
        case "_sum":
            calls.seconds += value
        case "_bucket":
            bound = float(labels["le"])
            calls.buckets[bound] = calls.buckets.get(bound, 0.0) + value
        case _ if name == _BREAKER and value:
            calls.breaker = labels["state"]
        case _ if name == f"{_HANDLED}_total" and labels["code"] not in _GOOD_CODES:
            calls.failed += int(value)
