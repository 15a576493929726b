"""A collection of objects that can be listed and watched in memory, and that misbehaves on request.

It keeps the rules of an API server that a watch depends on: versions that grow, a history that can be compacted, pages
of one snapshot, streams that start after a version. The faults are those of real networks and servers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Generator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum, auto

import msgspec

from kubebase.meta import Malformed, Object, ObjectKey, ObjectMeta, Page
from kuberun.errors import ApiError, Gone, Unreachable


class Fault(Enum):
    """A fault of the open streams. It affects the next event to be sent, or takes effect at once without one."""

    CUT = auto()
    """The connection breaks."""
    END = auto()
    """The server ends the stream cleanly."""
    SILENCE = auto()
    """Half open: no data arrives, and the reader does not notice."""
    GARBLE = auto()
    """The next event arrives as garbage; later events arrive intact."""
    UNKNOWN_TYPE = auto()
    """The next event arrives as a frame of an unknown type."""
    EXPIRED = auto()
    """An ERROR frame with code 410."""
    INTERNAL = auto()
    """An ERROR frame with code 500."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request to the collection."""

    verb: str
    limit: int = 0
    continue_token: str = ""
    resource_version: str = ""


@dataclass(slots=True)
class _Stream:
    faults: deque[Fault] = field(default_factory=deque)
    wake_up: asyncio.Event = field(default_factory=asyncio.Event)


class FakeCollection:
    """A `Source[Object]` held in memory."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.refusals: deque[ApiError | None] = deque()
        """Errors raised by the next requests, one each; None lets a request through."""
        self.malformed: set[str] = set()
        """Names of objects that do not decode."""
        self._version = 100
        self._floor = 0
        self._objects: dict[ObjectKey, Object] = {}
        self._history: list[tuple[int, bytes]] = []
        self._snapshots: dict[str, tuple[int, list[Object]]] = {}
        self._streams: list[_Stream] = []

    # --- what a test does to it

    def put(self, name: str, *, labels: Mapping[str, str] | None = None, namespace: str = "default") -> Object:
        key = ObjectKey(namespace, name)
        old = self._objects.get(key)
        self._version += 1
        metadata = ObjectMeta(
            name=name,
            namespace=namespace,
            uid=old.metadata.uid if old else f"uid-{self._version}",
            resource_version=str(self._version),
            generation=old.metadata.generation + 1 if old else 1,
            labels=dict(labels or {}),
        )
        obj = self._objects[key] = Object(api_version="v1", kind="Thing", metadata=metadata)
        self._record("MODIFIED" if old else "ADDED", obj)
        return obj

    def delete(self, name: str, *, namespace: str = "default") -> None:
        obj = self._objects.pop(ObjectKey(namespace, name), None)
        if obj is not None:
            self._version += 1
            obj = msgspec.structs.replace(
                obj, metadata=msgspec.structs.replace(obj.metadata, resource_version=str(self._version))
            )
            self._record("DELETED", obj)

    def bookmark(self) -> None:
        obj = Object(api_version="v1", kind="Thing", metadata=ObjectMeta(resource_version=str(self._version)))
        self._record("BOOKMARK", obj)

    def compact(self) -> None:
        """Forget all history: older positions and continue tokens expire."""
        self._floor = self._version
        self._snapshots.clear()

    def disturb(self, fault: Fault) -> None:
        for stream in self._streams:
            stream.faults.append(fault)
            stream.wake_up.set()

    def state(self) -> dict[ObjectKey, str]:
        """Return every key with its version."""
        return {key: obj.metadata.resource_version for key, obj in self._objects.items()}

    @property
    def streams(self) -> int:
        return len(self._streams)

    # --- what a watch asks of it

    async def list_page(self, *, limit: int, continue_token: str, resource_version: str) -> Page[Object]:
        self.calls.append(Call("list", limit, continue_token, resource_version))
        await _Turn()
        self._refuse()
        if continue_token:
            if continue_token not in self._snapshots:
                raise Gone(410, "Expired", "the continue token has expired")
            version, rest = self._snapshots[continue_token]
        else:
            version, rest = self._version, list(self._objects.values())
        count = limit or len(rest)
        token = f"{version}-{len(rest) - count}" if len(rest) > count else ""
        if token:
            self._snapshots[token] = (version, rest[count:])
        items = [self.decode(msgspec.json.encode(obj)) for obj in rest[:count]]
        return Page(items, str(version), token)

    @asynccontextmanager
    async def watch(
        self, *, resource_version: str, timeout_seconds: int, allow_bookmarks: bool
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        assert timeout_seconds > 0, "a watch without a time limit"  # noqa: S101 - a check of the code under test
        assert allow_bookmarks, "a watch without bookmarks"  # noqa: S101 - a check of the code under test
        self.calls.append(Call("watch", resource_version=resource_version))
        await _Turn()
        self._refuse()
        stream = _Stream()
        self._streams.append(stream)
        try:
            yield self._frames(int(resource_version), stream)
        finally:
            self._streams.remove(stream)

    def decode(self, raw: bytes) -> Object | Malformed:
        obj = msgspec.json.decode(raw, type=Object)
        if obj.metadata.name in self.malformed:
            return Malformed(obj.metadata, "spec.interval: expected a duration")
        return obj

    def _refuse(self) -> None:
        if self.refusals and (refusal := self.refusals.popleft()) is not None:
            raise refusal

    def _record(self, what: str, obj: Object) -> None:
        self._history.append((self._version, _frame(what, msgspec.json.encode(obj))))
        for stream in self._streams:
            stream.wake_up.set()

    async def _frames(self, position: int, stream: _Stream) -> AsyncIterator[bytes]:
        if position < self._floor:
            yield _error(410, "Expired")
            return
        sent = sum(1 for version, _ in self._history if version <= position)
        while True:
            stream.wake_up.clear()
            fault = stream.faults[0] if stream.faults else None
            pending = len(self._history) > sent
            match fault:
                case Fault.CUT:
                    raise Unreachable("the connection broke")
                case Fault.END:
                    return
                case Fault.SILENCE:
                    await asyncio.Event().wait()
                case Fault.EXPIRED | Fault.INTERNAL:
                    stream.faults.popleft()
                    yield _error(410, "Expired") if fault is Fault.EXPIRED else _error(500, "InternalError")
                case Fault.GARBLE | Fault.UNKNOWN_TYPE if pending:
                    stream.faults.popleft()
                    sent += 1
                    yield b'{"type": "ADDED", "obj' if fault is Fault.GARBLE else _frame("SURPRISE", b"{}")
                case _ if pending:
                    sent += 1
                    yield self._history[sent - 1][1]
                case _:
                    await stream.wake_up.wait()


class _Turn:
    """Yields to the other tasks once, as any real request would."""

    def __await__(self) -> Generator[None, None, None]:
        yield


def _frame(what: str, document: bytes) -> bytes:
    return b'{"type":"%s","object":%s}' % (what.encode(), document)


def _error(code: int, reason: str) -> bytes:
    return _frame("ERROR", msgspec.json.encode({"kind": "Status", "code": code, "reason": reason}))
