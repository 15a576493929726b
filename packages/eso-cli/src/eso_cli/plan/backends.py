"""The providers of a plan: processes that start when an object needs them, or a recording.

Either way, calls with effects are withheld (`eso_operator/planning/withholding.py`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from google.protobuf import json_format

from eso_cli.demand import Demand
from eso_cli.providers import CORE_NAMESPACE, Supervised, keep_certificates, plan_others, service_object
from eso_cli.supervisor import supervised
from eso_cli.up import provider_component
from eso_operator.planning.answers import Recorder, RecordingTransport, Replay, ReplayingTransport
from eso_operator.planning.recording import RecordingError
from eso_operator.planning.withholding import Withheld, WithholdingTransport
from eso_operator.providers.channel import GrpcTransport
from eso_operator.providers.transport import Transport
from eso_operator.stores.resolved import Endpoint, ServiceKey
from eso_wire import codec
from eso_wire._generated import provider_pb2 as pb
from eso_wire.tls import TlsMaterial
from kubebase.clock import Clock
from kuberun.client import Client
from localkube.cluster import Cluster
from localkube.manifests import install

_POLL_SECONDS: Final = 0.05
_REMEMBERED_LINES: Final = 5


class Needed(Protocol):
    """The providers that objects need."""

    async def started(self) -> int:
        """Start the providers that became needed, wait until they serve, and return how many serve."""
        ...

    def trouble(self) -> str:
        """Describe a provider that does not serve; empty if all do."""
        ...


class Backend(Protocol):
    """The providers of one simulation."""

    withheld: Withheld

    def services(self) -> dict[ServiceKey, str]:
        """Return the Service of each provider, with its address."""
        ...

    def dial(self, endpoint: Endpoint, material: TlsMaterial) -> Transport: ...

    def running(self, cluster: Cluster, client: Client) -> AbstractAsyncContextManager[Needed]: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class _Lines:
    """The last lines of the processes, for the report about one that does not start."""

    last: deque[str] = field(default_factory=lambda: deque(maxlen=_REMEMBERED_LINES))

    def passed_on(self, component: str, line: str) -> None:
        self.last.append(f"{component}: {line}")

    def warning(self, component: str, text: str) -> None:
        self.passed_on(component, text)


class Processes:
    """Installed providers as processes. With a recorder, their answers are recorded."""

    def __init__(self, folder: Path, clock: Clock, recorder: Recorder | None = None) -> None:
        self.withheld = Withheld()
        self._clock = clock
        self._recorder = recorder
        self._providers = {provider.name: provider for provider in plan_others((), folder)}

    def services(self) -> dict[ServiceKey, str]:
        return {provider.service: provider.address for provider in self._providers.values()}

    def dial(self, endpoint: Endpoint, material: TlsMaterial) -> Transport:
        inner: Transport = GrpcTransport(endpoint, material, self._clock)
        if self._recorder is not None:
            inner = RecordingTransport(inner, endpoint, self._recorder)
        return WithholdingTransport(inner, self.withheld)

    @asynccontextmanager
    async def running(self, cluster: Cluster, client: Client) -> AsyncIterator[Needed]:
        lines = _Lines()
        demand = Demand(cluster, (), self._providers, warn=lambda text: lines.warning("eso plan", text))
        async with supervised((), self._clock, lines) as start, asyncio.TaskGroup() as tasks:
            keepers: list[asyncio.Task[None]] = []

            async def begin(provider: Supervised) -> None:
                await install(cluster, provider.objects())
                start(provider_component(provider))
                kept = keep_certificates(provider, client, self._clock, warn=lambda text: lines.warning("up", text))
                keepers.append(tasks.create_task(kept))

            with demand.following():
                yield _NeededProcesses(demand, self._providers, begin, self._clock, lines)
            for task in keepers:
                task.cancel()

    def close(self) -> None:
        for provider in self._providers.values():
            provider.reserved.release()


class _Begin(Protocol):
    async def __call__(self, provider: Supervised) -> None: ...


class _NeededProcesses:
    def __init__(
        self, demand: Demand, providers: dict[str, Supervised], begin: _Begin, clock: Clock, lines: _Lines
    ) -> None:
        self._demand = demand
        self._providers = providers
        self._begin = begin
        self._clock = clock
        self._lines = lines
        self._running: list[Supervised] = []

    async def started(self) -> int:
        for name in await self._demand.look():
            provider = self._providers[name]
            self._running.append(provider)
            await self._begin(provider)
        while not all(provider.ready_file.exists() for provider in self._running):
            await self._clock.sleep(_POLL_SECONDS)
        return len(self._running)

    def trouble(self) -> str:
        late = [provider.name for provider in self._running if not provider.ready_file.exists()]
        if not late:
            return ""
        return f"provider {late[0]} did not start; its last lines: {' | '.join(self._lines.last)}"


class Replayed:
    """A recording instead of providers."""

    def __init__(self, replay: Replay) -> None:
        self.withheld = Withheld()
        self._replay = replay

    def services(self) -> dict[ServiceKey, str]:
        names = sorted(name.partition("/")[2] for name in self._replay.recording.providers)
        # Connections are known by their address, so each provider needs its own. None of them is dialled.
        return {ServiceKey(CORE_NAMESPACE, name): f"127.0.0.1:{port}" for port, name in enumerate(names, 1)}

    def dial(self, endpoint: Endpoint, material: TlsMaterial) -> Transport:
        del material
        return WithholdingTransport(ReplayingTransport(endpoint, self._replay), self.withheld)

    @asynccontextmanager
    async def running(self, cluster: Cluster, client: Client) -> AsyncIterator[Needed]:
        del client
        addresses = self.services()
        for name, handshake in self._replay.recording.providers.items():
            namespace, _, service = name.partition("/")
            if namespace != CORE_NAMESPACE or not service:
                raise RecordingError(f"the recording names an unknown provider {name}; record again with --record")
            try:
                message = json_format.ParseDict(handshake, pb.HandshakeResponse())
            except json_format.ParseError:
                text = f"the recorded handshake of provider {name} is malformed; record again with --record"
                raise RecordingError(text) from None
            infos = codec.from_handshake(message).kinds
            key = ServiceKey(namespace, service)
            await install(cluster, [service_object(key, int(addresses[key].rpartition(":")[2]), infos)])
        yield _NeededNone(len(self._replay.recording.providers))

    def close(self) -> None:
        """Close nothing."""


@dataclass(frozen=True, slots=True)
class _NeededNone:
    count: int

    async def started(self) -> int:
        return self.count

    def trouble(self) -> str:
        return ""
