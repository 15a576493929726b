"""HTTP to token services.

Addresses of the provider itself (Google's endpoints, the metadata server) may be link-local or loopback. Addresses that
a spec or one of its Secrets names follow the address rule of the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import TimeoutError as NoResponseError
from dataclasses import dataclass, replace
from typing import Any, Final

from google.auth.exceptions import TransportError
from google.auth.transport import Request, Response
from yarl import URL

from eso_provider_gcp.endpoints import IAM_CREDENTIALS, SECURE_TOKEN, STS, base_of, metadata_url
from eso_sdk.addresses import LINK_LOCAL, LOOPBACK, AddressPolicy
from eso_sdk.errors import invalid_config
from eso_sdk.http import HttpClient, HttpRequest, HttpResponse, HttpSettings, url_of
from eso_wire.errors import ErrorReason, ProviderError
from kubebase.clock import Clock

SECONDS: Final = 10.0
_MAX_RESPONSE: Final = 256 * 1024
OWN: Final = AddressPolicy.parse((LOOPBACK, LINK_LOCAL))
"""For addresses that the provider's administrator chose, or Google publishes."""


@dataclass(frozen=True, slots=True)
class TokenClient:
    """Sends the requests of one login. A login needs one or two of them, so no connection stays open."""

    clock: Clock
    policy: AddressPolicy
    """The rule for addresses that are not Google's."""
    field: str
    """The field of the spec that leads to those addresses."""

    async def send(self, request: HttpRequest, *, seconds: float = SECONDS) -> HttpResponse:
        own = _is_own(request.url)
        settings = HttpSettings(
            request.url.host or "the token service", field=self.field, seconds=seconds, max_response=_MAX_RESPONSE
        )
        client = HttpClient(settings, policy=OWN if own else self.policy, clock=self.clock)
        try:
            return await client.send(request)
        finally:
            await client.close()


def _is_own(url: URL) -> bool:
    return any(url.origin() == URL(base_of(name)).origin() for name in (STS, SECURE_TOKEN, IAM_CREDENTIALS))


class _GoogleResponse(Response):
    """A response as google-auth reads it."""

    def __init__(self, response: HttpResponse) -> None:
        self._response = response

    @property
    def status(self) -> int:
        return self._response.status

    @property
    def headers(self) -> Mapping[str, str]:
        return {name.lower(): value for name, value in self._response.headers.items()}

    @property
    def data(self) -> bytes:
        return self._response.body


class UnreachedError(TransportError):
    """A request without a response; google-auth expects this base class."""

    def __init__(self, error: ProviderError) -> None:
        super().__init__("no response")  # type: ignore[no-untyped-call] # the library has no types
        self.error = error


class Bridge(Request):
    """Lets google-auth, which blocks and runs in a thread, send its requests from the event loop."""

    def __init__(self, client: TokenClient) -> None:
        self._client = client
        self._loop = asyncio.get_running_loop()

    def __call__(
        self,
        url: str,
        method: str = "GET",
        body: bytes | str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        **_: Any,
    ) -> Response:
        content = body.encode() if isinstance(body, str) else body or b""
        seconds = min(timeout or SECONDS, SECONDS)
        try:
            request = HttpRequest(method, url_of(url), dict(headers or {}), content)
            future = asyncio.run_coroutine_threadsafe(self._client.send(request, seconds=seconds), self._loop)
            return _GoogleResponse(future.result(2 * SECONDS))
        except ProviderError as failed:
            raise UnreachedError(failed) from None
        except (NoResponseError, ValueError):
            message = "a token service of Google did not respond in time, or its address is not a URL"
            raise UnreachedError(ProviderError(ErrorReason.BACKEND_TIMEOUT, message)) from None


_FIELDS: Final = {
    "project/project-id": "/projectID",
    "instance/attributes/cluster-location": "/auth/workloadIdentity/clusterLocation",
    "instance/attributes/cluster-name": "/auth/workloadIdentity/clusterName",
}
_SECONDS: Final = 3.0


async def metadata(path: str, client: TokenClient) -> str:
    """Return one fact; its field of the spec must be set where the metadata server does not know it."""
    request = HttpRequest("GET", URL(metadata_url(path)), {"Metadata-Flavor": "Google"})
    try:
        response = await replace(client, policy=OWN).send(request, seconds=_SECONDS)
    except ProviderError:
        raise invalid_config(_FIELDS[path], "set it: Google's metadata server cannot be reached") from None
    found = response.body.decode("ascii", "replace").strip()
    if response.status != 200 or not found:
        raise invalid_config(_FIELDS[path], "set it: Google's metadata server does not know it")
    return found
