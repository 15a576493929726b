"""Whether a provider may be dialled, and why it is not reached.

ServiceCheck   before a call: a Service that is an alias could make the operator connect to any host
Diagnoses      after a failure: gRPC reports UNAVAILABLE for everything from DNS to an expired certificate
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from eso_operator.certificates.problems import CertificateError, Problem, ProblemName, alias_problem
from eso_operator.providers.errors import restated
from eso_operator.stores.addresses import is_alias, is_never_dialled
from eso_operator.stores.resolved import Endpoint, ServiceKey
from eso_wire.probe import TlsProblem, diagnose
from eso_wire.status import TransportError
from eso_wire.tls import TlsMaterial
from kubebase.bounded import BoundedDict
from kubebase.clock import Clock
from kubebase.deadline import Deadline
from kubebase.meta import ObjectKey, Resource, raw
from kuberun.client import Client
from kuberun.errors import ApiError, NotFound

_SERVICES: Final = raw(Resource("", "v1", "services", "Service"))
_VALID_SECONDS: Final = 10.0
_READ_SECONDS: Final = 5.0
_MAX_KNOWN: Final = 2048


class ServiceCheck:
    """Checks the Service of every endpoint that is dialled by name, before it is dialled. The process has one.

    A Service of type ExternalName is an alias. The informers have labelled Services only, but an address can name any
    Service, so the check reads from the API server. A good result is cached for 10 s.
    """

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._good_until: BoundedDict[ServiceKey, float] = BoundedDict(_MAX_KNOWN)

    async def check(self, endpoint: Endpoint) -> None:
        """Raise `CertificateError` if the endpoint must not be dialled."""
        service = endpoint.service
        if service is None or not endpoint.uri.startswith("dns:"):
            return  # an address that an administrator configured
        if self._good_until.get(service, 0.0) > self._clock.monotonic():
            return
        if await self._is_alias(service):
            self._good_until.pop(service, None)
            raise CertificateError(alias_problem(str(service)))
        self._good_until[service] = self._clock.monotonic() + _VALID_SECONDS

    async def _is_alias(self, service: ServiceKey) -> bool:
        """Return whether a Service is an alias. A missing Service is not: its name resolves to nothing."""
        try:
            async with Deadline(self._clock, _READ_SECONDS):
                return is_alias(await self._client.get(_SERVICES, ObjectKey(service.namespace, service.name)))
        except NotFound:
            return False
        except (ApiError, TimeoutError) as error:
            if service in self._good_until:
                return False  # the last check was good: keep working while the API server is down
            why = (error.reason or error.code) if isinstance(error, ApiError) else "no answer"
            message = f"Service {service} cannot be read before the provider is dialled ({why}); retried soon"
            raise CertificateError(Problem(ProblemName.SERVICE_UNREADABLE, message)) from None


# --- diagnosis ------------------------------------------------------------------------------------------------------

_CACHE_SECONDS: Final = 5.0
_MAX_FINDINGS: Final = 500
_PROBE_SECONDS: Final = 3.0


Probe = Callable[..., Awaitable[TlsProblem | None]]
"""`eso_wire.probe.diagnose`, or a replacement of tests with the same parameters."""

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
    """Causes of failed connections, by endpoint and certificates; bounded.

    After a failure one probe looks for the cause. Its finding is cached for 5 s, so that a thousand failures of one
    endpoint cost one probe.
    """

    def __init__(self, clock: Clock, probe: Probe = PROBE) -> None:
        self._clock = clock
        self._probe = probe
        self._findings: BoundedDict[tuple[str, str, str], _Finding] = BoundedDict(_MAX_FINDINGS)

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
                finding.until = self._clock.monotonic() + _CACHE_SECONDS
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
