"""Limits and delays of calls to providers. The defaults are for production; tests shorten some."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from kubebase.backoff import ExponentialBackoff


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """The life of connections. Times in seconds."""

    max_channels: int = 256
    max_age: float = 600.0
    """Certificates are checked only when a connection is made, so connections must expire."""
    age_jitter: float = 0.2
    idle_after: float = 300.0
    sweep_interval: float = 15.0
    connect_timeout: float = 10.0


START_SECONDS: Final = 120.0
"""The time that a provider gets to start: until then objects wait for it, and none of them fails."""


@dataclass(frozen=True, slots=True)
class DirectorySettings:
    """Intervals of handshakes, in seconds."""

    refresh: float = 60.0
    jitter: float = 0.2
    again: ExponentialBackoff = field(default_factory=lambda: ExponentialBackoff(first=2.0, cap=15.0))
    revalidate: float = 30.0
    """The time after a provider's return in which its stores are validated again."""
    start: float = START_SECONDS
    """The time from the first attempt during which a provider that never responded counts as starting."""
    start_pause: float = 2.0
    """The longest pause between two attempts while a provider starts."""
    appear: float = 30.0
    """The time during which `eso up` may still decide to start a provider for an object that has none."""


@dataclass(frozen=True, slots=True)
class CallSettings:
    """Limits of one call. Times in seconds."""

    timeout: float = 30.0
    longest_timeout: float = 300.0
    """The longest timeout that a store may set. It is bounded because a hanging call holds a call slot."""
    handshake_timeout: float = 10.0
    max_in_flight: int = 64
    max_waiting: int = 10_000
    max_retries: int = 3
    retry_interval: float = 0.25
    longest_pauses: float = 60.0
    """The most time for pauses that a store with retry settings gets in addition to the timeout."""
    max_found_items: int = 50_000
    max_found_bytes: int = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class BreakerSettings:
    """The breaker opens for `rest` after `threshold` consecutive failures to reach an endpoint."""

    threshold: int = 5
    rest: ExponentialBackoff = field(default_factory=lambda: ExponentialBackoff(first=2.0, cap=30.0))


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """Limits and times of merged reads."""

    merge_window: float = 0.002
    max_batch_items: int = 500
    max_waiting_items: int = 100_000
    shared_seconds: float = 30.0
    """How long a value can be the result of requests that were made before it was read."""
    shared_items: int = 10_000
    shared_bytes: int = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class SubscriptionSettings:
    """Change streams. Times in seconds."""

    heartbeat: float = 30.0
    missed_heartbeats: int = 3
    reconnect: ExponentialBackoff = field(default_factory=lambda: ExponentialBackoff(first=1.0, cap=60.0))
    unsupported_pause: float = 1800.0
    """Time before the next try at a provider that offers streams but responds that it does not support them."""
    degraded_after: float = 60.0
    """A stream is reported as degraded after this time without a message; a restart of the provider takes less."""
    proven_after: float = 60.0
    """A stream that failed counts as working again after it has been open for this long."""
    max_events: int = 1000
    max_streams: int = 500


@dataclass(frozen=True, slots=True)
class RuntimeSettings:
    """All settings of calls, with the version and cluster id that the operator sends."""

    core_version: str = "0"
    cluster_id: str = ""
    calls: CallSettings = CallSettings()
    pool: PoolSettings = PoolSettings()
    breaker: BreakerSettings = field(default_factory=BreakerSettings)
    batches: BatchSettings = BatchSettings()
    subscriptions: SubscriptionSettings = field(default_factory=SubscriptionSettings)
