"""The metrics of a provider, in their own registry; `exposition` joins those of one process.

Each series has the label `provider`, the provider's name, which is added when it is exposed. The calls to the backend
are the exception: dashboards expect the name of the API there. Other labels are closed sets (methods, codes, reasons)
or names that the author wrote; never a key, a name or a value of a user. So the number of series stays small, whatever
is requested.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from kubebase.clock import Clock
from kubebase.deadline import Deadline
from kubebase.opening import opened

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


# ---------------------------------------------------------------------------------------------------------------------
# `/metrics`, `/healthz` and `/readyz` over plain HTTP, for kubelets and Prometheus; no values, no input.
#
# A minimal server: GET only, one request per connection, limited in size, time and number. A process with several
# providers lists the state of each at `/readyz`, and answers for one of them at `/readyz/NAME`.


_REQUEST_SECONDS: Final = 5.0
_MAX_LINE: Final = 8192
_MAX_HEADERS: Final = 100
_MAX_CONNECTIONS: Final = 64
READY: Final = "serving"
"""The state of a provider that takes calls."""
_OK: Final = "200 OK"
_UNAVAILABLE: Final = "503 Service Unavailable"
_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(slots=True)
class Probes:
    """The probes of a process; metrics only if there is an exposition."""

    clock: Clock
    ready: Callable[[], bool]
    exposition: Callable[[], bytes] | None = None
    states: Callable[[], Mapping[str, str]] = dict
    """The state of each provider, if the process has several."""
    _server: asyncio.Server | None = field(default=None, init=False)
    _open: int = field(default=0, init=False)

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen, and return host and port."""
        starting = asyncio.start_server(self._serve, host, port, limit=_MAX_LINE)
        self._server = await opened(starting, asyncio.Server.close)
        name, number, *_ = self._server.sockets[0].getsockname()
        return name, number

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= _MAX_CONNECTIONS:
                async with Deadline(self.clock, _REQUEST_SECONDS):
                    writer.write(self._respond(await _request_line(reader)))
                    await writer.drain()
        except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError):
            pass  # a client that sends no HTTP, or sends too slowly, gets no response
        finally:
            self._open -= 1
            writer.close()

    def _respond(self, request_line: bytes) -> bytes:
        match request_line.split(b" ")[:2]:
            case [b"GET", b"/metrics"] if self.exposition is not None:
                return _response(_OK, self.exposition())
            case [b"GET", b"/healthz"]:
                return _response(_OK, b"ok\n")
            case [b"GET", b"/readyz"]:
                each = "".join(f"{name} {state}\n" for name, state in self.states().items()).encode()
                return _response(_OK, b"ok\n" + each) if self.ready() else _response(_UNAVAILABLE, b"no\n" + each)
            case [b"GET", path] if (state := self._state_at(path)) is not None:
                return _response(_OK if state == READY else _UNAVAILABLE, f"{state}\n".encode())
            case [b"GET", _]:
                return _response("404 Not Found", b"this address does not serve that path\n")
            case _:
                return _response("405 Method Not Allowed", b"")

    def _state_at(self, path: bytes) -> str | None:
        """Return the state of the provider that `/readyz/NAME` names; None for every other path."""
        before, _, name = path.decode("ascii", "replace").rpartition("/")
        return self.states().get(name) if before == "/readyz" else None


async def _request_line(reader: asyncio.StreamReader) -> bytes:
    """Read the first line and discard the headers."""
    first = await reader.readuntil(b"\n")
    for _ in range(_MAX_HEADERS):
        if (await reader.readuntil(b"\n")).strip() == b"":
            return first
    raise ValueError("too many headers")


def _response(status: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {_TEXT}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body
