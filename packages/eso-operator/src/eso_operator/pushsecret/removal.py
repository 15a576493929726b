"""Removes from backends what a PushSecret pushed and does not want any more.

Only values that the status records as ours are deleted, with our owner token: a provider that keeps marks refuses to
delete a value without it. A value that another PushSecret records too is left to that PushSecret. A deletion that fails
is retried, but not for ever: after a while the value is let go, and an event names what stays behind. A store that is
gone must not hold an object, or its namespace, for good.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol

from eso_api.pushsecret import PushData, PushSecret
from eso_operator.pushsecret.claims import Claim, Claims
from eso_operator.pushsecret.identity import OWNER_TOKEN
from eso_operator.pushsecret.places import Place
from eso_operator.pushsecret.plan import batches
from eso_operator.pushsecret.push import Bind, depends_on, failure_of
from eso_operator.pushsecret.records import Spot, entry_key, spot_of
from eso_operator.pushsecret.sources import caller_of
from eso_operator.pushsecret.stores import StoreChooser
from eso_operator.stores.need import Gate, Need
from eso_operator.stores.target import BoundTarget, Reason, ResolutionError
from eso_operator.sync.dependencies import ANY_PROVIDER, Dependency
from eso_operator.sync.fetch import Failure
from eso_operator.sync.limit import Limit
from eso_operator.sync.resolver import Resolver
from eso_wire.errors import ErrorReason, ProviderError, RetryClass
from eso_wire.values import DeleteBatch, DeleteItem, DeleteResult, Operation, RemoteRef
from kuberun.clock import Clock
from kuberun.meta import ObjectKey, ObjectMeta

REMOVAL: Final = Need(frozenset({Operation.DELETE}), Gate.POLICY)

_GONE: Final = frozenset({Reason.NOT_FOUND, Reason.CONFIG_NOT_FOUND, Reason.CREDENTIALS_NOT_FOUND})
"""What is needed for a removal does not exist any more."""


class Urgency(Enum):
    """Why something is removed."""

    STALE = "stale"
    """The PushSecret lives on and does not want it."""
    FINAL = "final"
    """The PushSecret is being deleted, and waits for this."""


@dataclass(frozen=True, slots=True)
class Limits:
    """`gone`: the store or its credentials do not exist. `failing`: everything else, if the PushSecret waits for it."""

    gone: Limit = field(default=Limit(4, 5.0))
    failing: Limit = field(default=Limit(15, 1800.0))


Trouble = ResolutionError | ProviderError


class Deletes(Protocol):
    """The part of the gateway that is needed here."""

    async def delete(self, bound: BoundTarget, batch: DeleteBatch) -> tuple[DeleteResult, ...]: ...


@dataclass(slots=True, eq=False)
class Removal:
    """What became of it. `orphans` are sentences about what was let go, `others` about what is somebody else's."""

    gone: dict[str, list[Spot]] = field(default_factory=dict)
    orphans: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    depends_on: set[Dependency] = field(default_factory=set)
    removed: int = 0

    def settle(self, store: str, entries: Sequence[PushData]) -> None:
        self.gone.setdefault(store, []).extend(map(spot_of, entries))


