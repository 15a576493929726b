"""The cause of a failed connection: gRPC reports UNAVAILABLE for everything from DNS to an expired certificate.

After a failure one probe looks for the cause. Its finding is cached for 5 s, so that a thousand failures of one
endpoint cost one probe.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from eso_operator.providers.errors import restated
from eso_operator.stores.addresses import is_never_dialled
from eso_operator.stores.resolved import Endpoint
from eso_wire.probe import TlsProblem, diagnose
from eso_wire.status import TransportError
from eso_wire.tls import TlsMaterial
from kubebase.bounded import BoundedDict
from kubebase.clock import Clock

_KEPT_SECONDS = 5.0
_MAX_KEPT = 500
_PROBE_SECONDS = 3.0


class Probe(Protocol):
    """The signature of `eso_wire.probe.diagnose`, which tests replace."""

    def __call__(
        self, host: str, port: int, *, server_name: str, material: TlsMaterial, deadline: float
    ) -> Coroutine[Any, Any, TlsProblem | None]: ...


PROBE: Final[Probe] = partial(diagnose, refused=is_never_dialled)
"""The probe. It refuses the addresses that are never dialled, too."""


class Address(NamedTuple):
    host: str
    port: int


@dataclass(slots=True)
class _Finding:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    until: float = float("-inf")
    problem: TlsProblem | None = None


class Diagnoses:
    """Recent findings by endpoint and certificates; bounded."""

    def __init__(self, clock: Clock, probe: Probe = PROBE) -> None:
        self._clock = clock
        self._probe = probe
        self._findings: BoundedDict[tuple[str, str, str], _Finding] = BoundedDict(_MAX_KEPT)

    async def explained(self, error: TransportError, endpoint: Endpoint, material: TlsMaterial) -> TransportError:
        """Return the error with its cause in the message, if the probe finds one."""
        address = address_of(endpoint.uri)
        problem = None if address is None else await self._problem(address, endpoint, material)
        cause = error.cause if problem is None else problem.message
        named = TransportError(cause)
        message = f"provider {endpoint.label} was not reached: {cause}"
        code = "" if problem is None else problem.kind.value
        copy = restated(named, message=message, backend_code=code, retry_after=error.retry_after)
        assert isinstance(copy, TransportError)  # noqa: S101 - restated keeps the type
        return copy

    async def _problem(self, address: Address, endpoint: Endpoint, material: TlsMaterial) -> TlsProblem | None:
        finding = self._finding((endpoint.uri, endpoint.server_name, material.fingerprint))
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
        self._findings[key] = finding = self._findings.get(key) or _Finding()
        return finding


def address_of(resolved: str) -> Address | None:
    """Return host and port of a gRPC target, the first if it lists several; None for Unix sockets."""
    scheme, separator, rest = resolved.partition(":")
    if separator and scheme in ("unix", "unix-abstract", "vsock"):
        return None
    if separator and scheme in ("dns", "ipv4", "ipv6"):
        resolved = rest.rpartition("/")[2]
    host, _, port = resolved.partition(",")[0].rpartition(":")
    return Address(host.strip("[]"), int(port)) if host and port.isdecimal() else None


async def no_probe(
    host: str, port: int, *, server_name: str, material: TlsMaterial, deadline: float
) -> TlsProblem | None:
    """Find nothing; for transports without an address."""
    del host, port, server_name, material, deadline
    return None
