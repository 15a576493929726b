"""The server of a provider process: gRPC over mutual TLS, health, probes, and an orderly shutdown.

    start -> SERVING -> (SIGTERM) drain: NOT_SERVING, no new calls, running ones finish -> stop

`serve` is the whole life of a process. `Server` is for tests and for programs that run their own loop.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import grpc
import structlog
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]  # the wheel carries no types
from grpc_health.v1.health import aio as aio_health  # type: ignore[import-untyped]  # the wheel carries no types

from eso_sdk.accounts import CallAuth, token_gate
from eso_sdk.addresses import ORDINARY, AddressPolicy
from eso_sdk.frame import GENERATORS, INFO, STORES, UNARY, Frame, Method
from eso_sdk.logs import loop_exception_handler
from eso_sdk.metrics import Metrics, Probes
from eso_sdk.operations import HEARTBEAT_SECONDS
from eso_sdk.processidentity import STRICT, ProcessIdentityPolicy
from eso_sdk.provider import Provider
from eso_sdk.service import Service
from eso_sdk.session import Sessions
from eso_wire.options import SERVER_OPTIONS
from eso_wire.tls import (
    CA_FILE,
    CERTIFICATE_FILE,
    KEY_FILE,
    ServerCertificates,
    TlsMaterial,
    TlsMaterialError,
    load_material,
)
from eso_wire.versions import SUPPORTED, ProtocolVersion
from kubebase.clock import Clock, SystemClock

# --- Certificates in a folder, as mounted from a Secret: read when they change, and awaited at the start -------------
#
# The operator issues a provider's certificates, usually after its pod has started. So the server first waits for
# missing certificates, and fails only after that.


_FILES: Final = (CA_FILE, CERTIFICATE_FILE, KEY_FILE)
_POLL_SECONDS: Final = 0.5

_tls_log = structlog.get_logger("eso_sdk.server")

Stamp = tuple[tuple[int, int, int], ...]


class TlsFolder:
    """The source of a server's certificates. gRPC asks at every handshake, from its own threads."""

    def __init__(self, folder: Path, on_reload: Callable[[str], None] = lambda _result: None) -> None:
        self._folder = folder
        self._on_reload = on_reload
        self._lock = threading.Lock()
        self._stamp: Stamp = ()
        self._material: TlsMaterial | None = None

    def __call__(self) -> TlsMaterial:
        """Return the current certificates, or the last good set while a new one is being written."""
        with self._lock:
            stamp = self._stamped()
            if self._material is None or stamp != self._stamp:
                self._stamp = stamp
                self._load()
            if self._material is None:
                raise TlsMaterialError(f"no usable certificates in {self._folder}")
            return self._material

    def _load(self) -> None:
        try:
            fresh = load_material(self._folder)
        except TlsMaterialError:
            if self._material is None:
                raise
            self._on_reload("failure")
            return
        if self._material is not None:
            self._on_reload("success")
        self._material = fresh

    def _stamped(self) -> Stamp:
        """Return a stamp that changes with the files, also behind the symbolic links of a mounted Secret."""
        stamps = []
        for name in _FILES:
            try:
                status = (self._folder / name).stat()
                stamps.append((status.st_mtime_ns, status.st_size, status.st_ino))
            except OSError:
                stamps.append((0, 0, 0))
        return tuple(stamps)


async def wait_for_certificates(source: TlsFolder, clock: Clock, seconds: float) -> TlsMaterial:
    """Wait for the first usable set; after that time raise TlsMaterialError with the reason."""
    until = clock.monotonic() + seconds
    logged = False
    while True:
        try:
            return source()
        except TlsMaterialError as exc:
            if clock.monotonic() >= until:
                raise
            if not logged:
                logged = True
                _tls_log.info("waiting for certificates", problem=str(exc), seconds=seconds)
        await clock.sleep(_POLL_SECONDS)


# --- The server of a provider process --------------------------------------------------------------------------------


EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2

_log = structlog.get_logger("eso_sdk.server")


class ServeError(Exception):
    """The server cannot start; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """How a provider is served. Addresses are `host:port`; port 0 takes a free one."""

    tls_dir: Path
    allowed_clients: tuple[str, ...]
    listen: str = "127.0.0.1:0"
    metrics: str = ""
    """Address for metrics and probes; empty for none."""
    live: str = ""
    """Address for probes without metrics; empty for none."""
    ready_file: Path | None = None
    """Written with the addresses as JSON once the server listens; removed when it ends."""
    drain_seconds: float = 25.0
    tls_wait_seconds: float = 60.0
    protocols: tuple[ProtocolVersion, ...] = SUPPORTED
    call_auth: CallAuth | None = None
    """How tokens of calls are verified; None means not at all."""
    addresses: AddressPolicy = ORDINARY
    """The special addresses to which specs may refer."""
    process_identity: ProcessIdentityPolicy = STRICT
    """Who may use the identity of this process, and who may receive a proof of it."""
    heartbeat_seconds: float = HEARTBEAT_SECONDS
    max_connection_age: float | None = None
    """Seconds; None for the protocol's default. It limits for how long a connection outlives its certificate."""


