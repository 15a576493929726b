"""Bounds and delays of calls to providers. Every default is meant for production; tests shorten some."""

from __future__ import annotations

from dataclasses import dataclass, field

from kuberun.backoff import Backoff


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """How long connections live. Times in seconds."""

    max_channels: int = 256
    max_age: float = 600.0
    """Trust is only checked when a connection is made, so none may live for ever."""
    age_jitter: float = 0.2
    idle_after: float = 300.0
    sweep_interval: float = 15.0
    connect_timeout: float = 10.0


@dataclass(frozen=True, slots=True)
class CallSettings:
    """One call. Times in seconds."""

    timeout: float = 30.0
    longest_timeout: float = 300.0
    """A store may ask for more than `timeout`, but a call that hangs holds a slot that others wait for."""
    handshake_timeout: float = 10.0
    max_in_flight: int = 64
    max_waiting: int = 10_000
    max_retries: int = 3
    retry_interval: float = 0.25
    longest_pauses: float = 60.0
    """A store that says how often and when to retry gets that time besides the time of the call, but not more."""
    max_found_items: int = 50_000
    max_found_bytes: int = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class BreakerSettings:
    """After `threshold` failures in a row to reach an endpoint it is left alone for a while."""

    threshold: int = 5
    rest: Backoff = field(default_factory=lambda: Backoff(first=2.0, cap=30.0))


@dataclass(frozen=True, slots=True)
class PlannerSettings:
    """How reads are merged."""

    merge_window: float = 0.002
    max_batch_items: int = 500
    max_waiting_items: int = 100_000
    shared_seconds: float = 30.0
    """How long a value that was read answers questions that had been asked before it was read."""
    shared_items: int = 10_000
    shared_bytes: int = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class SubscriptionSettings:
    """Streams of changes. Times in seconds."""

    heartbeat: float = 30.0
    missed_heartbeats: int = 3
    reconnect: Backoff = field(default_factory=lambda: Backoff(first=1.0, cap=60.0))
    unsupported_pause: float = 1800.0
    """A provider that offers streams and does not know them is asked again after so long."""
    patience: float = 60.0
    """A stream is degraded when it has been broken for so long: a provider that restarts is back before."""
    proven_after: float = 60.0
    """A stream that broke works again when it has stood for so long: its first heartbeat says only that it is open."""
    max_events: int = 1000
    max_streams: int = 500


@dataclass(frozen=True, slots=True)
class RuntimeSettings:
    """Everything above, and who the operator says it is."""

    core_version: str = "0"
    cluster_id: str = ""
    calls: CallSettings = CallSettings()
    pool: PoolSettings = PoolSettings()
    breaker: BreakerSettings = field(default_factory=BreakerSettings)
    planner: PlannerSettings = PlannerSettings()
    subscriptions: SubscriptionSettings = field(default_factory=SubscriptionSettings)
