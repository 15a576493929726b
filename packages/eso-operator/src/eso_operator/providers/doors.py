"""The check that the Service of a provider is not an alias, before it is dialled.

A Service of type ExternalName is an alias: its author could make the operator connect to any host. The informers have
labelled Services only, but an address can name any Service, so the check reads from the API server. A good result is
cached for 10 s.
"""

from __future__ import annotations

from typing import Final, Protocol

from eso_operator.certificates.problems import CertificateError, Problem, ProblemName, alias_problem
from eso_operator.stores.addresses import is_alias
from eso_operator.stores.resolved import Endpoint, ServiceKey
from kubebase.bounded import BoundedDict
from kubebase.clock import Clock
from kubebase.deadline import Deadline
from kubebase.meta import ObjectKey, Resource, raw
from kuberun.client import Client
from kuberun.errors import ApiError, NotFound

_SERVICES: Final = raw(Resource("", "v1", "services", "Service"))
_HOLDS_SECONDS: Final = 10.0
_READ_SECONDS: Final = 5.0
_MAX_KNOWN: Final = 2048


class Doors(Protocol):
    async def check(self, endpoint: Endpoint) -> None:
        """Raise `CertificateError` if the endpoint must not be dialled."""
        ...


class OpenDoors:
    """Skips the check, for endpoints that do not come from users."""

    async def check(self, endpoint: Endpoint) -> None:
        del endpoint


class ServiceDoors:
    """Checks the Service of every endpoint that is dialled by name. Its cache is bounded. The process has one."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._good_until: BoundedDict[ServiceKey, float] = BoundedDict(_MAX_KNOWN)

    async def check(self, endpoint: Endpoint) -> None:
        service = endpoint.service
        if service is None or not endpoint.uri.startswith("dns:"):
            return  # an address that an administrator configured
        if self._good_until.get(service, 0.0) > self._clock.monotonic():
            return
        if await self._is_alias(service):
            self._good_until.pop(service, None)
            raise CertificateError(alias_problem(str(service)))
        self._good_until[service] = self._clock.monotonic() + _HOLDS_SECONDS

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
            message = f"Service {service} cannot be looked at before it is dialled ({why}); it is tried again"
            raise CertificateError(Problem(ProblemName.SERVICE_UNREADABLE, message)) from None
