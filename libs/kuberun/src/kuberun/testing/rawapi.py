"""A thin HTTP client for tests of the API itself: any path, any body, the reply unchanged.

It adds a token, TLS and a deadline, nothing else; tests of controllers use kuberun.client instead.
"""

from __future__ import annotations

import asyncio
import io
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import aiohttp
from multidict import CIMultiDictProxy

from kuberun.transport import Sockets, abort_response

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

CALL_SECONDS = 60.0
FRAME_SECONDS = 30.0


class Reply(NamedTuple):
    """Status code, decoded JSON (or text if it is not JSON), headers."""

    status: int
    body: Any
    headers: CIMultiDictProxy[str]

    @property
    def reason(self) -> str:
        return str(self.body.get("reason", ""))

    @property
    def message(self) -> str:
        return str(self.body.get("message", ""))

    @property
    def causes(self) -> list[dict[str, str]]:
        return list(self.body.get("details", {}).get("causes", []))

    @property
    def warnings(self) -> list[str]:
        """Texts of the Warning headers (`299 - "text"`), unquoted."""
        values = self.headers.getall("Warning", [])
        return [str(json.loads(value.removeprefix("299 - "))) for value in values]


class Frames:
    """An open watch, frame by frame."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status

    async def next(self) -> dict[str, Any]:
        """Return the next frame; fail if none arrives in time or the stream ends."""
        frame = await self.next_or_end()
        if frame is None:
            raise AssertionError("the watch ended where a frame was expected")
        return frame

    async def next_or_end(self) -> dict[str, Any] | None:
        async with asyncio.timeout(FRAME_SECONDS):
            line = await self._response.content.readuntil(b"\n")
        return json.loads(line) if line else None

    async def until(self, kind: str, name: str = "") -> dict[str, Any]:
        """Skip frames up to one of this type (and of this object, if named)."""
        while True:
            frame = await self.next()
            if frame["type"] == kind and (not name or frame["object"]["metadata"]["name"] == name):
                return frame


class RawApi:
    def __init__(self, session: aiohttp.ClientSession, url: str, token: str) -> None:
        self._session = session
        self._url = url
        self._token = token

    def with_token(self, token: str) -> RawApi:
        """Return a client for the same server with another token; an empty token sends none."""
        return RawApi(self._session, self._url, token)

    async def get(self, path: str, *, accept: str = "application/json", **query: object) -> Reply:
        return await self.send("GET", path, query=query, headers={"Accept": accept})

    async def post(self, path: str, body: object, **query: object) -> Reply:
        return await self.send("POST", path, body, query=query)

    async def put(self, path: str, body: object, **query: object) -> Reply:
        return await self.send("PUT", path, body, query=query)

    async def patch(self, path: str, body: object, content_type: str = MERGE_PATCH, **query: object) -> Reply:
        return await self.send("PATCH", path, body, query=query, headers={"Content-Type": content_type})

    async def apply(self, path: str, body: object, *, manager: str, **query: object) -> Reply:
        return await self.patch(path, body, APPLY_PATCH, fieldManager=manager, **query)

    async def delete(self, path: str, body: object = None, **query: object) -> Reply:
        return await self.send("DELETE", path, body, query=query)

    async def send(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Send one request. `bytes` and `str` bodies are sent unchanged, anything else as JSON."""
        async with self._session.request(
            method, self._url + path, data=_encoded(body), params=_query(query), headers=self._headers(headers)
        ) as response:
            text = await response.text(errors="replace")
            return Reply(response.status, _decoded(text), response.headers)

    @asynccontextmanager
    async def watch(self, path: str, *, accept: str = "application/json", **query: object) -> AsyncIterator[Frames]:
        async with self._session.get(
            self._url + path,
            params=_query({"watch": True, **query}),
            headers=self._headers({"Accept": accept}),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CALL_SECONDS),
            read_bufsize=2**22,
        ) as response:
            try:
                yield Frames(response)
            finally:
                abort_response(response)

    def _headers(self, more: Mapping[str, str] | None) -> dict[str, str]:
        headers = {"Content-Type": "application/json", **(more or {})}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        return headers


@asynccontextmanager
async def raw_api(url: str, token: str, ca_file: str) -> AsyncIterator[RawApi]:
    sockets = Sockets()
    connector = sockets.connector(ssl=ssl.create_default_context(cafile=ca_file))
    timeout = aiohttp.ClientTimeout(total=CALL_SECONDS)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        yield RawApi(session, url, token)
    await sockets.closed()


def _query(query: Mapping[str, object] | None) -> dict[str, str]:
    """Format query values as Kubernetes does: `true`, `false`, plain text; None means absent."""
    given = {key: value for key, value in (query or {}).items() if value is not None}
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in given.items()}


def _encoded(body: object) -> io.BytesIO | None:
    """Encode the body as a stream, because aiohttp warns about large bodies in one piece."""
    match body:
        case None:
            return None
        case bytes():
            return io.BytesIO(body)
        case str():
            return io.BytesIO(body.encode())
        case _:
            return io.BytesIO(json.dumps(body).encode())


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
