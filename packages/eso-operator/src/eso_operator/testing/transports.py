"""Transports between an operator and the API server: a lagging watch, lost writes, lost responses, a missing group."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Self

from kuberun.errors import ApiError, NotServed, ServiceUnavailable, Unreachable
from kuberun.requests import Request
from kuberun.transport import Transport


class Between:
    """Passes everything on; subclasses intercept. Used as `through=between.over`."""

    inner: Transport

    def over(self, inner: Transport) -> Self:
        self.inner = inner
        return self

    async def request(self, request: Request) -> bytes:
        return await self.inner.request(request)

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self.inner.stream(request)

    async def close(self) -> None:
        await self.inner.close()


class LaggingWatch(Between):
    """Delays the watch events of one resource until `flowing` is set."""

    def __init__(self, plural: str) -> None:
        self._end = f"/{plural}"
        self.flowing = asyncio.Event()
        self.flowing.set()

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._held(request) if request.path.endswith(self._end) else self.inner.stream(request)

    @asynccontextmanager
    async def _held(self, request: Request) -> AsyncGenerator[AsyncIterator[bytes], None]:
        async with self.inner.stream(request) as lines:
            yield self._later(lines)

    async def _later(self, lines: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        async for line in lines:
            await self.flowing.wait()
            yield line


def away() -> ApiError:
    return ServiceUnavailable(503, "ServiceUnavailable", "the API server is away")


def unserved() -> ApiError:
    return NotServed(404, "", "there is no such group")


class LostWrites(Between):
    """Drops writes to paths that end with `losing`; `lost` counts them. `answer` is the response to them."""

    def __init__(self, answer: Callable[[], ApiError] = away) -> None:
        self._answer = answer
        self.losing = ""
        self.lost = 0

    async def request(self, request: Request) -> bytes:
        if self.losing and request.method != "GET" and request.path.endswith(self.losing):
            self.lost += 1
            raise self._answer()
        return await self.inner.request(request)


class LostAnswers(Between):
    """Sends writes to paths that end with `losing`, but drops their responses; `lost` counts them."""

    def __init__(self) -> None:
        self.losing = ""
        self.lost = 0

    async def request(self, request: Request) -> bytes:
        answer = await self.inner.request(request)
        if self.losing and request.method != "GET" and request.path.endswith(self.losing):
            self.lost += 1
            raise Unreachable("the connection broke off")
        return answer


class _Unserved(Between):
    """Parts of the API that the API server does not have, for as long as `hides` is set."""

    def __init__(self) -> None:
        self.hides = True

    def hidden(self, path: str) -> bool:
        raise NotImplementedError

    async def request(self, request: Request) -> bytes:
        self._refuse(request)
        return await self.inner.request(request)

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        self._refuse(request)
        return self.inner.stream(request)

    def _refuse(self, request: Request) -> None:
        if self.hides and self.hidden(request.path):
            raise unserved()


class UnservedGroup(_Unserved):
    """An API group that the API server does not have."""

    def __init__(self, group: str) -> None:
        super().__init__()
        self._root = f"/apis/{group}/"

    def hidden(self, path: str) -> bool:
        return path.startswith(self._root)


class UnservedKinds(_Unserved):
    """Kinds, by their plural names, that the API server does not have in any v1 group."""

    def __init__(self, *plurals: str) -> None:
        super().__init__()
        self._plurals = frozenset(plurals)

    def hidden(self, path: str) -> bool:
        return "/v1" in path and not self._plurals.isdisjoint(path.split("/"))
