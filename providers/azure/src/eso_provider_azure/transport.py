"""The HTTP client of the SDK as the transport of Microsoft's libraries.

All requests of the libraries then follow the address rule, have a deadline and a bounded response, and follow redirects
never. Failures without a response are `ProviderError`s already; the libraries pass them on.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, MutableMapping
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self

import msgspec
from azure.core.exceptions import HttpResponseError
from azure.core.pipeline.transport import AsyncHttpTransport
from azure.core.rest import AsyncHttpResponse, HttpRequest
from multidict import CIMultiDict

from eso_sdk.http import HttpClient, HttpResponse, url_of
from eso_sdk.http import HttpRequest as KitRequest


class ReceivedResponse(AsyncHttpResponse):
    """A response that was received completely."""

    def __init__(self, request: HttpRequest, response: HttpResponse) -> None:
        self._request = request
        self._response = response
        self._headers: MutableMapping[str, str] = CIMultiDict(response.headers)
        self._encoding: str | None = None

    @property
    def request(self) -> HttpRequest:
        return self._request

    @property
    def status_code(self) -> int:
        return self._response.status

    @property
    def headers(self) -> MutableMapping[str, str]:
        return self._headers

    @property
    def reason(self) -> str:
        try:
            return HTTPStatus(self._response.status).phrase
        except ValueError:
            return ""

    @property
    def content_type(self) -> str | None:
        return self._headers.get("Content-Type")

    @property
    def is_closed(self) -> bool:
        return True

    @property
    def is_stream_consumed(self) -> bool:
        return True

    @property
    def encoding(self) -> str | None:
        return self._encoding

    @encoding.setter
    def encoding(self, value: str | None) -> None:
        self._encoding = value

    @property
    def url(self) -> str:
        return self._request.url

    @property
    def content(self) -> bytes:
        return self._response.body

    def body(self) -> bytes:
        """Return the content, as azure-identity expects it."""
        return self._response.body

    def text(self, encoding: str | None = None) -> str:
        return self._response.body.decode(encoding or self._encoding or "utf-8", errors="replace")

    def json(self) -> Any:
        try:
            return msgspec.json.decode(self._response.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise ValueError("the response is not JSON") from None  # the decoder's own message may quote it

    def raise_for_status(self) -> None:
        if self._response.status >= HTTPStatus.BAD_REQUEST:
            raise HttpResponseError(response=self)

    async def read(self) -> bytes:
        return self._response.body

    async def iter_raw(self, **_: Any) -> AsyncIterator[bytes]:
        yield self._response.body

    async def iter_bytes(self, **_: Any) -> AsyncIterator[bytes]:
        yield self._response.body

    async def close(self) -> None:
        """Do nothing: the connection has been returned."""

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        await self.close()


class KitTransport(AsyncHttpTransport[HttpRequest, AsyncHttpResponse]):
    """Sends the requests of a library through a client of the SDK, which its owner closes."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client

    async def send(self, request: HttpRequest, **_: Any) -> AsyncHttpResponse:
        body = request.content
        sent = KitRequest(
            request.method, url_of(request.url), dict(request.headers), body.encode() if isinstance(body, str) else body
        )
        return ReceivedResponse(request, await self._client.send(sent))

    async def open(self) -> None:
        """Do nothing: the client opens itself."""

    async def close(self) -> None:
        """Do nothing: the client is shared."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        await self.close()
