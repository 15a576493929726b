"""What is known of providers: who answered a handshake with what.

    ensure(connection) -> handshake now, unless it is known     run() -> again from time to time, sooner after failures

Replicas behind one endpoint are separate instances and answer in turn: listeners hear of an instance only when it is
new, or when what is said about kinds, limits or versions differs.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Protocol

from eso_operator.providers.errors import restated
from eso_operator.stores.target import Connection, Endpoint, TlsSource
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Handshake
from kuberun.backoff import Backoff, Random, system_random
from kuberun.clock import Clock
from kuberun.controller import parked
from kuberun.deadline import happens_within
from kuberun.fairness import FairTable

_MAX_CONNECTIONS = 1000
_MAX_INSTANCES = 64
_AT_ONCE = 8


class Change(StrEnum):
    """What listeners are told about a connection."""

    CONNECTED = "connected"
    NEW_INSTANCE = "new instance"
    """It restarted, or a replica joined: what was cached of it is void."""
    DIFFERENT = "different"
    FAILED = "failed"
    FORGOTTEN = "forgotten"


Listener = Callable[[Connection, Change], None]


class Handshakes(Protocol):
    """The part of the gateway that is used here."""

    async def handshake(self, endpoint: Endpoint, tls: TlsSource) -> Handshake: ...


@dataclass(frozen=True, slots=True)
class DirectorySettings:
    """Times in seconds."""

    refresh: float = 60.0
    jitter: float = 0.2
    again: Backoff = field(default_factory=lambda: Backoff(first=2.0, cap=60.0))


@dataclass(slots=True, eq=False)
class _Entry:
    connection: Connection
    handshake: Handshake | None = None
    error: ProviderError | None = None
    instances: OrderedDict[str, None] = field(default_factory=OrderedDict)
    failures: int = 0
    answers: int = 0
    asked_at: float = 0.0
    due: float = 0.0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Directory:
    """All connections that somebody asked for and did not forget."""

    def __init__(
        self,
        gateway: Handshakes,
        clock: Clock,
        *,
        settings: DirectorySettings = DirectorySettings(),  # noqa: B008 - a frozen value
        draw: Random = system_random,
    ) -> None:
        self._gateway = gateway
        self._clock = clock
        self._settings = settings
        self._draw = draw
        self._entries: FairTable[str, _Entry] = FairTable(_MAX_CONNECTIONS)
        self._known: dict[str, Handshake | str] = {}
        self._listeners: list[Listener] = []
        self._wake = asyncio.Event()

    # --- what is known -----------------------------------------------------------------------------------------------

    @property
    def handshakes(self) -> Mapping[str, Handshake | str]:
        """By `Connection.key`: what the provider said, or why there was no handshake. A live view."""
        return MappingProxyType(self._known)

    def listen(self, listener: Listener) -> None:
        """Call it on every change, at once and in the loop; it must not block."""
        self._listeners.append(listener)

    # --- asking ------------------------------------------------------------------------------------------------------

    async def ensure(self, connection: Connection) -> Handshake:
        """What is known, or a handshake now. A failure is raised again until the next try is due, and while it runs."""
        entry = self._entry(connection)
        if entry.handshake is not None:
            return entry.handshake
        if entry.error is not None and (self._clock.monotonic() < entry.due or entry.lock.locked()):
            raise restated(entry.error)
        return await self._ask(entry)

    async def refresh(self, connection: Connection) -> Handshake:
        """A handshake now."""
        return await self._ask(self._entry(connection))

    def suspect(self, connection: Connection) -> None:
        """A call failed in a way that a new handshake may explain: ask soon, and once for a thousand failures."""
        entry = self._entries.get(connection.key)
        if entry is not None and (soon := entry.asked_at + self._settings.again.first) < entry.due:
            entry.due = soon
            self._wake.set()

    def forget(self, connection: Connection) -> None:
        """Nobody refers to it any more."""
        if self._entries.pop(connection.key):
            self._forgotten(connection)

    def _forgotten(self, connection: Connection) -> None:
        self._known.pop(connection.key, None)
        self._tell(connection, Change.FORGOTTEN)

    async def run(self) -> None:
        """Ask again when it is time; until cancelled."""
        while True:
            self._wake.clear()
            now = self._clock.monotonic()
            due = [entry for entry in self._entries.values() if entry.due <= now and _was_asked(entry)]
            async with asyncio.TaskGroup() as group:
                for entry in due[:_AT_ONCE]:
                    group.create_task(self._ask_quietly(entry))
            if not due:
                await happens_within(self._clock, self._pause(), self._wake)

    def _pause(self) -> float:
        now = self._clock.monotonic()
        soonest = min((entry.due for entry in self._entries.values() if _was_asked(entry)), default=float("inf"))
        return max(min(soonest - now, self._settings.refresh), 0.0)

    async def _ask_quietly(self, entry: _Entry) -> None:
        try:
            await self._ask(entry)
        except ProviderError:
            return  # it is in the directory, and listeners know

    async def _ask(self, entry: _Entry) -> Handshake:
        before = entry.answers
        async with parked(), entry.lock:
            if entry.answers != before:  # somebody asked while we waited
                return _known(entry)
            entry.asked_at = self._clock.monotonic()
            try:
                answer = await self._gateway.handshake(entry.connection.endpoint, entry.connection.tls)
            except ProviderError as error:
                entry.answers += 1
                self._failed(entry, error)
                raise
            entry.answers += 1
            self._answered(entry, answer)
            return answer

    def _answered(self, entry: _Entry, answer: Handshake) -> None:
        before, recovered = entry.handshake, entry.failures > 0
        entry.handshake, entry.error, entry.failures = answer, None, 0
        entry.due = self._clock.monotonic() + self._settings.refresh * (1 - self._settings.jitter * self._draw())
        new = answer.instance_id not in entry.instances
        entry.instances[answer.instance_id] = None
        entry.instances.move_to_end(answer.instance_id)
        if len(entry.instances) > _MAX_INSTANCES:
            entry.instances.popitem(last=False)
        self._publish(entry, answer)
        if before is None:
            self._tell(entry.connection, Change.CONNECTED)
        elif replace(before, instance_id="") != replace(answer, instance_id=""):
            self._tell(entry.connection, Change.DIFFERENT)
        elif new:
            self._tell(entry.connection, Change.NEW_INSTANCE)
        elif recovered:
            self._tell(entry.connection, Change.CONNECTED)

    def _failed(self, entry: _Entry, error: ProviderError) -> None:
        """A provider that was known stays known: a restart does not change what it serves. An incompatible one not.

        Listeners hear of a failure when it begins and when its cause is another one: conditions name the cause.
        """
        before = entry.error
        entry.error, entry.failures = error, entry.failures + 1
        entry.due = self._clock.monotonic() + self._settings.again.delay(entry.failures, self._draw)
        if error.reason is ErrorReason.PROTOCOL_INCOMPATIBLE:
            entry.handshake = None
        if entry.handshake is None:
            self._publish(entry, error.message)
        if before is None or _cause(before) != _cause(error):
            self._tell(entry.connection, Change.FAILED)

    def _publish(self, entry: _Entry, what: Handshake | str) -> None:
        if self._entries.get(entry.connection.key) is entry:
            self._known[entry.connection.key] = what

    def _tell(self, connection: Connection, change: Change) -> None:
        for listener in self._listeners:
            listener(connection, change)

    def _entry(self, connection: Connection) -> _Entry:
        entry = self._entries.get(connection.key)
        if entry is None:
            entry = _Entry(connection)
            for evicted in self._entries.put(connection.key, entry, connection.owner):
                self._forgotten(evicted.connection)
            self._wake.set()
        return entry


def _was_asked(entry: _Entry) -> bool:
    return entry.handshake is not None or entry.error is not None


def _cause(error: ProviderError) -> tuple[ErrorReason, str]:
    return error.reason, error.backend_code


def _known(entry: _Entry) -> Handshake:
    if entry.handshake is not None:
        return entry.handshake
    if entry.error is not None:
        raise restated(entry.error)
    raise AssertionError("a finished handshake leaves an answer or an error")
