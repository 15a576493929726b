"""Why a provider is not reached, in words: gRPC says UNAVAILABLE for everything from DNS to an expired certificate.

After a failure one probe looks for the cause. Its finding is kept for a while, so that a thousand failures of one
endpoint cost one probe.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from eso_operator.providers.errors import restated
from eso_operator.stores.addresses import is_never_dialled
from eso_operator.stores.target import Endpoint
from eso_wire.probe import TlsProblem, diagnose
from eso_wire.status import TransportError
from eso_wire.tls import TlsMaterial
from kuberun.clock import Clock

_KEPT_SECONDS = 5.0
_MAX_KEPT = 500
_PROBE_SECONDS = 3.0


class Probe(Protocol):
    """`eso_wire.probe.diagnose`, or what a test puts in its place."""

    def __call__(
        self, host: str, port: int, *, server_name: str, material: TlsMaterial, deadline: float
    ) -> Coroutine[Any, Any, TlsProblem | None]: ...


PROBE: Final[Probe] = partial(diagnose, refused=is_never_dialled)
"""What is never dialled is not dialled to find out why, either."""


class Address(NamedTuple):
    host: str
    port: int


@dataclass(slots=True)
class _Finding:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    until: float = float("-inf")
    problem: TlsProblem | None = None


class Diagnoses:
    """Findings of the last while, by endpoint and certificates."""

    def __init__(self, clock: Clock, probe: Probe = PROBE) -> None:
        self._clock = clock
        self._probe = probe
        self._findings: OrderedDict[tuple[str, str, str], _Finding] = OrderedDict()

    async def explained(self, error: TransportError, endpoint: Endpoint, material: TlsMaterial) -> TransportError:
        """The same error with the cause named, where one can be found."""
        address = address_of(endpoint.target)
        problem = None if address is None else await self._problem(address, endpoint, material)
        cause = error.cause if problem is None else problem.message
        named = TransportError(cause)
        message = f"provider {endpoint.label} was not reached: {cause}"
        code = "" if problem is None else problem.kind.value
        copy = restated(named, message=message, backend_code=code, retry_after=error.retry_after)
        assert isinstance(copy, TransportError)  # noqa: S101 - restated keeps the type
        return copy

    async def _problem(self, address: Address, endpoint: Endpoint, material: TlsMaterial) -> TlsProblem | None:
        finding = self._finding((endpoint.target, endpoint.server_name, material.fingerprint))
        async with finding.lock:
            if self._clock.monotonic() >= finding.until:
                finding.problem = await self._probe(
                    address.host,
                    address.port,
                    server_name=endpoint.server_name,
                    material=material,
                    deadline=_PROBE_SECONDS,
                )
                finding.until = self._clock.monotonic() + _KEPT_SECONDS
            return finding.problem

    def _finding(self, key: tuple[str, str, str]) -> _Finding:
        finding = self._findings.setdefault(key, _Finding())
        self._findings.move_to_end(key)
        if len(self._findings) > _MAX_KEPT:
            self._findings.popitem(last=False)
        return finding


def address_of(target: str) -> Address | None:
    """Host and port in a gRPC target: the first one where it lists several; None for Unix sockets."""
    scheme, separator, rest = target.partition(":")
    if separator and scheme in ("unix", "unix-abstract", "vsock"):
        return None
    if separator and scheme in ("dns", "ipv4", "ipv6"):
        target = rest.rpartition("/")[2]
    host, _, port = target.partition(",")[0].rpartition(":")
    return Address(host.strip("[]"), int(port)) if host and port.isdecimal() else None


async def no_probe(
    host: str, port: int, *, server_name: str, material: TlsMaterial, deadline: float
) -> TlsProblem | None:
    """For transports without an address."""
    del host, port, server_name, material, deadline
    return None
