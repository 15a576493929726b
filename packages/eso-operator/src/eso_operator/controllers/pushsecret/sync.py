"""Records that follow their place: a PushSecret that names another store of the same backend keeps its values.

`status.syncedPushSecrets` names stores. If a PushSecret switches from a v1 store to a v2 store, or back, the entries of
the former store are in the same place as the new ones. Without this step they would count as obsolete: with
`deletionPolicy: Delete` the operator would delete the values that it has just pushed.

Carries out a push: writes values to their stores, removes stale ones, and returns an outcome with all records.

    bind -> follow moved records -> announce -> deliver -> remember -> remove stale values
    -> restore values that this may have deleted -> Outcome

Values are ours if the status records them, or if they were pushed since and are not recorded yet. Values that must be
deleted later are announced: recorded before they are pushed, so that a crash in between loses no record. Values that
cannot be sent to a store are not announced: the record would have to be removed at once, and again after every retry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from eso_api.common import CONTENDED
from eso_api.pushsecret import PushData, PushSecret
from eso_operator.controllers.base import Event
from eso_operator.controllers.outcomes import Step
from eso_operator.controllers.pushsecret import record
from eso_operator.controllers.pushsecret.ownership import Claims, Clash, Pushes
from eso_operator.controllers.pushsecret.push import (
    DELETE,
    IF_NOT_EXISTS,
    BoundDelivery,
    Guarantee,
    Pusher,
    StoreResult,
)
from eso_operator.controllers.pushsecret.record import (
    LastPush,
    Learned,
    Place,
    Pushed,
    Records,
    spot_of,
    union,
)
from eso_operator.controllers.pushsecret.removal import REMOVAL, Removal, Remover, Urgency
from eso_operator.controllers.pushsecret.selection import Delivery
from eso_operator.controllers.pushsecret.snapshot import PushSnapshot, Sources, StoreChooser, caller_of, current_version
from eso_operator.controllers.pushsecret.status import Failed, Outcome, SourceDeleted, Synced, left_alone, orphaned
from eso_operator.dependencies.dependencies import Dependency
from eso_operator.sources.fetch import Failure
from eso_operator.sources.templates import TemplateVersion
from eso_operator.stores.resolve import Resolver
from eso_operator.stores.resolved import Bind, BoundStore, ResolutionError, same_backend
from eso_wire.errors import ProviderError
from kubebase.meta import ObjectKey
from kuberun.status import find_condition


class Moves:
    """Finds the records of former stores whose backend a PushSecret still pushes to. The process has one."""

    def __init__(self, resolver: Resolver, bind: Bind, chooser: StoreChooser) -> None:
        self._resolver = resolver
        self._bind = bind
        self._chooser = chooser

    async def followed(
        self, push: PushSecret, deliveries: Sequence[BoundDelivery], ours: Records
    ) -> tuple[tuple[BoundDelivery, ...], Records]:
        """Return deliveries and records in which entries of a former store belong to its successor."""
        current = {each.delivery.store.key for each in deliveries}
        found = tuple(deliveries)
        for former in [store for store in ours if store not in current]:
            bound = await self._bound(push, former) if found else None
            heir = None if bound is None else _heir(found, bound)
            if heir is not None:
                moved = ours[former]
                ours = _renamed(ours, former, heir.delivery.store.key)
                found = tuple(_owning(each, moved) if each is heir else each for each in found)
        return found, ours

    async def _bound(self, push: PushSecret, store: str) -> BoundStore | None:
        """Return the former store; None if it is unusable: then its entries stay where they are recorded."""
        try:
            ref = await self._chooser.by_key(store, push)
            return await self._bind(await self._resolver.resolve(ref, caller_of(push), REMOVAL))
        except (ResolutionError, ProviderError):
            return None


def _heir(deliveries: Sequence[BoundDelivery], former: BoundStore) -> BoundDelivery | None:
    return next((each for each in deliveries if each.bound is not None and same_backend(each.bound, former)), None)


def _owning(way: BoundDelivery, moved: Sequence[Pushed]) -> BoundDelivery:
    """Return the delivery with these entries as ours, so that IfNotExists does not take them for foreign ones."""
    ours = way.delivery.ours | {spot_of(each.data) for each in moved}
    return replace(way, delivery=replace(way.delivery, ours=ours))


def _renamed(ours: Records, former: str, heir: str) -> Records:
    rest = {store: entries for store, entries in ours.items() if store != former}
    return union(rest, {heir: ours[former]})


@dataclass(frozen=True, slots=True)
class Planned:
    """The deliveries to push, and the versions of the templates that shaped them."""

    deliveries: tuple[BoundDelivery, ...]
    ours: Records
    """The entries that were ours before."""
    templates: frozenset[TemplateVersion] = frozenset()


@dataclass(frozen=True, slots=True)
class Settled:
    """The result of a push."""

    outcome: Outcome
    results: Sequence[StoreResult]
    depends_on: set[Dependency]


class Settlement:
    """Pushes and removes the values of PushSecrets. The process has one."""

    def __init__(self, pusher: Pusher, remover: Remover, pushes: Pushes, claims: Claims, moves: Moves) -> None:
        self._pusher = pusher
        self._remover = remover
        self._pushes = pushes
        self._claims = claims
        self._moves = moves

    def ours(self, push: PushSecret) -> Records:
        """Return all entries that must be removed at some time: recorded, or pushed and not recorded yet.

        An entry that was announced and then rejected does not count: a store that never accepted a value must not block
        the deletion of the PushSecret.
        """
        written = record.known(push.status.synced_push_secrets, push.status.synced_versions)
        written = record.without(written, self._claims.refused(push))
        return record.union(self._pushes.unrecorded(push), written)

    async def plan(
        self, push: PushSecret, deliveries: Sequence[Delivery], templates: frozenset[TemplateVersion]
    ) -> Planned:
        """Bind each store, and find the entries that are ours there, under whatever name of the store."""
        bound, ours = await self._moves.followed(push, await self.bind(deliveries), self.ours(push))
        return Planned(bound, ours, templates)

    async def bind(self, deliveries: Sequence[Delivery]) -> tuple[BoundDelivery, ...]:
        """Bind each store, as far as possible."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._pusher.bind(delivery)) for delivery in deliveries]
        return tuple(task.result() for task in tasks)

    def announce(self, push: PushSecret, planned: Planned, *, pending: bool = False) -> Records:
        """Return unrecorded entries that must be deleted at some time. They must be recorded before they are pushed.

        So must those of a pending push (`pending.py`).

        Under IfNotExists it is unknown before the push whether an entry will be ours, and foreign values must never be
        deleted.
        """
        ours = planned.ours
        new: dict[str, list[record.Pushed]] = {}
        for delivery in _sendable(planned) if pending or _announces(push) else ():
            known = {record.spot_of(each.data) for each in ours.get(delivery.store.key, ())}
            if fresh := [record.Pushed(one.data) for one in delivery.entries if record.spot_of(one.data) not in known]:
                new[delivery.store.key] = fresh
        self._claims.announce(push, _places(new))
        return new

    def withdraw(self, push: PushSecret) -> None:
        """Withdraw a rejected announcement: none of it is recorded or pushed."""
        self._claims.withdraw(push)

    def clashes(self, push: PushSecret, outcome: Outcome) -> Sequence[Clash] | None:
        """Return the places for which other PushSecrets contend; None while that is unknown.

        After a restart, nothing is known of a PushSecret until it pushes again.
        """
        match outcome:
            case SourceDeleted():
                return ()
            case Synced(learned=Learned(values=values)):
                pass
            case _:
                values = self._pushes.values(push)
        if not values and push.status.synced_push_secrets:
            return None
        found = self._pushes.rivals.clashes(push.key, values)
        if not found and find_condition(push.status.conditions, CONTENDED) is not None:
            others = [other for place in values for other in self._claims.recording(push, place)]
            return None if any(not self._pushes.values(other) for other in others) else ()
        return found

    async def push(self, snapshot: PushSnapshot, sources: Sources, planned: Planned) -> Settled:
        """Push everything; then, if all of it succeeded, remove stale values."""
        push, old, removal = snapshot.push, planned.ours, Removal()
        self._claims.sent(push)
        try:
            results = await self._delivered(planned.deliveries)
        except BaseException:
            # Cancelled, or an unexpected error: values that were written by then are ours.
            self._remember(push, [each.result for each in planned.deliveries])
            raise
        unsure = {result.store.key: result.unsure for result in results if result.unsure and _announces(push)}
        self._claims.pushed(push, _places(record.union(_pushed(results), unsure)))
        self._remember(push, results)
        if not _failures(results) and push.spec.deletion_policy == DELETE:
            removal = await self._removed(push, record.stale(_pushed(results), old), Urgency.STALE)
            await self._restored([each.delivery for each in planned.deliveries], results, removal)
            self._remember(push, results)
        old = record.without(old, removal.gone)
        events = events_of(removal)
        if failures := _failures(results):
            left = record.union(_pushed(results), record.union(unsure, old))
            outcome: Outcome = Failed(Step.PUSH, failures, left, events)
        elif removal.failures:
            outcome = Failed(Step.DELETE_PUSHED, tuple(removal.failures), record.union(_pushed(results), old), events)
        else:
            outcome = _synced(snapshot, sources, planned, results, removal)
        return Settled(outcome, results, removal.depends_on.union(*(result.depends_on for result in results)))

    async def without_source(self, push: PushSecret) -> tuple[Outcome, Removal] | None:
        """Delete the values of a deleted source, if the policy requires it; None if there is nothing to delete."""
        old = self.ours(push)
        if push.spec.deletion_policy != DELETE or not old:
            return None
        removal = await self._removed(push, record.stale({}, old), Urgency.STALE)
        events = events_of(removal)
        if removal.failures:
            left = record.without(old, removal.gone)
            return Failed(Step.DELETE_PUSHED, tuple(removal.failures), left, events), removal
        return SourceDeleted(events), removal

    async def finish(self, push: PushSecret) -> tuple[Failed | None, Removal]:
        """Remove the values of a PushSecret that is being deleted. Return a failure if some are left."""
        old = self.ours(push)
        removal = await self._removed(push, record.stale({}, old), Urgency.FINAL)
        if not removal.failures:
            return None, removal
        left = record.without(old, removal.gone)
        return Failed(Step.DELETE_PUSHED, tuple(removal.failures), left, events_of(removal)), removal

    def astray(self, key: ObjectKey) -> PushSecret | None:
        """Return the object whose pushed values must be deleted with it and may not be recorded."""
        push = self._pushes.unrecorded_of(key)
        return push if push is not None and push.spec.deletion_policy == DELETE else None

    async def undo(self, push: PushSecret) -> Removal:
        """Delete unrecorded values of a deleted PushSecret. Its recorded values were deleted with it."""
        left = self._pushes.unrecorded(push) if push.spec.deletion_policy == DELETE else {}
        return await self._removed(push, record.stale({}, left), Urgency.FINAL)

    async def _delivered(self, deliveries: Sequence[BoundDelivery]) -> list[StoreResult]:
        """Push to all stores separately, so that a failing store does not delay the others."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._pusher.push(delivery)) for delivery in deliveries]
        return [task.result() for task in tasks]

    async def _removed(self, push: PushSecret, unwanted: dict[str, list[PushData]], urgency: Urgency) -> Removal:
        removal = await self._remover.remove(push, unwanted, urgency) if unwanted else Removal()
        self._pushes.removed(push, removal.gone)
        return removal

    async def _restored(self, deliveries: Sequence[Delivery], results: list[StoreResult], removal: Removal) -> None:
        """Push values again that a removal may have deleted.

        Two stores may be one backend. And the removal of a property may delete more: some backends can only remove the
        whole remote key, and removing the last property removes the key.
        """
        lost = {spot.remote_key for spots in removal.gone.values() for spot in spots} if removal.removed else set()
        known = {place: each for result in results for place, each in result.known.items()}
        by_store = {result.store.key: result for result in results}
        parts = [part for each in deliveries if (part := each.again(lost, known)) is not None]
        for later in await self._delivered(await self.bind(parts)):
            by_store[later.store.key].take_over(later, lost)

    def _remember(self, push: PushSecret, results: Sequence[StoreResult]) -> None:
        """Remember the push at once, whether or not it can be recorded."""
        known = {place: each for result in results for place, each in result.known.items()}
        self._pushes.wrote(push, known, _pushed(results))


def events_of(removal: Removal) -> tuple[Event, ...]:
    """Return the events about values that were not deleted."""
    return (*orphaned(removal.orphans), *left_alone(removal.others))


def _sendable(planned: Planned) -> list[Delivery]:
    return [each.delivery for each in planned.deliveries if each.bound is not None]


def _announces(push: PushSecret) -> bool:
    return push.spec.deletion_policy == DELETE and push.spec.update_policy != IF_NOT_EXISTS


def _pushed(results: Sequence[StoreResult]) -> dict[str, list[record.Pushed]]:
    return {result.store.key: result.pushed for result in results if result.pushed}


def _places(pushed: Records) -> list[Place]:
    return [Place(store, *record.spot_of(each.data)) for store, entries in pushed.items() for each in entries]


def _failures(results: Sequence[StoreResult]) -> tuple[Failure, ...]:
    return tuple(failure for result in results for failure in result.failures)


def _synced(
    snapshot: PushSnapshot, sources: Sources, planned: Planned, results: Sequence[StoreResult], removal: Removal
) -> Synced:
    renew = sources.renew_within
    last = LastPush(
        at=snapshot.now,
        version=snapshot.version or current_version(snapshot.push),
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
        events=events_of(removal),
        learned=Learned(last, {place: each for result in results for place, each in result.known.items()}),
    )
