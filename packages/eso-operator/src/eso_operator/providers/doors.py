"""Whether the Service of a provider may be dialled at all, asked of the API server before it is.

A Service of type ExternalName is an alias: whoever may write it makes the operator connect to any host they like. The
informers know labelled Services only, and any Service can be named by address, so the answer comes from the API server
itself. It holds for a few seconds, so that a busy provider costs one read now and then.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Protocol

from eso_operator.certs.problems import CertificateError, Problem, ProblemName, alias_problem
from eso_operator.stores.addresses import is_alias
from eso_operator.stores.target import Endpoint, ServiceKey
from kuberun.client import Client
from kuberun.clock import Clock
from kuberun.deadline import Deadline
from kuberun.errors import ApiError, NotFound
from kuberun.meta import ObjectKey, Resource, raw

_SERVICES: Final = raw(Resource("", "v1", "services", "Service"))
_HOLDS_SECONDS: Final = 10.0
_READ_SECONDS: Final = 5.0
_MAX_KNOWN: Final = 2048


class Doors(Protocol):
    async def check(self, endpoint: Endpoint) -> None:
        """Raise `CertificateError` if the endpoint must not be dialled."""
        ...


class OpenDoors:
    """For connections whose endpoints nobody but us has chosen."""

    async def check(self, endpoint: Endpoint) -> None:
        del endpoint


class ServiceDoors:
    """Looks at the Service behind every endpoint that is dialled by its name. One for the process; bounded."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._good_until: OrderedDict[ServiceKey, float] = OrderedDict()

    async def check(self, endpoint: Endpoint) -> None:
        service = endpoint.service
        if service is None or not endpoint.target.startswith("dns:"):
            return  # an address that the administrator gave
        if self._good_until.get(service, 0.0) > self._clock.monotonic():
            return
        if await self._is_alias(service):
            self._good_until.pop(service, None)
            raise CertificateError(alias_problem(str(service)))
        self._good_until[service] = self._clock.monotonic() + _HOLDS_SECONDS
        self._good_until.move_to_end(service)
        if len(self._good_until) > _MAX_KNOWN:
            self._good_until.popitem(last=False)

    async def _is_alias(self, service: ServiceKey) -> bool:
        """One that does not exist is no alias: there is nothing that its name leads to."""
        try:
            async with Deadline(self._clock, _READ_SECONDS):
                return is_alias(await self._client.get(_SERVICES, ObjectKey(service.namespace, service.name)))
        except NotFound:
            return False
        except (ApiError, TimeoutError) as error:
            if service in self._good_until:
                return False  # an API server that cannot be asked takes nothing away
            why = (error.reason or error.code) if isinstance(error, ApiError) else "no answer"
            message = f"Service {service} cannot be looked at before it is dialled ({why}); it is tried again"
            raise CertificateError(Problem(ProblemName.SERVICE_UNREADABLE, message)) from None
