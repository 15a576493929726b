"""Leader election on a Lease: of several processes with the same lease, at most one works at a time.

    standby: the lease is free, released, or unchanged for its whole duration as seen by *our* clock -> take it
    leader:  write it every few seconds; if no write was confirmed for `renew_deadline`, the lease is lost

Only monotonic time measured here counts, so wrong wall clocks do no harm: a standby waits the full duration from when
it saw the last change, and the leader counts from before it *sent* its last successful write. The leader therefore
gives up `duration - renew_deadline` seconds before anybody else may take over; that is the time it has to stop working.
A process that was suspended finds `leading` false the moment it wakes up; controllers ask before they start a
reconcile, and each write of one asks again (`permit.py`), but a call that was under way when it fell asleep is beyond
any lease.
Every write carries the version it is based on, so two writers never both succeed. Two processes must never share an
identity; `new_identity` makes one.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NoReturn, Protocol

import structlog

from kuberun.backoff import Random, system_random
from kuberun.clock import Clock
from kuberun.deadline import Deadline
from kuberun.errors import AlreadyExists, ApiError, Conflict, NotFound
from kuberun.meta import JsonObject, Kind, ObjectKey, Resource, raw, version_of

LEASES = raw(Resource("coordination.k8s.io", "v1", "leases", "Lease"))

_log = structlog.get_logger(__name__)


class LeadershipLostError(Exception):
    """The lease could not be renewed in time, or somebody else holds it; work must stop at once."""


@dataclass(frozen=True, slots=True)
class LeaseSettings:
    duration: int = 15
    """Seconds after which a silent leader may be replaced."""
    renew_deadline: float = 10.0
    """Seconds after which a leader that cannot renew gives up."""
    retry_period: float = 2.0
    """Seconds between two attempts to renew or to take the lease."""

    def __post_init__(self) -> None:
        if not 0 < self.retry_period < self.renew_deadline < self.duration:
            raise ValueError(f"leases need 0 < retry_period < renew_deadline < duration, not {self}")


class Leases(Protocol):
    """The verbs an election needs; `kuberun.client.Client` has them."""

    async def get(self, kind: Kind[JsonObject], key: ObjectKey, /) -> JsonObject: ...
    async def create(self, kind: Kind[JsonObject], obj: JsonObject, /) -> JsonObject: ...
    async def update(self, kind: Kind[JsonObject], obj: JsonObject, /) -> JsonObject: ...


def new_identity() -> str:
    """A name for this process that no other has: the host, for people, and chance."""
    return f"{socket.gethostname()}_{secrets.token_hex(8)}"


class LeaderElection:
    def __init__(
        self,
        client: Leases,
        key: ObjectKey,
        *,
        clock: Clock,
        identity: str | None = None,
        settings: LeaseSettings | None = None,
        draw: Random = system_random,
    ) -> None:
        self.identity = identity or new_identity()
        self._client = client
        self._key = key
        self._clock = clock
        self._settings = settings or LeaseSettings()
        self._draw = draw
        self._acquired = asyncio.Event()
        self._lease: JsonObject = {}
        self._seen_at = 0.0
        self._renewed_at = float("-inf")
        self._log = _log.bind(lease=str(key), identity=self.identity)

    async def wait_acquired(self) -> None:
        await self._acquired.wait()

    @property
    def leading(self) -> bool:
        """Whether the lease is ours at this moment; false as soon as it may be somebody else's soon."""
        return self._left() > 0

    async def run(self) -> NoReturn:
        """Compete, then renew for ever. Raises LeadershipLostError when the lease is lost."""
        while not await self._try_to_take():
            await self._clock.sleep(self._settings.retry_period * (1 + 0.2 * self._draw()))
        self._log.info("leadership acquired")
        self._acquired.set()
        while True:
            await self._clock.sleep(min(self._settings.retry_period, self._left()))
            await self._renew()

    async def release(self) -> None:
        """Give the lease up so that a standby need not wait. To be called when nothing of ours is at work any more."""
        if not self.leading:
            return
        self._renewed_at = float("-inf")
        try:
            async with Deadline(self._clock, self._settings.retry_period):
                await self._write(self._spec_on_releasing)
        except (ApiError, OSError, LeadershipLostError) as error:
            self._log.warning("lease not released", error=type(error).__name__)
        else:
            self._log.info("lease released")

    # --- standby

    async def _try_to_take(self) -> bool:
        try:
            async with Deadline(self._clock, self._settings.renew_deadline):
                return await self._take()
        except (ApiError, OSError) as error:
            self._log.warning("lease not reachable", error=type(error).__name__)
            return False

    async def _take(self) -> bool:
        try:
            self._observe(await self._client.get(LEASES, self._key))
        except NotFound:
            self._lease = {}
        if not self._is_free():
            return False
        sent_at = self._clock.monotonic()
        try:
            if self._lease:
                written = await self._client.update(LEASES, {**self._lease, "spec": self._spec_on_taking()})
            else:
                metadata = {"namespace": self._key.namespace, "name": self._key.name}
                written = await self._client.create(LEASES, {"metadata": metadata, "spec": self._spec_on_taking()})
        except (Conflict, AlreadyExists):
            return False  # somebody was quicker
        self._lease, self._renewed_at = written, sent_at
        return True

    def _observe(self, lease: JsonObject) -> None:
        if version_of(lease) != version_of(self._lease):
            self._seen_at = self._clock.monotonic()
        self._lease = lease

    def _is_free(self) -> bool:
        spec = self._spec()
        if spec.get("holderIdentity") in (None, "", self.identity):  # ours: a write whose answer we never got
            return True
        duration = spec.get("leaseDurationSeconds") or self._settings.duration
        return self._clock.monotonic() >= self._seen_at + float(duration)

    def _spec_on_taking(self) -> JsonObject:
        spec = self._spec()
        changed_hands = spec.get("holderIdentity") != self.identity
        now = _micro_time(self._clock.now())
        return {
            **spec,
            **self._spec_on_renewing(),
            "acquireTime": now if changed_hands else spec.get("acquireTime") or now,
            "leaseTransitions": int(spec.get("leaseTransitions") or 0) + (1 if self._lease and changed_hands else 0),
        }

    # --- leader

    async def _renew(self) -> None:
        """One attempt. A failure is no harm while the deadline is not reached."""
        if self._left() <= 0:
            raise self._lost("it could not be renewed in time")
        sent_at = self._clock.monotonic()
        try:
            # Half of the deadline, so that one hanging connection leaves time for an attempt on another.
            async with Deadline(self._clock, min(self._left(), self._settings.renew_deadline / 2)):
                await self._write(lambda: {**self._spec(), **self._spec_on_renewing()})
        except (ApiError, OSError) as error:
            self._log.warning("lease not renewed", error=type(error).__name__)
        else:
            self._renewed_at = sent_at

    async def _write(self, spec: Callable[[], JsonObject]) -> None:
        """Write our lease. When it changed under us, look whose it is: the change may be an earlier write of ours."""
        try:
            self._lease = await self._client.update(LEASES, {**self._lease, "spec": spec()})
        except Conflict:
            self._lease = await self._client.get(LEASES, self._key)
            if self._spec().get("holderIdentity") != self.identity:
                raise self._lost("somebody else holds it") from None
            self._lease = await self._client.update(LEASES, {**self._lease, "spec": spec()})
        except NotFound:
            raise self._lost("it was deleted") from None

    def _left(self) -> float:
        """Seconds until the lease is lost unless it is renewed."""
        return max(self._renewed_at + self._settings.renew_deadline - self._clock.monotonic(), 0.0)

    def _lost(self, why: str) -> LeadershipLostError:
        self._renewed_at = float("-inf")
        return LeadershipLostError(f"lease {self._key} is lost: {why}")

    def _spec(self) -> JsonObject:
        spec: Any = self._lease.get("spec")
        return spec if isinstance(spec, dict) else {}

    def _spec_on_renewing(self) -> JsonObject:
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self._settings.duration,
            "renewTime": _micro_time(self._clock.now()),
        }

    def _spec_on_releasing(self) -> JsonObject:
        kept = {name: value for name, value in self._spec().items() if name != "holderIdentity"}
        return {**kept, "leaseDurationSeconds": 1, "renewTime": _micro_time(self._clock.now())}


def _micro_time(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
