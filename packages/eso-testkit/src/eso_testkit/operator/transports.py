"""Transports between an operator and the API server: a lagging watch, lost or disturbed requests, a missing group."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from enum import Enum
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
    """Drops writes to paths that end with `losing`; `lost` counts them. `error` makes the response to them."""

    def __init__(self, error: Callable[[], ApiError] = away) -> None:
        self._error = error
        self.losing = ""
        self.lost = 0

    async def request(self, request: Request) -> bytes:
        if self.losing and request.method != "GET" and request.path.endswith(self.losing):
            self.lost += 1
            raise self._error()
        return await self.inner.request(request)


class LostResponses(Between):
    """Sends writes to paths that end with `losing`, but drops their responses; `lost` counts them."""

    def __init__(self) -> None:
        self.losing = ""
        self.lost = 0

    async def request(self, request: Request) -> bytes:
        response = await self.inner.request(request)
        if self.losing and request.method != "GET" and request.path.endswith(self.losing):
            self.lost += 1
            raise Unreachable("the connection broke off")
        return response


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


class Fault(Enum):
    """What happens to a request."""

    TOUCHED = "a user annotates the object just before it"
    LOST = "it does not arrive"
    UNANSWERED = "its answer does not arrive"
    KILLED_BEFORE = "it does not arrive, and neither does any later one"
    KILLED_AFTER = "its answer does not arrive, and neither does any later request"


class Faulty(Between):
    """Disturbs one request about each object, chosen by number, and records every `data.password` that was written.

    `strikes` has the number by object. An object is recognised by its name, which must be part of the names of its
    Secret and GeneratorStates, and of no other object.
    """

    def __init__(self, fault: Fault) -> None:
        self._fault = fault
        self.strikes: dict[str, int] = {}
        self.touch: Callable[[str], Awaitable[None]] | None = None
        """Changes an object as a user would."""
        self.counts: Counter[str] = Counter()
        self.dead: set[str] = set()
        self.written: dict[str, list[str]] = {}
        """Every new password by object, in order."""

    @property
    def struck(self) -> set[str]:
        return {name for name, number in self.strikes.items() if self.counts[name] >= number}

    async def request(self, request: Request) -> bytes:
        name = self._about(request)
        if name is None:
            return await self.inner.request(request)
        if name in self.dead:
            raise Unreachable("killed")
        self.counts[name] += 1
        strikes = self.counts[name] == self.strikes[name]
        if strikes and self._fault is Fault.TOUCHED and self.touch is not None:
            await self.touch(name)
        if strikes and self._fault is Fault.KILLED_BEFORE:
            self.dead.add(name)
        if strikes and self._fault in (Fault.LOST, Fault.KILLED_BEFORE):
            raise Unreachable("the connection broke off")
        response = await self.inner.request(request)
        self._note(name, request, response)
        if strikes and self._fault is Fault.KILLED_AFTER:
            self.dead.add(name)
        if strikes and self._fault in (Fault.UNANSWERED, Fault.KILLED_AFTER):
            raise Unreachable("the connection broke off")
        return response

    def _about(self, request: Request) -> str | None:
        if "/events" in request.path:
            return None
        text = request.path.encode() + (request.body or b"" if request.method == "POST" else b"")
        return next((name for name in self.strikes if name.encode() in text), None)

    def _note(self, name: str, request: Request, response: bytes) -> None:
        if request.method == "GET" or not response:
            return
        data = json.loads(response).get("data")
        password = data.get("password") if isinstance(data, dict) else None
        recorded = self.written.setdefault(name, [])
        if password is not None and password not in recorded[-1:]:
            recorded.append(password)
