"""The calls that the operator made to providers: how many, how fast, how many now. Read from its metrics."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from eso_operator.providers.limits import STATES
from eso_tools.dashboard.settings import MetricsEndpoint
from kubebase.clock import Clock

_LATENCY: Final = "eso_grpc_client_latency_seconds"
_STARTED: Final = "eso_grpc_client_started_total"
_HANDLED: Final = "eso_grpc_client_handled_total"
_BREAKER: Final = "eso_provider_breaker_state"
_TROUBLED: Final = "eso_provider_identities_in_trouble"
_SERIES: Final = tuple(name.encode() for name in (_LATENCY, _STARTED, _HANDLED, _BREAKER, _TROUBLED))
_GOOD_CODES: Final = frozenset({"OK"})
_HIGH: Final = 0.95
_FRESH_SECONDS: Final = 5.0
_TIMEOUT_SECONDS: Final = 5.0
_MAX_LINES: Final = 50_000
NOT_READ: Final = "Calls are counted by the operator: give its metrics with --metrics-url, and they are shown here."


@dataclass(slots=True)
class ProviderCalls:
    """The calls to one provider. Times are in seconds; None before the first call."""

    calls: int = 0
    failed: int = 0
    started: int = 0
    handled: int = 0
    seconds: float = 0.0
    breaker: str = ""
    buckets: dict[float, float] = field(default_factory=dict)

    @property
    def running(self) -> int:
        return max(self.started - self.handled, 0)

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

    providers: dict[str, ProviderCalls] = field(default_factory=dict)
    refused: int = 0
    unknown: str = ""
    """A sentence that says why the calls are not known; empty if they are."""

    def of(self, labels: Iterable[str]) -> ProviderCalls:
        """Return the sum over all labels of one provider: its class, or its Service if no class was needed."""
        total = ProviderCalls()
        for calls in (self.providers[label] for label in labels if label in self.providers):
            total.calls += calls.calls
            total.failed += calls.failed
            total.started += calls.started
            total.handled += calls.handled
            total.seconds += calls.seconds
            total.breaker = max(total.breaker, calls.breaker, key=_severity)
            for bound, count in calls.buckets.items():
                total.buckets[bound] = total.buckets.get(bound, 0.0) + count
        return total


def _severity(breaker: str) -> int:
    return STATES.index(breaker) if breaker in STATES else -1


class OperatorMetrics:
    """Reads the calls from the operator's metrics, at most once in five seconds for all viewers."""

    def __init__(self, endpoint: MetricsEndpoint, clock: Clock) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._last = Calls(unknown=NOT_READ)
        self._read_at = float("-inf")
        self._lock = asyncio.Lock()

    async def calls(self) -> Calls:
        if not self._endpoint.url:
            return self._last
        async with self._lock:
            if self._clock.monotonic() - self._read_at >= _FRESH_SECONDS:
                self._last = await self._read()
                self._read_at = self._clock.monotonic()
            return self._last

    async def _read(self) -> Calls:
        url = self._endpoint.url
        try:
            timeout = aiohttp.ClientTimeout(total=_TIMEOUT_SECONDS)
            async with (
                aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as session,
                session.get(url, headers=self._headers(), ssl=self._context(), allow_redirects=False) as response,
            ):
                if response.status != 200:
                    return Calls(unknown=f"Calls are not known: {url} answers with status {response.status}.")
                lines = [line async for line in response.content if line.startswith(_SERIES)]
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            return Calls(unknown=f"Calls are not known: {url} cannot be read ({type(error).__name__}).")
        return await asyncio.to_thread(calls_of, b"".join(lines[:_MAX_LINES]).decode(errors="replace"))

    def _headers(self) -> dict[str, str]:
        if self._endpoint.token_file is None:
            return {}
        return {"Authorization": f"Bearer {self._endpoint.token_file.read_text(encoding='ascii').strip()}"}

    def _context(self) -> ssl.SSLContext | bool:
        if not self._endpoint.url.startswith("https:"):
            return True
        return ssl.create_default_context(cafile=self._endpoint.ca_file)


def calls_of(text: str) -> Calls:
    """Return the calls that metrics in Prometheus' text format contain."""
    found: dict[str, ProviderCalls] = {}
    refused = 0
    for metric in text_string_to_metric_families(text):
        for sample in metric.samples:
            if sample.name == _TROUBLED:
                refused = int(sample.value)
                continue
            calls = found.setdefault(sample.labels.get("provider", ""), ProviderCalls())
            _add(calls, sample.name, sample.labels, sample.value)
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
        case _ if name == _STARTED:
            calls.started += int(value)
        case _ if name == _HANDLED:
            calls.handled += int(value)
            calls.failed += int(value) if labels["code"] not in _GOOD_CODES else 0
