"""Removes values from backends that a PushSecret pushed and no longer wants.

Only values that the status records as ours are deleted, with our owner token: a provider that keeps marks refuses to
delete a value without it. A value that another PushSecret records too is left to that PushSecret. A failed deletion is
retried, but not forever: after a while the value is abandoned, and an event names it. A deleted store must not block an
object or its namespace forever. A store whose kind is turned off comes back: the deletion waits for it, until a user
sets deletionPolicy None.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final, Protocol

from eso_api.pushsecret import PushData, PushSecret
from eso_operator.controllers.contention import named
from eso_operator.controllers.pushsecret.ownership import OWNER_TOKEN, Claim, Claims, Elsewhere, Patience, Trial
from eso_operator.controllers.pushsecret.push import batches, depends_on, failure_of
from eso_operator.controllers.pushsecret.record import Place, Spot, entry_key, spot_of
from eso_operator.controllers.pushsecret.snapshot import StoreChooser, caller_of
from eso_operator.dependencies.dependencies import ANY_PROVIDER, Dependency
from eso_operator.sources.fetch import Failure
from eso_operator.stores.resolve import Resolver
from eso_operator.stores.resolved import Bind, BoundStore, Gate, Need, Reason, ResolutionError, same_backend
from eso_wire.errors import ErrorReason, ProviderError, RetryClass
from eso_wire.values import DeleteBatch, DeleteItem, DeleteResult, Operation, RemoteRef

REMOVAL: Final = Need(frozenset({Operation.DELETE}), Gate.POLICY)

_GONE: Final = frozenset({Reason.NOT_FOUND, Reason.CONFIG_NOT_FOUND, Reason.CREDENTIALS_NOT_FOUND})
"""Causes that mean that a dependency of the removal no longer exists."""


class Urgency(Enum):
    """The reason of a removal."""

    STALE = "stale"
    """The PushSecret stays and no longer pushes the value."""
    FINAL = "final"
    """The PushSecret is being deleted and waits for the removal."""


Trouble = ResolutionError | ProviderError


class Deletes(Protocol):
    """The part of the gateway that is needed here."""

    async def delete(self, bound: BoundStore, batch: DeleteBatch) -> tuple[DeleteResult, ...]: ...


@dataclass(slots=True, eq=False)
class Removal:
    """The result of a removal.

    `orphans` are sentences about abandoned values, `others` about values of other owners.
    """

    gone: dict[str, list[Spot]] = field(default_factory=dict)
    orphans: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    depends_on: set[Dependency] = field(default_factory=set)
    removed: int = 0

    def settle(self, store: str, entries: Sequence[PushData]) -> None:
        self.gone.setdefault(store, []).extend(map(spot_of, entries))


class Remover:
    """Removes values. The process has one."""

    def __init__(
        self,
        resolver: Resolver,
        bind: Bind,
        gateway: Deletes,
        *,
        chooser: StoreChooser,
        claims: Claims,
        patience: Patience,
    ) -> None:
        self._resolver = resolver
        self._bind = bind
        self._gateway = gateway
        self._chooser = chooser
        self._claims = claims
        self._patience = patience

    async def remove(self, push: PushSecret, entries: Mapping[str, Sequence[PushData]], urgency: Urgency) -> Removal:
        """Remove the values of all stores, each store separately."""
        removal = Removal()
        async with asyncio.TaskGroup() as group:
            for store, each in entries.items():
                if alone := self._unshared(push, store, each, removal):
                    group.create_task(self._from_store(_Order(push, store, tuple(alone), urgency), removal))
        if not removal.failures:
            self._patience.forget(push.key)
        return removal

    def _unshared(
        self, push: PushSecret, store: str, entries: Sequence[PushData], removal: Removal
    ) -> Sequence[PushData]:
        """Return the values that no other PushSecret has pushed. The rest is shared, and no longer ours."""
        claims = ((entry, self._claims.other(push, Place(store, *spot_of(entry)))) for entry in entries)
        return [entry for entry, claim in claims if not _is_left(push, store, entry, claim, removal)]

    async def _unshared_elsewhere(self, bound: BoundStore, order: _Order, removal: Removal) -> Sequence[PushData]:
        """Return the values that no other PushSecret has pushed to the same place through another store."""
        same: dict[str, bool] = {}
        alone = []
        for entry in order.entries:
            claim = None
            for other in self._claims.elsewhere(order.push, Place(order.store, *spot_of(entry))):
                if other.store not in same:
                    same[other.store] = await self._leads_there(bound, other)
                if same[other.store]:
                    claim = other.claim
                    break
            if not _is_left(order.push, order.store, entry, claim, removal):
                alone.append(entry)
        return alone

    async def _leads_there(self, bound: BoundStore, other: Elsewhere) -> bool:
        """Return whether the store of another claim is the same place; an unusable store counts as another place."""
        try:
            ref = await self._chooser.by_key(other.store, other.push)
            target = await self._resolver.resolve(ref, caller_of(other.push), REMOVAL)
            return same_backend(bound, await self._bind(target))
        except (ResolutionError, ProviderError):
            return False

    async def _from_store(self, order: _Order, removal: Removal) -> None:
        try:
            ref = await self._chooser.by_key(order.store, order.push)
            target = await self._resolver.resolve(ref, caller_of(order.push), REMOVAL)
            removal.depends_on |= depends_on(target)
            bound = await self._bind(target)
        except (ResolutionError, ProviderError) as error:
            removal.depends_on.add(ANY_PROVIDER)
            self._failed(order, dict.fromkeys(map(spot_of, order.entries), error), removal)
            return
        order = replace(order, entries=tuple(await self._unshared_elsewhere(bound, order, removal)))
        if errors := await self._delete(bound, order, removal):
            self._failed(order, errors, removal)

    async def _delete(self, bound: BoundStore, order: _Order, removal: Removal) -> dict[Spot, Trouble]:
        """Delete the values; return the failures by entry."""
        errors: dict[Spot, Trouble] = {}
        by_id = {str(number): entry for number, entry in enumerate(order.entries)}
        items = [DeleteItem(number, _remote(entry), OWNER_TOKEN, entry.metadata) for number, entry in by_id.items()]
        for batch in batches(items, bound.resolved.handshake.limits, bound.resolved.operations):
            try:
                results = await self._gateway.delete(bound, DeleteBatch(tuple(batch), uuid.uuid4().hex))
            except ProviderError as error:
                results = tuple(DeleteResult(item.item_id, error=error) for item in batch)
            for result in results:
                entry = by_id[result.item_id]
                if (trouble := _settled(result, entry, order, removal)) is not None:
                    errors[spot_of(entry)] = trouble
        return errors

    def _failed(self, order: _Order, errors: Mapping[Spot, Trouble], removal: Removal) -> None:
        """Retry, or abandon the values."""
        left = [entry for entry in order.entries if spot_of(entry) in errors]
        trial = trial_of(errors.values(), order.urgency)
        if trial is Trial.OFF:
            errors = {spot: _with_way_out(error) for spot, error in errors.items()}
        if self._patience.is_over(order.push.metadata, order.store, trial):
            removal.settle(order.store, left)
            why = next(iter(errors.values())).message
            names = ", ".join(sorted(map(entry_key, left)))
            removal.orphans.append(f"{order.store}: {names} could not be removed and stays behind: {why}")
            return
        removal.failures += [
            failure_of("status.syncedPushSecrets", entry_key(entry), order.store, errors[spot_of(entry)])
            for entry in left
        ]


def trial_of(errors: Iterable[Trouble], urgency: Urgency) -> Trial:
    """Return how patiently a removal is tried again after these errors."""
    reasons = {error.reason for error in errors}
    if reasons <= {Reason.FEATURE_DISABLED} and urgency is Urgency.FINAL:
        return Trial.OFF
    return Trial.GONE if reasons <= _GONE else Trial(urgency.value)


def _with_way_out(error: Trouble) -> Trouble:
    """Return the error with the way to delete the PushSecret although its stores are turned off."""
    if not isinstance(error, ResolutionError):
        return error
    message = f"{error.message}; to delete the PushSecret and keep its remote values, set its deletionPolicy to None"
    return ResolutionError(error.reason, message, subject=error.subject, retry=error.retry)


def _is_left(push: PushSecret, store: str, entry: PushData, claim: Claim | None, removal: Removal) -> bool:
    """Return whether a value is left to another PushSecret, or at least waits for it."""
    if claim is None:
        return False
    other = named("PushSecret", claim.by, push.metadata.namespace)
    if claim.settled:
        removal.settle(store, [entry])
        removal.others.append(f"{store}: {entry_key(entry)} was left to {other}, which pushed it too")
    else:
        removal.failures.append(_contended(store, entry, other))
    return True


def _contended(store: str, entry: PushData, other: str) -> Failure:
    """Return the failure of a contended value; it is retried soon, because the owner is known within moments."""
    message = f"{other} is pushing it just now: it is not deleted before that has ended"
    error = ProviderError(ErrorReason.OWNERSHIP_CONFLICT, message, retry=RetryClass.BACKOFF)
    return failure_of("status.syncedPushSecrets", entry_key(entry), store, error)


@dataclass(frozen=True, slots=True)
class _Order:
    """The values to remove from one store."""

    push: PushSecret
    store: str
    entries: tuple[PushData, ...]
    urgency: Urgency


def _settled(result: DeleteResult, entry: PushData, order: _Order, removal: Removal) -> ProviderError | None:
    """Return the failure of a result. An absent value counts as removed; a value of another owner stays unchanged."""
    error = result.error
    if error is not None and error.reason is ErrorReason.OWNERSHIP_CONFLICT:
        removal.others.append(
            f"{order.store}: {entry_key(entry)} was not created by External Secrets and was left alone"
        )
    elif error is not None and not error.is_not_found:
        return error
    removal.settle(order.store, [entry])
    removal.removed += result.existed
    return None


def _remote(entry: PushData) -> RemoteRef:
    ref = entry.match.remote_ref
    return RemoteRef(ref.remote_key, property=ref.property)
