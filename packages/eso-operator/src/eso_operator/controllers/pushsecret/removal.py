"""Removes remote values that a PushSecret pushed and no longer wants.

Only values that the status records as ours are deleted, with our owner token: a provider that keeps marks refuses to
delete a value without it. A value that another PushSecret owns too is left to that PushSecret, also if it was pushed
through another store of the same backend, such as a v1 store and its v2 successor while PushSecrets switch one after
the other. A failed deletion is retried, but not forever: after a while the value is abandoned, and an event names it
(`ownership.RemovalAttempts`). A store whose kind is turned off comes back: the deletion waits for it, until a user sets
deletionPolicy None.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from eso_api.pushsecret import PushData, PushSecret
from eso_operator.controllers.contention import named
from eso_operator.controllers.pushsecret.ownership import (
    OWNER_TOKEN,
    TURNED_OFF,
    OwnerInOtherStore,
    Owners,
    RemovalAttempts,
    ValueOwner,
)
from eso_operator.controllers.pushsecret.push import batches, depends_on, failure_of
from eso_operator.controllers.pushsecret.record import RemoteKey, SyncedEntries, SyncedEntry, entry_key
from eso_operator.controllers.pushsecret.snapshot import StoreChooser, caller_of
from eso_operator.dependencies import ANY_PROVIDER, Dependency
from eso_operator.providers.gateway import Gateway
from eso_operator.sources.fetch import Failure
from eso_operator.stores.resolve import Resolver
from eso_operator.stores.resolved import Bind, BoundStore, Gate, Need, ResolutionError, ResolvedStore, same_backend
from eso_wire.errors import ErrorReason, ProviderError, RetryClass
from eso_wire.values import DeleteBatch, DeleteItem, DeleteResult, Operation, RemoteRef

_TO_REMOVE: Final = Need(frozenset({Operation.DELETE}), Gate.POLICY)

Trouble = ResolutionError | ProviderError


@dataclass(slots=True, eq=False)
class Removal:
    """The result of a removal. All stores add to it.

    `orphans` are sentences about abandoned values, `others` about values of other owners.
    """

    gone: set[RemoteKey] = field(default_factory=set)
    """Entries that are no longer ours."""
    orphans: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    depends_on: set[Dependency] = field(default_factory=set)
    removed: int = 0


@dataclass(frozen=True, slots=True)
class Remover:
    """Removes values. The process has one."""

    resolver: Resolver
    bind: Bind
    gateway: Gateway
    chooser: StoreChooser
    owners: Owners
    attempts: RemovalAttempts

    async def remove(self, push: PushSecret, entries: SyncedEntries, *, final: bool) -> Removal:
        """Remove the values of all stores, each store separately. `final` if the PushSecret is being deleted."""
        removal = Removal()
        by_store: dict[str, dict[RemoteKey, SyncedEntry]] = {}
        for key, entry in entries.items():
            if not _is_left(push, key, entry.data, self.owners.other(push, key), removal):
                by_store.setdefault(key.store, {})[key] = entry
        async with asyncio.TaskGroup() as group:
            for store, unshared in by_store.items():
                group.create_task(self._from_store(push, store, unshared, removal, final=final))
        if not removal.failures:
            self.attempts.forget(push.key)
        return removal

    async def resolve(self, push: PushSecret, store: str) -> ResolvedStore:
        """Resolve a store by its key in the status. Raises ResolutionError, ProviderError."""
        return await self.resolver.resolve(await self.chooser.by_key(store, push), caller_of(push), _TO_REMOVE)

    async def bound_or_none(self, push: PushSecret, store: str) -> BoundStore | None:
        """Return the store of a key in the status, ready for calls; None if it is unusable."""
        try:
            return await self.bind(await self.resolve(push, store))
        except (ResolutionError, ProviderError):
            return None

    async def _from_store(
        self, push: PushSecret, store: str, entries: SyncedEntries, removal: Removal, *, final: bool
    ) -> None:
        errors: Mapping[RemoteKey, Trouble]
        try:
            target = await self.resolve(push, store)
            removal.depends_on |= depends_on(target)
            bound = await self.bind(target)
        except (ResolutionError, ProviderError) as error:
            removal.depends_on.add(ANY_PROVIDER)
            errors = dict.fromkeys(entries, error)
        else:
            unshared = await self._without_owner_in_other_stores(push, bound, entries, removal)
            errors = await self._delete(bound, unshared, removal)
        if errors:
            self._retry_or_give_up(push, {key: entries[key].data for key in errors}, errors, removal, final=final)

    async def _without_owner_in_other_stores(
        self, push: PushSecret, bound: BoundStore, entries: SyncedEntries, removal: Removal
    ) -> SyncedEntries:
        """Return the values that no other PushSecret has pushed to the same backend through another store."""
        same: dict[str, bool] = {}
        unshared = {}
        for key, entry in entries.items():
            owner = None
            for other in self.owners.in_other_stores(push, key):
                if other.store not in same:
                    same[other.store] = await self._is_same_backend(bound, other)
                if same[other.store]:
                    owner = other.owner
                    break
            if not _is_left(push, key, entry.data, owner, removal):
                unshared[key] = entry
        return unshared

    async def _is_same_backend(self, bound: BoundStore, other: OwnerInOtherStore) -> bool:
        """Return whether the other store is the same backend; an unusable store counts as another one."""
        there = await self.bound_or_none(other.push, other.store)
        return there is not None and same_backend(bound, there)

    async def _delete(self, bound: BoundStore, entries: SyncedEntries, removal: Removal) -> dict[RemoteKey, Trouble]:
        """Delete the values; return the failures."""
        errors: dict[RemoteKey, Trouble] = {}
        by_id = {str(number): key for number, key in enumerate(entries)}
        items = [
            DeleteItem(number, remote_ref(entries[key].data), OWNER_TOKEN, entries[key].data.metadata)
            for number, key in by_id.items()
        ]
        for batch in batches(items, bound.resolved.handshake.limits, bound.resolved.operations):
            try:
                results = await self.gateway.delete(bound, DeleteBatch(tuple(batch), uuid.uuid4().hex))
            except ProviderError as error:
                results = tuple(DeleteResult(item.item_id, error=error) for item in batch)
            for result in results:
                key = by_id[result.item_id]
                if (failed := _failure_of_deletion(key, entries[key].data, result, removal)) is not None:
                    errors[key] = failed
        return errors

    def _retry_or_give_up(
        self,
        push: PushSecret,
        entries: Mapping[RemoteKey, PushData],
        errors: Mapping[RemoteKey, Trouble],
        removal: Removal,
        *,
        final: bool,
    ) -> None:
        """Report the failures of one store, which causes a retry, or abandon its values."""
        store, reasons = next(iter(entries)).store, {error.reason for error in errors.values()}
        if final and reasons <= TURNED_OFF:
            errors = {key: _with_remedy(error) for key, error in errors.items()}
        if self.attempts.give_up(push.metadata, store, reasons, final=final):
            why, names = next(iter(errors.values())).message, ", ".join(sorted(map(entry_key, entries.values())))
            removal.gone |= entries.keys()
            removal.orphans.append(f"{store}: {names} could not be removed and stays behind: {why}")
        else:
            removal.failures += [
                failure_of("status.syncedPushSecrets", entry_key(data), store, errors[key])
                for key, data in entries.items()
            ]


def remote_ref(data: PushData) -> RemoteRef:
    ref = data.match.remote_ref
    return RemoteRef(ref.remote_key, property=ref.property)


def _with_remedy(error: Trouble) -> Trouble:
    """Return the error with the way to delete the PushSecret although its stores are turned off."""
    if not isinstance(error, ResolutionError):
        return error
    message = f"{error.message}; to delete the PushSecret and keep its remote values, set its deletionPolicy to None"
    return ResolutionError(error.reason, message, subject=error.subject, retry=error.retry)


def _is_left(push: PushSecret, key: RemoteKey, data: PushData, owner: ValueOwner | None, removal: Removal) -> bool:
    """Return whether a value is left to another PushSecret, or at least waits for it."""
    if owner is None:
        return False
    other = named("PushSecret", owner.push, push.metadata.namespace)
    if owner.confirmed:
        removal.gone.add(key)
        removal.others.append(f"{key.store}: {entry_key(data)} was left to {other}, which pushed it too")
        return True
    # It is retried soon: within moments it is known who owns the value.
    message = f"{other} is pushing it just now: it is not deleted before that has ended"
    error = ProviderError(ErrorReason.OWNERSHIP_CONFLICT, message, retry=RetryClass.BACKOFF)
    removal.failures.append(failure_of("status.syncedPushSecrets", entry_key(data), key.store, error))
    return True


def _failure_of_deletion(
    key: RemoteKey, data: PushData, result: DeleteResult, removal: Removal
) -> ProviderError | None:
    """Return the failure of a deletion. An absent value counts as removed; a value of another owner stays unchanged."""
    error = result.error
    if error is not None and error.reason is ErrorReason.OWNERSHIP_CONFLICT:
        removal.others.append(f"{key.store}: {entry_key(data)} was not created by External Secrets and was left alone")
    elif error is not None and not error.is_not_found:
        return error
    removal.gone.add(key)
    removal.removed += result.existed
    return None
