"""The directory of providers and their handshakes.

    ensure(connection) -> handshake now, unless it is known     run() -> again at intervals, sooner after failures

Replicas behind one endpoint are separate instances and respond in turn. Listeners are notified of an instance if it is
new, or if its handshake (kinds, limits, versions) differs from the last one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType

from eso_operator.providers.errors import IncompatibleError, may_be_starting, restated
from eso_operator.providers.gateway import Gateway
from eso_operator.providers.settings import DirectorySettings
from eso_operator.stores.resolve import Providers
from eso_operator.stores.resolved import Connection
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.status import TransportError
from eso_wire.values import Handshake
from kubebase.backoff import Random, system_random
from kubebase.bounded import BoundedDict
from kubebase.clock import Clock
from kubebase.deadline import happens_within
from kubebase.fairness import FairTable
from kuberun.controller import parked

_MAX_CONNECTIONS = 1000
_MAX_INSTANCES = 64
_MAX_EXPECTED = 1000
_AT_ONCE = 8


class Change(StrEnum):
    """The changes of a connection that listeners are notified of."""

    CONNECTED = "connected"
    NEW_INSTANCE = "new instance"
    """The provider restarted or a replica joined; caches of its state are stale."""
    DIFFERENT = "different"
    FAILED = "failed"
    FORGOTTEN = "forgotten"


Listener = Callable[[Connection, Change], None]


@dataclass(slots=True, eq=False)
class _Entry:
    connection: Connection
    since: float
    handshake: Handshake | None = None
    error: ProviderError | None = None
    instances: BoundedDict[str, None] = field(default_factory=lambda: BoundedDict(_MAX_INSTANCES))
    failures: int = 0
    returned_at: float | None = None
    """When (monotonic) the provider responded again after failures."""
    handshakes_done: int = 0
    requested_at: float = 0.0
    due: float = 0.0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Directory(Providers):
    """All connections from the first `ensure` or `refresh` to `forget`; bounded."""

    def __init__(
        self,
        gateway: Gateway,
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
        self._expected: BoundedDict[str, float] = BoundedDict(_MAX_EXPECTED)

    # --- known handshakes --------------------------------------------------------------------------------------------

    @property
    def handshakes(self) -> Mapping[str, Handshake | str]:
        """Return a live view: `Connection.key` to the handshake, or to the reason why there is none.

        A handshake without a selected version is that of an incompatible provider.
        """
        return MappingProxyType(self._known)

    def listen(self, listener: Listener) -> None:
        """Call the listener synchronously on every change; it must not block."""
        self._listeners.append(listener)

    # --- providers that start ----------------------------------------------------------------------------------------

    def starting(self, connection: Connection) -> float:
        """Return for how many more seconds the provider may be starting; 0 if it is not.

        Only a provider behind a Service that has never responded starts. One that responded before and fails now is an
        outage, and one outside the cluster is not ours to start.
        """
        entry = self._entries.get(connection.key)
        if entry is None or entry.error is None or len(entry.instances) or connection.endpoint.service is None:
            return 0.0
        left = entry.since + self._settings.start - self._clock.monotonic()
        return max(left, 0.0) if may_be_starting(entry.error) else 0.0

    def unreachable(self, connection: Connection) -> ProviderError | None:
        """Return why the provider is not reached at present; None if it is, or if it responded with an error."""
        entry = self._entries.get(connection.key)
        if entry is None or not isinstance(entry.error, TransportError):
            return None
        return restated(entry.error)

    def returned(self, connection: Connection) -> float:
        """Return for how many more seconds stores may still report an outage that is over; 0 if there was none.

        The return of the provider causes their validation.
        """
        entry = self._entries.get(connection.key)
        if entry is None or entry.returned_at is None:
            return 0.0
        return max(entry.returned_at + self._settings.revalidate - self._clock.monotonic(), 0.0)

    def expecting(self, wanted: str) -> float:
        """Return for how many more seconds a provider that serves this may be started, from the first call on."""
        now = self._clock.monotonic()
        if wanted not in self._expected:
            self._expected[wanted] = now
        return max(self._expected[wanted] + self._settings.appear - now, 0.0)

    # --- handshakes --------------------------------------------------------------------------------------------------

    async def ensure(self, connection: Connection) -> Handshake:
        """Return the known handshake, or perform one now.

        After a failure, the last error is raised until the next attempt is due, and while that attempt runs.
        """
        entry = self._entry(connection)
        if entry.handshake is not None:
            return entry.handshake
        if entry.error is not None and (self._clock.monotonic() < entry.due or entry.lock.locked()):
            raise restated(entry.error)
        return await self._handshake(entry)

    async def refresh(self, connection: Connection) -> Handshake:
        """Run a handshake now."""
        return await self._handshake(self._entry(connection))

    def suspect(self, connection: Connection) -> None:
        """Schedule an early handshake after a failed call; many failures cause one handshake."""
        entry = self._entries.get(connection.key)
        if entry is not None and (soon := entry.requested_at + self._settings.again.first) < entry.due:
            entry.due = soon
            self._wake.set()

    def forget(self, connection: Connection) -> None:
        """Remove a connection that no object uses."""
        if self._entries.pop(connection.key):
            self._forgotten(connection)

    def _forgotten(self, connection: Connection) -> None:
        self._known.pop(connection.key, None)
        self._notify(connection, Change.FORGOTTEN)

    async def run(self) -> None:
        """Repeat handshakes when they are due, until cancelled."""
        while True:
            self._wake.clear()
            now = self._clock.monotonic()
            due = [entry for entry in self._entries.values() if entry.due <= now and _was_called(entry)]
            async with asyncio.TaskGroup() as group:
                for entry in due[:_AT_ONCE]:
                    group.create_task(self._handshake_quietly(entry))
            if not due:
                await happens_within(self._clock, self._pause(), self._wake)

    def _pause(self) -> float:
        now = self._clock.monotonic()
        soonest = min((entry.due for entry in self._entries.values() if _was_called(entry)), default=float("inf"))
        return max(min(soonest - now, self._settings.refresh), 0.0)

    async def _handshake_quietly(self, entry: _Entry) -> None:
        try:
            await self._handshake(entry)
        except ProviderError:
            return  # `_handshake` has recorded it and notified the listeners

    async def _handshake(self, entry: _Entry) -> Handshake:
        before = entry.handshakes_done
        async with parked(), entry.lock:
            if entry.handshakes_done != before:  # another caller finished one while we waited for the lock
                return _known(entry)
            entry.requested_at = self._clock.monotonic()
            try:
                handshake = await self._gateway.handshake(entry.connection.endpoint, entry.connection.tls)
            except ProviderError as error:
                entry.handshakes_done += 1
                self._failed(entry, error)
                raise
            entry.handshakes_done += 1
            self._succeeded(entry, handshake)
            return handshake

    def _succeeded(self, entry: _Entry, handshake: Handshake) -> None:
        before, recovered = entry.handshake, entry.failures > 0
        entry.handshake, entry.error, entry.failures = handshake, None, 0
        if recovered:
            entry.returned_at = self._clock.monotonic()
        entry.due = self._clock.monotonic() + self._settings.refresh * (1 - self._settings.jitter * self._draw())
        new = handshake.instance_id not in entry.instances
        entry.instances[handshake.instance_id] = None
        self._publish(entry, handshake)
        if before is None:
            self._notify(entry.connection, Change.CONNECTED)
        elif replace(before, instance_id="") != replace(handshake, instance_id=""):
            self._notify(entry.connection, Change.DIFFERENT)
        elif new:
            self._notify(entry.connection, Change.NEW_INSTANCE)
        elif recovered:
            self._notify(entry.connection, Change.CONNECTED)

    def _failed(self, entry: _Entry, error: ProviderError) -> None:
        """Record a failure. The last handshake stays valid, because a restart does not change the served kinds.

        Only an incompatible protocol invalidates it. Listeners are notified of the first failure and of a change of its
        cause, because conditions name the cause.
        """
        before = entry.error
        entry.error, entry.failures = error, entry.failures + 1
        delay = self._settings.again.delay(entry.failures, self._draw)
        if self.starting(entry.connection) > 0:
            delay = min(delay, self._settings.start_pause)
        entry.due = self._clock.monotonic() + delay
        self._wake.set()  # `run` may sleep longer than that: it did not count this one during its first handshake
        if error.reason is ErrorReason.PROTOCOL_INCOMPATIBLE:
            entry.handshake = None
        if entry.handshake is None:
            self._publish(entry, error.handshake if isinstance(error, IncompatibleError) else error.message)
        if before is None or _cause(before) != _cause(error):
            self._notify(entry.connection, Change.FAILED)

    def _publish(self, entry: _Entry, what: Handshake | str) -> None:
        if self._entries.get(entry.connection.key) is entry:
            self._known[entry.connection.key] = what

    def _notify(self, connection: Connection, change: Change) -> None:
        for listener in self._listeners:
            listener(connection, change)

    def _entry(self, connection: Connection) -> _Entry:
        entry = self._entries.get(connection.key)
        if entry is None:
            entry = _Entry(connection, self._clock.monotonic())
            for evicted in self._entries.put(connection.key, entry, connection.owner):
                self._forgotten(evicted.connection)
            self._wake.set()
        return entry


def _was_called(entry: _Entry) -> bool:
    return entry.handshake is not None or entry.error is not None


def _cause(error: ProviderError) -> tuple[ErrorReason, str]:
    return error.reason, error.backend_code


def _known(entry: _Entry) -> Handshake:
    if entry.handshake is not None:
        return entry.handshake
    if entry.error is not None:
        raise restated(entry.error)
    raise AssertionError("a finished handshake leaves a response or an error")
