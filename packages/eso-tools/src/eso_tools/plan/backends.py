"""The providers of a simulation: an interface, and a recording instead of providers.

Calls with effects are withheld (`withholding.py`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from google.protobuf import json_format

from eso_operator.providers.channels import Transport
from eso_operator.stores.resolved import Endpoint, ServiceKey
from eso_tools.plan.recording import RecordingError
from eso_tools.plan.replay import Replay, ReplayingTransport
from eso_tools.plan.withholding import Withheld, WithholdingTransport
from eso_tools.providers import CORE_NAMESPACE, service_object
from eso_wire import codec
from eso_wire._generated import provider_pb2 as pb
from eso_wire.tls import TlsMaterial
from kuberun.client import Client
from localkube.cluster import Cluster
from localkube.manifests import install


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
