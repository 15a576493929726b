"""Leader election on a Lease: of all processes that share a lease, at most one works at a time.

    standby: the lease is free, released, or unchanged for its whole duration by *our* clock -> take it
    leader:  renew it every few seconds; if no renewal was confirmed for `renew_deadline`, the lease is lost

Only monotonic time measured in this process counts, so wrong wall clocks do no harm. A standby waits the full duration
from when it observed the last change; the leader counts from before it *sent* its last successful write. The leader
therefore stops `duration - renew_deadline` seconds before a standby may take over: that is its time to stop working. A
suspended process finds `leading` false as soon as it wakes up. Controllers check it before they start a reconcile, and
each write of a reconcile checks it again (`permit.py`). A call that was already under way before the suspension cannot
be stopped.

Every write carries the version it is based on, so two writers never both succeed. Two processes must never share an
identity; `new_identity` makes a unique one.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NoReturn

import structlog

from kubebase.backoff import Random, system_random
from kubebase.clock import Clock
from kubebase.deadline import Deadline
from kubebase.meta import JsonObject, ObjectKey, Resource, raw, version_of
from kuberun.client import Client
from kuberun.errors import AlreadyExists, ApiError, Conflict, NotFound

LEASES = raw(Resource("coordination.k8s.io", "v1", "leases", "Lease"))

_log = structlog.get_logger(__name__)


class LeadershipLostError(Exception):
    """The lease could not be renewed in time, or another process holds it; work must stop at once."""


@dataclass(frozen=True, slots=True)
class LeaseSettings:
    duration: int = 15
    """Seconds after which a standby may replace a leader that does not renew."""
    renew_deadline: float = 10.0
    """Seconds after which a leader that cannot renew gives up."""
    retry_period: float = 2.0
    """Seconds between two attempts to renew or take the lease."""

    def __post_init__(self) -> None:
        if not 0 < self.retry_period < self.renew_deadline < self.duration:
            raise ValueError(f"leases need 0 < retry_period < renew_deadline < duration, not {self}")


def new_identity() -> str:
    """Make a unique name for this process: the host name, for people, and a random part."""
    return f"{socket.gethostname()}_{secrets.token_hex(8)}"


class LeaderElection:
    def __init__(
        self,
        client: Client,
        key: ObjectKey,
        *,
        clock: Clock,
        identity: str | None = None,
        settings: LeaseSettings | None = None,
        labels: Mapping[str, str] | None = None,
        draw: Random = system_random,
    ) -> None:
        self.identity = identity or new_identity()
        self._labels = dict(labels or {})
        self._client = client
        self._key = key
        self._clock = clock
        self._settings = settings or LeaseSettings()
        self._draw = draw
        self._acquired = asyncio.Event()
        self._lease: JsonObject = {}
        self._observed_at = 0.0
        self._renewed_at = float("-inf")
        self._log = _log.bind(lease=str(key), identity=self.identity)

    def observed(self, version: str, at: float) -> None:
        """Accept an observation: the lease has not changed since that monotonic time. Call this before `run`."""
        self._lease, self._observed_at = {"metadata": {"resourceVersion": version}}, at

    async def wait_acquired(self) -> None:
        await self._acquired.wait()

    @property
    def leading(self) -> bool:
        """Return whether we hold the lease now; false in time before another process may take it."""
        return self._left() > 0

    @property
    def term(self) -> int:
        """Return how often the lease had changed hands when we last observed it: each holder has a higher number."""
        return int(self._spec().get("leaseTransitions") or 0)

    async def run(self) -> NoReturn:
        """Compete for the lease, then renew it until cancelled. Raises LeadershipLostError when the lease is lost."""
        while not await self._try_to_take():
            await self._clock.sleep(self._settings.retry_period * (1 + 0.2 * self._draw()))
        self._log.info("leadership acquired")
        self._acquired.set()
        while True:
            await self._clock.sleep(min(self._settings.retry_period, self._left()))
            await self._renew()

    async def release(self, *, shared: bool = False) -> None:
        """Release the lease so that a standby takes over at once. Call this after all work has stopped.

        Pass `shared` if other processes may hold the lease under the same identity. A lease that has changed since our
        last renewal is then kept: one of them works.
        """
        if not self.leading:
            return
        self._renewed_at = float("-inf")
        try:
            async with Deadline(self._clock, self._settings.retry_period):
                if shared:
                    await self._client.update(LEASES, {**self._lease, "spec": self._spec_on_releasing()})
                else:
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
                taken = {**self._lease, "metadata": self._labelled(), "spec": self._spec_on_taking()}
                written = await self._client.update(LEASES, taken)
            else:
                written = await self._client.create(
                    LEASES, {"metadata": self._metadata(), "spec": self._spec_on_taking()}
                )
        except (Conflict, AlreadyExists):
            return False  # another process was faster
        self._lease, self._renewed_at = written, sent_at
        return True

    def _metadata(self) -> JsonObject:
        named = {"namespace": self._key.namespace, "name": self._key.name}
        return {**named, "labels": self._labels} if self._labels else named

    def _labelled(self) -> JsonObject:
        """Return the metadata of the lease with our labels: another program may have created it."""
        metadata = self._lease.get("metadata") or {}
        return {**metadata, "labels": {**(metadata.get("labels") or {}), **self._labels}} if self._labels else metadata

    def _observe(self, lease: JsonObject) -> None:
        if version_of(lease) != version_of(self._lease):
            self._observed_at = self._clock.monotonic()
        self._lease = lease

    def _is_free(self) -> bool:
        spec = self._spec()
        if spec.get("holderIdentity") in (None, "", self.identity):  # ours: an earlier write whose response was lost
            return True
        duration = spec.get("leaseDurationSeconds") or self._settings.duration
        return self._clock.monotonic() >= self._observed_at + float(duration)

    def _spec_on_taking(self) -> JsonObject:
        spec = self._spec()
        changed_hands = spec.get("holderIdentity") != self.identity
        now = micro_time(self._clock.now())
        return {
            **spec,
            **self._spec_on_renewing(),
            "acquireTime": now if changed_hands else spec.get("acquireTime") or now,
            "leaseTransitions": int(spec.get("leaseTransitions") or 0) + (1 if self._lease and changed_hands else 0),
        }

    # --- leader

    async def _renew(self) -> None:
        """Try once to renew the lease. A failure is harmless until the renew deadline passes."""
        if self._left() <= 0:
            raise self._lost("it could not be renewed in time")
        sent_at = self._clock.monotonic()
        try:
            # Half of the deadline, so that after one hanging connection there is time for a second attempt.
            async with Deadline(self._clock, min(self._left(), self._settings.renew_deadline / 2)):
                await self._write(lambda: {**self._spec(), **self._spec_on_renewing()})
        except (ApiError, OSError) as error:
            self._log.warning("lease not renewed", error=type(error).__name__)
        else:
            self._renewed_at = sent_at

    async def _write(self, spec: Callable[[], JsonObject]) -> None:
        """Write our lease. On a conflict, check the holder: an earlier write of ours may have changed the lease."""
        try:
            self._lease = await self._client.update(LEASES, {**self._lease, "spec": spec()})
        except Conflict:
            self._lease = await self._client.get(LEASES, self._key)
            if self._spec().get("holderIdentity") != self.identity:
                raise self._lost("another process holds it") from None
            self._lease = await self._client.update(LEASES, {**self._lease, "spec": spec()})
        except NotFound:
            raise self._lost("it was deleted") from None

    def _left(self) -> float:
        """Return the seconds until the lease is lost unless it is renewed."""
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
            "renewTime": micro_time(self._clock.now()),
        }

    def _spec_on_releasing(self) -> JsonObject:
        kept = {name: value for name, value in self._spec().items() if name != "holderIdentity"}
        return {**kept, "leaseDurationSeconds": 1, "renewTime": micro_time(self._clock.now())}


def micro_time(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