class Remover:
    """One for the process."""

    def __init__(
        self,
        resolver: Resolver,
        bind: Bind,
        gateway: Deletes,
        *,
        chooser: StoreChooser,
        claims: Claims,
        clock: Clock,
        limits: Limits = Limits(),  # noqa: B008 - a frozen value
    ) -> None:
        self._resolver = resolver
        self._bind = bind
        self._gateway = gateway
        self._chooser = chooser
        self._claims = claims
        self._patience = Patience(clock, limits)

    async def remove(self, push: PushSecret, entries: Mapping[str, Sequence[PushData]], urgency: Urgency) -> Removal:
        """All of them, every store on its own."""
        removal = Removal()
        async with asyncio.TaskGroup() as group:
            for store, each in entries.items():
                if alone := self._unshared(push, store, each, removal):
                    group.create_task(self._from_store(_Order(push, store, tuple(alone), urgency), removal))
        if not removal.failures:
            self._patience.forget(push.key)
        return removal

    def forget(self, key: ObjectKey) -> None:
        """The PushSecret is gone."""
        self._patience.forget(key)

    def _unshared(
        self, push: PushSecret, store: str, entries: Sequence[PushData], removal: Removal
    ) -> Sequence[PushData]:
        """What nobody else has pushed. The rest is not ours alone, and not ours any more."""
        alone = []
        for entry in entries:
            match self._claims.other(push, Place(store, *spot_of(entry))):
                case None:
                    alone.append(entry)
                case Claim(by=other, settled=True):
                    removal.settle(store, [entry])
                    removal.others.append(
                        f"{store}: {entry_key(entry)} was left to PushSecret {other}, which pushed it too"
                    )
                case Claim(by=other):
                    removal.failures.append(_contended(store, entry, other))
        return alone

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
        if errors := await self._delete(bound, order, removal):
            self._failed(order, errors, removal)

    async def _delete(self, bound: BoundTarget, order: _Order, removal: Removal) -> dict[Spot, Trouble]:
        """What failed, by entry."""
        errors: dict[Spot, Trouble] = {}
        by_id = {str(number): entry for number, entry in enumerate(order.entries)}
        items = [DeleteItem(number, _remote(entry), OWNER_TOKEN, entry.metadata) for number, entry in by_id.items()]
        for batch in batches(items, bound.target.handshake.limits, bound.target.operations):
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
        """Try again, or let go."""
        left = [entry for entry in order.entries if spot_of(entry) in errors]
        gone = all(isinstance(error, ResolutionError) and error.reason in _GONE for error in errors.values())
        urgency = order.urgency
        if self._patience.is_over(order.push.metadata, order.store, Trial.GONE if gone else Trial(urgency.value)):
            removal.settle(order.store, left)
            why = next(iter(errors.values())).message
            names = ", ".join(sorted(map(entry_key, left)))
            removal.orphans.append(f"{order.store}: {names} could not be removed and stays behind: {why}")
            return
        removal.failures += [
            failure_of("status.syncedPushSecrets", entry_key(entry), order.store, errors[spot_of(entry)])
            for entry in left
        ]


def _contended(store: str, entry: PushData, other: ObjectKey) -> Failure:
    """Whether it is the other's is known in a moment."""
    message = f"PushSecret {other} is pushing it just now: it is not deleted before that has ended"
    error = ProviderError(ErrorReason.OWNERSHIP_CONFLICT, message, retry=RetryClass.BACKOFF)
    return failure_of("status.syncedPushSecrets", entry_key(entry), store, error)


@dataclass(frozen=True, slots=True)
class _Order:
    """What to remove from one store."""

    push: PushSecret
    store: str
    entries: tuple[PushData, ...]
    urgency: Urgency


def _settled(result: DeleteResult, entry: PushData, order: _Order, removal: Removal) -> ProviderError | None:
    """What is not there is removed; what is somebody else's is left alone; anything else is trouble."""
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


class Trial(Enum):
    """What kind of failure patience is tried by."""

    STALE = "stale"
    FINAL = "final"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class _Tried:
    """How often and since when, by store; of this very object, not of one that had its name before."""

    uid: str
    stores: dict[str, tuple[int, float]] = field(default_factory=dict)


class Patience:
    """Counts failed attempts for each object and store."""

    def __init__(self, clock: Clock, limits: Limits) -> None:
        self._clock = clock
        self._limits = limits
        self._tried: dict[ObjectKey, _Tried] = {}

    def is_over(self, push: ObjectMeta, store: str, trial: Trial) -> bool:
        """One more failure. Whether that was enough; an object that lives on can wait as long as its store exists."""
        now = self._clock.monotonic()
        tried = self._tried.get(push.key)
        if tried is None or tried.uid != push.uid:
            tried = self._tried[push.key] = _Tried(push.uid)
        count, since = tried.stores.get(store, (0, now))
        tried.stores[store] = (count + 1, since)
        if trial is Trial.STALE:
            return False
        limit = self._limits.gone if trial is Trial.GONE else self._limits.failing
        return limit.is_over(count + 1, now - since)

    def forget(self, key: ObjectKey) -> None:
        self._tried.pop(key, None)

    def __len__(self) -> int:
        return len(self._tried)


def _remote(entry: PushData) -> RemoteRef:
    ref = entry.match.remote_ref
    return RemoteRef(ref.remote_key, property=ref.property)
