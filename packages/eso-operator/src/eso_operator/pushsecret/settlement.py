"""What a push comes to: values into their stores, what is stale out of them, and an outcome that forgets nothing.

    bind -> announce -> deliver -> remember -> remove what is stale -> look again at what that may have taken along
    -> Outcome

What is ours is what the status records and what was pushed since without getting on record. What will have to be
deleted some day is announced: on record before it is pushed, so that it is not forgotten if the process ends in
between. What cannot even be sent to a store is not announced: it would have to be taken back at once, and again after
every retry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from eso_api.pushsecret import PushData, PushSecret
from eso_operator.pushsecret import records
from eso_operator.pushsecret.claims import Claims
from eso_operator.pushsecret.decide import NOT_PUSHED
from eso_operator.pushsecret.memory import LastPush, Learned, Memory
from eso_operator.pushsecret.outcome import (
    CONTENDED,
    Failed,
    Outcome,
    Records,
    SourceDeleted,
    Synced,
    left_alone,
    orphaned,
)
from eso_operator.pushsecret.places import Place
from eso_operator.pushsecret.plan import DELETE, IF_NOT_EXISTS, Guarantee
from eso_operator.pushsecret.push import BoundDelivery, Delivery, Pusher, StoreResult
from eso_operator.pushsecret.refresh import current_version
from eso_operator.pushsecret.removal import Removal, Remover, Urgency
from eso_operator.pushsecret.rivals import Clash
from eso_operator.pushsecret.snapshot import Snapshot
from eso_operator.pushsecret.sources import Sources
from eso_operator.sync.dependencies import Dependency
from eso_operator.sync.fetch import Failure
from eso_operator.sync.reporting import News
from eso_operator.sync.templates import TemplateVersion
from kuberun.conditions import find_condition
from kuberun.meta import ObjectKey

NOT_DELETED: Final = "could not delete secret"


@dataclass(frozen=True, slots=True)
class Planned:
    """Everything that is to be pushed, and the versions of the templates that shaped it."""

    deliveries: tuple[BoundDelivery, ...]
    ours: Records
    """What was ours before."""
    templates: frozenset[TemplateVersion] = frozenset()


@dataclass(frozen=True, slots=True)
class Settled:
    """What came of it."""

    outcome: Outcome
    results: Sequence[StoreResult]
    depends_on: set[Dependency]


class Settlement:
    """One for the process."""

    def __init__(self, pusher: Pusher, remover: Remover, memory: Memory, claims: Claims) -> None:
        self._pusher = pusher
        self._remover = remover
        self._memory = memory
        self._claims = claims

    def ours(self, push: PushSecret) -> Records:
        """All that has to be removed some day: on record, or pushed and not on record yet.

        Not what is on record because it was announced and then refused: a store that never took anything must not hold
        up the end of the PushSecret.
        """
        written = records.known(push.status.synced_push_secrets, push.status.synced_versions)
        written = records.without(written, self._claims.refused(push))
        return records.union(self._memory.unrecorded(push), written)

    async def bind(self, deliveries: Sequence[Delivery]) -> tuple[BoundDelivery, ...]:
        """The way of each to its backend, as far as there is one."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._pusher.bind(delivery)) for delivery in deliveries]
        return tuple(task.result() for task in tasks)

    def announce(self, push: PushSecret, planned: Planned) -> Records:
        """What will have to be deleted some day and is on no record yet. It has to go on record before it is pushed.

        Under IfNotExists it is not known before whether it will be ours: what is not may never be deleted.
        """
        ours = self.ours(push)
        new: dict[str, list[records.Pushed]] = {}
        for delivery in _sendable(planned) if _announces(push) else ():
            known = {records.spot_of(each.data) for each in ours.get(delivery.store.key, ())}
            if fresh := [
                records.Pushed(one.data) for one in delivery.entries if records.spot_of(one.data) not in known
            ]:
                new[delivery.store.key] = fresh
        self._claims.announce(push, _places(new))
        return new

    def withdraw(self, push: PushSecret) -> None:
        """The announcement was refused: nothing of it is on record, or pushed."""
        self._claims.withdraw(push)

    def clashes(self, push: PushSecret, outcome: Outcome) -> Sequence[Clash] | None:
        """The places where other PushSecrets write different values; None while that cannot be told.

        After a restart nothing is known of a PushSecret until it pushes again.
        """
        match outcome:
            case SourceDeleted():
                return ()
            case Synced(learned=Learned(values=values)):
                pass
            case _:
                values = self._memory.values(push)
        if not values and push.status.synced_push_secrets:
            return None
        found = self._memory.rivals.clashes(push.key, values)
        if not found and find_condition(push.status.conditions, CONTENDED) is not None:
            others = [other for place in values for other in self._claims.recording(push, place)]
            return None if any(not self._memory.values(other) for other in others) else ()
        return found

    def forget(self, key: ObjectKey) -> None:
        self._claims.forget(key)
        self._remover.forget(key)

    async def push(self, snapshot: Snapshot, sources: Sources, planned: Planned) -> Settled:
        """Push everything; then, if all of it is in place, remove what is stale."""
        push, old, removal = snapshot.push, planned.ours, Removal()
        self._claims.sent(push)
        try:
            results = await self._delivered(planned.deliveries)
        except BaseException:
            # Interrupted, or a mistake of ours: what has landed by then is ours nevertheless.
            self._remember(push, [each.result for each in planned.deliveries])
            raise
        unsure = {result.store.key: result.unsure for result in results if result.unsure and _announces(push)}
        self._claims.pushed(push, _places(records.union(_pushed(results), unsure)))
        self._remember(push, results)
        if not _failures(results) and push.spec.deletion_policy == DELETE:
            removal = await self._removed(push, records.stale(_pushed(results), old), Urgency.STALE)
            await self._restored([each.delivery for each in planned.deliveries], results, removal)
            self._remember(push, results)
        old = records.without(old, removal.gone)
        news = news_of(removal)
        if failures := _failures(results):
            left = records.union(_pushed(results), records.union(unsure, old))
            outcome: Outcome = Failed(NOT_PUSHED, failures, left, news)
        elif removal.failures:
            outcome = Failed(NOT_DELETED, tuple(removal.failures), records.union(_pushed(results), old), news)
        else:
            outcome = _synced(snapshot, sources, planned, results, removal)
        return Settled(outcome, results, removal.depends_on.union(*(result.depends_on for result in results)))

    async def without_source(self, push: PushSecret) -> tuple[Outcome, Removal] | None:
        """The source is gone: delete what came from it, if the policy says so; None if there is nothing to delete."""
        old = self.ours(push)
        if push.spec.deletion_policy != DELETE or not old:
            return None
        removal = await self._removed(push, records.stale({}, old), Urgency.STALE)
        news = news_of(removal)
        if removal.failures:
            left = records.without(old, removal.gone)
            return Failed(NOT_DELETED, tuple(removal.failures), left, news), removal
        return SourceDeleted(news), removal

    async def finish(self, push: PushSecret) -> tuple[Failed | None, Removal]:
        """The PushSecret is being deleted: what it pushed goes first. A failure, if something is left."""
        old = self.ours(push)
        removal = await self._removed(push, records.stale({}, old), Urgency.FINAL)
        if not removal.failures:
            return None, removal
        left = records.without(old, removal.gone)
        return Failed(NOT_DELETED, tuple(removal.failures), left, news_of(removal)), removal

    def astray(self, key: ObjectKey) -> PushSecret | None:
        """The object for which something was pushed that has to go with it, and may be on no record."""
        push = self._memory.unrecorded_of(key)
        return push if push is not None and push.spec.deletion_policy == DELETE else None

    async def undo(self, push: PushSecret) -> Removal:
        """The PushSecret is gone, and nobody knew what was pushed for it meanwhile. What was on record went with it."""
        left = self._memory.unrecorded(push) if push.spec.deletion_policy == DELETE else {}
        return await self._removed(push, records.stale({}, left), Urgency.FINAL)

    async def _delivered(self, deliveries: Sequence[BoundDelivery]) -> list[StoreResult]:
        """Every store on its own: one that fails does not hold up the others."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._pusher.push(delivery)) for delivery in deliveries]
        return [task.result() for task in tasks]

    async def _removed(self, push: PushSecret, unwanted: dict[str, list[PushData]], urgency: Urgency) -> Removal:
        removal = await self._remover.remove(push, unwanted, urgency) if unwanted else Removal()
        self._memory.removed(push, removal.gone)
        return removal

    async def _restored(self, deliveries: Sequence[Delivery], results: list[StoreResult], removal: Removal) -> None:
        """What a removal may have taken along is pushed once more.

        Two stores may be one backend. And a property may not be all that goes: backends remove the whole remote key
        when that is all they can, and so does the removal of a value that was the whole of it.
        """
        lost = {spot.remote_key for spots in removal.gone.values() for spot in spots} if removal.removed else set()
        known = {place: each for result in results for place, each in result.known.items()}
        by_store = {result.store.key: result for result in results}
        parts = [part for each in deliveries if (part := each.again(lost, known)) is not None]
        for later in await self._delivered(await self.bind(parts)):
            by_store[later.store.key].take_over(later, lost)

    def _remember(self, push: PushSecret, results: Sequence[StoreResult]) -> None:
        """At once, whatever becomes of the record."""
        known = {place: each for result in results for place, each in result.known.items()}
        self._memory.wrote(push, known, _pushed(results))


def news_of(removal: Removal) -> tuple[News, ...]:
    """What there is to say about what was not deleted."""
    return (*orphaned(removal.orphans), *left_alone(removal.others))


def _sendable(planned: Planned) -> list[Delivery]:
    return [each.delivery for each in planned.deliveries if each.bound is not None]


def _announces(push: PushSecret) -> bool:
    return push.spec.deletion_policy == DELETE and push.spec.update_policy != IF_NOT_EXISTS


def _pushed(results: Sequence[StoreResult]) -> dict[str, list[records.Pushed]]:
    return {result.store.key: result.pushed for result in results if result.pushed}


def _places(pushed: Records) -> list[Place]:
    return [Place(store, *records.spot_of(each.data)) for store, entries in pushed.items() for each in entries]


def _failures(results: Sequence[StoreResult]) -> tuple[Failure, ...]:
    return tuple(failure for result in results for failure in result.failures)


def _synced(
    snapshot: Snapshot, sources: Sources, planned: Planned, results: Sequence[StoreResult], removal: Removal
) -> Synced:
    renew = sources.renew_within
    last = LastPush(
        at=snapshot.now,
        version=current_version(snapshot.push),
        sources=sources.marks,
        stores=snapshot.store_marks,
        renew_at=snapshot.now + timedelta(seconds=renew) if renew is not None else None,
        templates=planned.templates,
    )
    return Synced(
        records=_pushed(results),
        existing=tuple(f"{result.store}: {key}" for result in results for key in result.existing),
        weaker=tuple(str(result.store) for result in results if result.guarantee is Guarantee.CHECKED),
        yielded=any(result.yielded for result in results),
        wrote=bool(removal.removed or sum(result.written for result in results)),
        renew_within=renew,
        news=news_of(removal),
        learned=Learned(last, {place: each for result in results for place, each in result.known.items()}),
    )
