"""HTTP to token services.

Addresses of the provider itself (Google's endpoints, the metadata server) may be link-local or loopback. Addresses that
a spec or one of its Secrets names follow the address rule of the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import TimeoutError as NoAnswerError
from dataclasses import dataclass
from typing import Any, Final

from google.auth.exceptions import TransportError
from google.auth.transport import Request, Response
from yarl import URL

from eso_provider_gcp.endpoints import IAM_CREDENTIALS, SECURE_TOKEN, STS, base_of
from eso_sdk.addresses import LINK_LOCAL, LOOPBACK, AddressPolicy
from eso_sdk.http import HttpAnswer, HttpClient, HttpRequest, HttpSettings, url_of
from eso_wire.errors import ErrorReason, ProviderError
from kubebase.clock import Clock

SECONDS: Final = 10.0
_MAX_ANSWER: Final = 256 * 1024
OWN: Final = AddressPolicy.parse((LOOPBACK, LINK_LOCAL))
"""For addresses that the provider's administrator chose, or Google publishes."""


@dataclass(frozen=True, slots=True)
class Outside:
    """Sends the requests of one login. It needs one or two of them, so no connection is kept."""

    clock: Clock
    policy: AddressPolicy
    """The rule for addresses that are not Google's."""
    field: str
    """The field of the spec that leads to those addresses."""

    async def send(self, request: HttpRequest, *, seconds: float = SECONDS) -> HttpAnswer:
        own = _is_own(request.url)
        settings = HttpSettings(
            request.url.host or "the token service", field=self.field, seconds=seconds, max_answer=_MAX_ANSWER
        )
        client = HttpClient(settings, policy=OWN if own else self.policy, clock=self.clock)
        try:
            return await client.send(request)
        finally:
            await client.close()


def _is_own(url: URL) -> bool:
    return any(url.origin() == URL(base_of(name)).origin() for name in (STS, SECURE_TOKEN, IAM_CREDENTIALS))


class _Answer(Response):
    """An answer as google-auth reads it."""

    def __init__(self, answer: HttpAnswer) -> None:
        self._answer = answer

    @property
    def status(self) -> int:
        return self._answer.status

    @property
    def headers(self) -> Mapping[str, str]:
        return {name.lower(): value for name, value in self._answer.headers.items()}

    @property
    def data(self) -> bytes:
        return self._answer.body


class UnreachedError(TransportError):
    """A request without an answer; google-auth expects this base class."""

    def __init__(self, error: ProviderError) -> None:
        super().__init__("no answer")  # type: ignore[no-untyped-call] # the library has no types
        self.error = error


class Bridge(Request):
    """Lets google-auth, which blocks and runs in a thread, send its requests from the event loop."""

    def __init__(self, outside: Outside) -> None:
        self._outside = outside
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
            asked = asyncio.run_coroutine_threadsafe(self._outside.send(request, seconds=seconds), self._loop)
            return _Answer(asked.result(2 * SECONDS))
        except ProviderError as failed:
            raise UnreachedError(failed) from None
        except (NoAnswerError, ValueError):
            words = "a token service of Google did not answer in time, or its address is not a URL"
            raise UnreachedError(ProviderError(ErrorReason.BACKEND_TIMEOUT, words)) from None
