"""The common part of both kinds of store: one connection to an API server per session, and its errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from eso_api.stores.kubernetes import KubernetesConnection
from eso_provider_kubernetes.connecting import check_connection, check_namespaces_named, connect
from eso_provider_kubernetes.failures import Request, provider_error
from eso_sdk.addresses import ForbiddenAddressError
from eso_sdk.http import forbidden_address
from eso_sdk.provider import Store
from eso_wire.errors import ProviderError
from kuberun.client import Client
from kuberun.errors import ApiError, Unreachable
from kuberun.transport import AiohttpTransport, TransportLimits

K = TypeVar("K", bound=KubernetesConnection)

LIMITS: Final = TransportLimits(connections=32, response_bytes=96 << 20)
_FIELD_MANAGER: Final = "external-secrets"
"""Who writes Secrets that are pushed, in their managedFields: as the operator in Go."""
PAGE_SIZE: Final = 50
"""Objects of one page. The largest object that an API server stores has about 1.5 MiB; a page of them must fit."""


class ClusterStore(Store[K]):
    """A store whose backend is an API server."""

    @classmethod
    def check_config(cls, config: K) -> tuple[str, ...]:
        return check_connection(config)

    async def open(self) -> None:
        self._forbidden: ForbiddenAddressError | None = None
        """Why the address of the server was refused, if it was."""
        if not self.holder.namespace:
            check_namespaces_named(self.config)
        connection = await connect(self.config, self, self.clock)
        self.client = Client(AiohttpTransport(connection, LIMITS, vet=self._vet), field_manager=_FIELD_MANAGER)

    async def close(self) -> None:
        if client := getattr(self, "client", None):
            await client.close()

    @contextmanager
    def asking(self, call: str, request: Request) -> Iterator[None]:
        """Count one call to the API server, and translate its failure."""
        with self.observe(call):
            try:
                yield
            except ApiError as error:
                raise self.failure(error, request) from None

    def failure(self, error: ApiError, request: Request) -> ProviderError:
        """Return the protocol's error for a failed request."""
        if isinstance(error, Unreachable) and self._forbidden is not None:
            return forbidden_address("/authRef" if self.config.auth_ref else "/server/url", self._forbidden)
        return provider_error(error, request)

    def _vet(self, address: str) -> None:
        self._forbidden = None
        try:
            self.addresses.check(address)
        except ForbiddenAddressError as refused:
            self._forbidden = refused
            raise


AnyClusterStore = ClusterStore[Any]
