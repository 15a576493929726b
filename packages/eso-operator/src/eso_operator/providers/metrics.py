"""Metrics of calls to providers. Providers appear by label, never by address."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from eso_operator.providers.limits import STATES


class ProviderMetrics:
    """The collectors of Prometheus that calls report to."""

    def __init__(self, registry: CollectorRegistry) -> None:
        call = ("method", "provider")
        self._started = Counter("eso_grpc_client_started", "Calls to providers", call, registry=registry)
        self._handled = Counter(
            "eso_grpc_client_handled", "Calls to providers that ended", (*call, "code", "reason"), registry=registry
        )
        self._latency = Histogram(
            "eso_grpc_client_latency_seconds", "How long calls to providers took", call, registry=registry
        )
        self._retried = Counter("eso_grpc_client_retried", "Calls that were made again", call, registry=registry)
        self._batch = Histogram(
            "eso_provider_read_batch_items",
            "Distinct items in one read",
            ("provider",),
            buckets=(1, 2, 5, 10, 20, 50, 100, 200, 500),
            registry=registry,
        )
        self._merged = Counter(
            "eso_provider_reads_merged", "Items answered by another caller's read", ("provider",), registry=registry
        )
        self._breaker = Gauge(
            "eso_provider_breaker_state",
            "1 for the state that the provider's breaker is in, of several (by certificates and timeouts) the worst",
            ("provider", "state"),
            registry=registry,
        )
        self._breaker_states: dict[str, str] = {}
        self._pool = Gauge("eso_provider_channels", "Channels to providers", ("state",), registry=registry)
        self._budgets = Gauge(
            "eso_provider_identities_in_trouble", "Credential identities the backend has refused", registry=registry
        )
        self._streams = Gauge("eso_provider_subscriptions", "Streams of changes", ("state",), registry=registry)
        self._lag = Histogram(
            "eso_provider_subscription_lag_seconds",
            "From when a change happened, as its provider says, until the operator acted on it",
            ("provider",),
            buckets=(0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600),
            registry=registry,
        )

    def started(self, method: str, provider: str) -> None:
        self._started.labels(method, provider).inc()

    def handled(self, method: str, provider: str, *, code: str, reason: str, seconds: float) -> None:
        self._handled.labels(method, provider, code, reason).inc()
        self._latency.labels(method, provider).observe(seconds)

    def retried(self, method: str, provider: str) -> None:
        self._retried.labels(method, provider).inc()

    def batch(self, provider: str, *, items: int, wanted: int) -> None:
        """Count a read of `items` distinct items for `wanted` items of callers; `items` is 0 for cached values."""
        if items:
            self._batch.labels(provider).observe(items)
        self._merged.labels(provider).inc(wanted - items)

    def breaker(self, provider: str, state: str) -> None:
        """Set the state of a provider's breaker; of several, the worst."""
        if self._breaker_states.get(provider) == state:
            return
        self._breaker_states[provider] = state
        for each in STATES:
            self._breaker.labels(provider, each).set(1 if each == state else 0)

    def pool(self, channels: int, draining: int) -> None:
        self._pool.labels("open").set(channels)
        self._pool.labels("draining").set(draining)

    def budgets(self, failing: int) -> None:
        self._budgets.set(failing)

    def subscriptions(self, open_streams: int, degraded: int) -> None:
        self._streams.labels("open").set(open_streams)
        self._streams.labels("degraded").set(degraded)

    def lag(self, provider: str, seconds: float) -> None:
        """Record the time from a change at the backend until the operator acted on it."""
        self._lag.labels(provider).observe(seconds)