class Server:
    """One provider, served in this event loop."""

    def __init__(
        self, provider: Provider, options: ServeOptions, clock: Clock | None = None, metrics: Metrics | None = None
    ) -> None:
        if not options.allowed_clients:
            raise ServeError("no client is allowed to call; name the operator's identity with --allowed-client")
        self.provider = provider
        self.options = options
        self.clock: Clock = clock or SystemClock()
        self.metrics = metrics or Metrics(provider.name, provider.api_name)
        self.sessions = Sessions(self.clock, on_change=self.metrics.sessions.set)
        service = Service(
            provider,
            self.clock,
            self.sessions,
            self.metrics.api_calls,
            instance_id=uuid.uuid4().hex,
            protocols=options.protocols,
            heartbeat_seconds=options.heartbeat_seconds,
            addresses=options.addresses,
            process_identity=options.process_identity,
        )
        gate = token_gate(options.call_auth, self.clock)
        self.frame = Frame(service, self.metrics, frozenset(options.allowed_clients), gate)
        self.address = ""
        self.metrics_address = ""
        self._ready = False
        self._health = Health()
        self.live_address = ""
        self._probes = Probes(self.clock, lambda: self._ready, self.metrics.exposition)
        self._live = Probes(self.clock, lambda: self._ready)
        self._grpc: aio.Server | None = None
        self._sweeping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Wait for the certificates, then listen and report it."""
        certificates = await self._certificates()
        server = aio.server(options=self._grpc_options())
        server.add_generic_rpc_handlers(generic_handlers(self.frame))
        self._health.add_to(server)
        host, _ = address_parts(self.options.listen)
        try:
            port = server.add_secure_port(self.options.listen, certificates.credentials())
        except RuntimeError:
            raise ServeError(f"cannot listen on {self.options.listen}; is the port taken?") from None
        await server.start()
        self._grpc = server
        self._sweeping = asyncio.get_running_loop().create_task(self.sessions.sweep())
        self.address = spelled_address(host, port)
        if self.options.metrics:
            self.metrics_address = await listening(self._probes, self.options.metrics)
        if self.options.live:
            self.live_address = await listening(self._live, self.options.live)
        self._ready = True
        self.metrics.serving.set(1)
        await self._health.serving()
        _log.info("serving", provider=self.provider.name, address=self.address, metrics=self.metrics_address)
        if self.options.ready_file is not None:
            write_ready(self.options.ready_file, self.describe())

    def describe(self) -> dict[str, Any]:
        """Return the content of the ready file."""
        return {
            "address": self.address,
            "metrics": self.metrics_address,
            "live": self.live_address,
            "name": self.provider.name,
            "pid": os.getpid(),
        }

    async def drain(self) -> None:
        """Take no new calls, let the running ones finish within the drain time, then close everything."""
        if self._grpc is None:
            return
        self._ready = False
        self.metrics.serving.set(0)
        _log.info("draining", provider=self.provider.name, seconds=self.options.drain_seconds)
        await self._health.draining()
        self.frame.draining.set()
        await self._grpc.stop(self.options.drain_seconds)
        if self._sweeping is not None:
            self._sweeping.cancel()
        await self.sessions.close()
        await self._probes.stop()
        await self._live.stop()
        if self.options.ready_file is not None:
            with suppress(OSError):  # it may not exist
                self.options.ready_file.unlink()
        _log.info("stopped", provider=self.provider.name)

    async def _certificates(self) -> ServerCertificates:
        folder = self.options.tls_dir
        source = TlsFolder(folder, lambda result: self.metrics.tls_reloads.labels(result).inc())
        try:
            first = await wait_for_certificates(source, self.clock, self.options.tls_wait_seconds)
            self._warn_of_dates(first)
            return ServerCertificates(source)
        except TlsMaterialError as exc:
            raise ServeError(
                f"no usable certificates in {folder} after {self.options.tls_wait_seconds:.0f} seconds: {exc};"
                " it needs ca.crt, tls.crt and tls.key, which the operator issues for the provider's Service"
            ) from exc

    def _warn_of_dates(self, material: TlsMaterial) -> None:
        if material.has_invalid_dates():
            _log.warning(
                "the certificate has expired or is not valid yet; clients will refuse it",
                folder=str(self.options.tls_dir),
            )

    def _grpc_options(self) -> list[tuple[str, Any]]:
        options: dict[str, Any] = dict(SERVER_OPTIONS)
        if self.options.max_connection_age is not None:
            options["grpc.max_connection_age_ms"] = int(self.options.max_connection_age * 1000)
        if size := self.provider.limits.max_message_bytes:
            options["grpc.max_receive_message_length"] = size
            options["grpc.max_send_message_length"] = size
        return list(options.items())


class Lifecycle(Protocol):
    """A server that a process runs: one provider, or several."""

    async def start(self) -> None:
        """Listen, or raise `ServeError`."""

    async def drain(self) -> None:
        """Finish running calls and close everything; also after a start that failed or was cancelled."""


def serve(provider: Provider, options: ServeOptions) -> int:
    """Serve until SIGTERM or SIGINT, then drain, and return the exit code."""
    return asyncio.run(run_until_signal(lambda: Server(provider, options)))


def address_parts(address: str) -> tuple[str, int]:
    """Split `host:port`."""
    host, separator, port = address.rpartition(":")
    if not separator or not host or not port.isdigit() or int(port) > 65535:
        raise ServeError(f'"{address}" is not an address; write host:port')
    return host.removeprefix("[").removesuffix("]"), int(port)


def spelled_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def run_until_signal(make: Callable[[], Lifecycle]) -> int:
    """Start a server, wait for SIGTERM or SIGINT, and drain; return the exit code."""
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(loop_exception_handler)
    stop_requested = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop_requested.set)
    server = make()
    starting = loop.create_task(server.start())
    stopping = loop.create_task(stop_requested.wait())
    try:
        await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            await stopping
        else:  # stopped while waiting for certificates
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
    finally:
        stopping.cancel()
        await server.drain()
    return EXIT_OK


async def listening(probes: Probes, address: str) -> str:
    """Let the probes listen there; return the address with the port that was taken."""
    host, port = address_parts(address)
    try:
        return spelled_address(*await probes.start(host, port))
    except OSError as exc:
        raise ServeError(f"cannot listen on {address} for probes and metrics: {exc.strerror}") from None


def write_ready(path: Path, content: dict[str, Any]) -> None:
    """Write the file atomically: a waiting process reads it as soon as it exists."""
    partial = path.parent / f"{path.name}.part"
    try:
        partial.write_text(json.dumps(content), encoding="utf-8")
        partial.replace(path)
    except OSError as exc:
        with suppress(OSError):
            partial.unlink()
        raise ServeError(f"cannot write the ready file {path}: {exc.strerror}") from None


# --- gRPC services ---------------------------------------------------------------------------------------------------

# Messages stay bytes in the handlers, so that malformed ones get a response.


def generic_handlers(frame: Frame) -> tuple[grpc.GenericRpcHandler, ...]:
    """Return one handler for each service."""
    services: dict[str, dict[str, grpc.RpcMethodHandler[bytes, bytes]]] = defaultdict(dict)
    for method in UNARY:
        services[method.service][method.name] = _unary(frame, method)
    services[STORES]["FindSecrets"] = _find(frame)
    services[STORES]["Subscribe"] = _subscribe(frame)
    return tuple(grpc.method_handlers_generic_handler(name, methods) for name, methods in services.items())


def _unary(frame: Frame, method: Method) -> grpc.RpcMethodHandler[bytes, bytes]:
    async def handle(raw: bytes, rpc: Any) -> bytes:
        return await frame.unary(method, raw, rpc)

    return grpc.unary_unary_rpc_method_handler(handle)


def _find(frame: Frame) -> grpc.RpcMethodHandler[bytes, bytes]:
    async def handle(raw: bytes, rpc: Any) -> None:
        await frame.find(raw, rpc)

    return grpc.unary_stream_rpc_method_handler(handle)


def _subscribe(frame: Frame) -> grpc.RpcMethodHandler[bytes, bytes]:
    async def handle(incoming: AsyncIterator[bytes], rpc: Any) -> None:
        await frame.subscribe(incoming, rpc)

    return grpc.stream_stream_rpc_method_handler(handle)


_NAMES = ("", INFO, STORES, GENERATORS)


class Health:
    """Reports the health of the whole process (the empty name) and of each service."""

    def __init__(self) -> None:
        self._servicer: Any = aio_health.HealthServicer()

    def add_to(self, server: aio.Server) -> None:
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, server)

    async def serving(self) -> None:
        for name in _NAMES:
            await self._servicer.set(name, health_pb2.HealthCheckResponse.SERVING)

    async def draining(self) -> None:
        """Report not serving permanently: a shutdown is never undone."""
        await self._servicer.enter_graceful_shutdown()
