"""What can stand between an operator and the API server: a watch that lags, lost writes, a group that is not there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from kuberun.errors import NotServed, ServiceUnavailable, Unreachable
from kuberun.requests import Request
from kuberun.transport import Transport


class LaggingWatch:
    """Holds back what a watch says about one resource for as long as `flowing` is not set."""

    def __init__(self, inner: Transport, plural: str) -> None:
        self._inner = inner
        self._end = f"/{plural}"
        self.flowing = asyncio.Event()
        self.flowing.set()

    async def request(self, request: Request) -> bytes:
        return await self._inner.request(request)

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._held(request) if request.path.endswith(self._end) else self._inner.stream(request)

    async def close(self) -> None:
        await self._inner.close()

    @asynccontextmanager
    async def _held(self, request: Request) -> AsyncGenerator[AsyncIterator[bytes], None]:
        async with self._inner.stream(request) as lines:
            yield self._later(lines)

    async def _later(self, lines: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        async for line in lines:
            await self.flowing.wait()
            yield line


class LostWrites:
    """Writes to paths that end like `losing` do not arrive; `lost` counts them."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.losing = ""
        self.lost = 0

    async def request(self, request: Request) -> bytes:
        if self.losing and request.method != "GET" and request.path.endswith(self.losing):
            self.lost += 1
            raise ServiceUnavailable(503, "ServiceUnavailable", "the API server is away")
        return await self._inner.request(request)

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._inner.stream(request)

    async def close(self) -> None:
        await self._inner.close()


class LostAnswers:
    """Writes to paths that end like `losing` arrive, and nobody hears of it; `lost` counts them."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.losing = ""
        self.lost = 0

    async def request(self, request: Request) -> bytes:
        answer = await self._inner.request(request)
        if self.losing and request.method != "GET" and request.path.endswith(self.losing):
            self.lost += 1
            raise Unreachable("the connection broke off")
        return answer

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._inner.stream(request)

    async def close(self) -> None:
        await self._inner.close()


class UnservedGroup:
    """An API group that the API server does not have, for as long as `hides` is set."""

    def __init__(self, inner: Transport, group: str) -> None:
        self._inner = inner
        self._root = f"/apis/{group}/"
        self.hides = True

    async def request(self, request: Request) -> bytes:
        self._refuse(request)
        return await self._inner.request(request)

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        self._refuse(request)
        return self._inner.stream(request)

    async def close(self) -> None:
        await self._inner.close()

    def _refuse(self, request: Request) -> None:
        if self.hides and request.path.startswith(self._root):
            raise NotServed(404, "", "there is no such group")
