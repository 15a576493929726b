"""Chooses the action for each entry: compare before writing, never overwrite protected values. Pure.

    Replace        not pushed yet, or another value         push
                   the same value, still there              keep: no write
                   the same value, gone or changed there    push
                   overwritten by another PushSecret        yield, until that one stops pushing
    IfNotExists    exists                                   leave it unchanged
                   does not exist                           push, create-only

If the provider supports EXISTS, it is asked whether a value still exists. With PUSH_IF_ABSENT, create-only is atomic.
Without it, the value is checked just before the write; the condition reports this weaker guarantee.

Pushes to one store: resolve, compare, write in as few calls as possible, and return the result of each entry.

    bind: resolve, read credentials -> push: check for existing values, push the rest -> StoreResult

Nothing is written before `push`: a store that could not be bound certainly got no value. Entries fail one by one.
Errors of stores, providers and backends are results, never exceptions.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final, Protocol, TypeVar

from eso_api.pushsecret import PushSecretSpec
from eso_api.values import SecretBytes
from eso_operator.controllers.pushsecret.ownership import OWNER_TOKEN, UNSHARED, Footing, Rivals, Standing
from eso_operator.controllers.pushsecret.record import (
    Known,
    Place,
    Pushed,
    digest,
    spot_of,
    value_digest,
)
from eso_operator.controllers.pushsecret.selection import Delivery, Entry, Parcel
from eso_operator.controllers.pushsecret.snapshot import Chosen
from eso_operator.dependencies.dependencies import ANY_PROVIDER, Dependency, OnLabel, on_connection, on_object
from eso_operator.providers.errors import UNSURE, cause_of
from eso_operator.sources.fetch import Failure
from eso_operator.stores.credentials import Followed
from eso_operator.stores.resolve import Resolver
from eso_operator.stores.resolved import Bind, BoundStore, Reason, ResolutionError, ResolvedStore, need_to_push
from eso_wire import bounds
from eso_wire.errors import ErrorReason, ProviderError, RetryClass
from eso_wire.status import TransportError
from eso_wire.values import (
    CheckResult,
    DeleteItem,
    GetItem,
    Limits,
    ObjectRef,
    Operation,
    PushBatch,
    PushItem,
    PushOutcome,
    PushPrecondition,
    PushResult,
    RemoteRef,
)
from kubebase.meta import ObjectKey

IF_NOT_EXISTS: Final = "IfNotExists"

DELETE: Final = "Delete"

_ROOM: Final = 0.75
"""Share of a message that values may take."""

_OVERHEAD: Final = 256
"""Bytes of an item besides its value."""


class Guarantee(Enum):
    """The guarantee of IfNotExists at a provider."""

    ATOMIC = "created only"
    CHECKED = "checked, then pushed"
    NONE = "neither"


class Action(Enum):
    """The action for an entry."""

    PUSH = "push"
    PUSH_IF_ABSENT = "push if absent"
    KEEP = "keep"
    """The value is ours and unchanged: nothing is written."""
    YIELD = "yield"
    """Ours, but another PushSecret wrote a different value after us: the last writer wins."""
    LEAVE = "leave"
    """The value exists, and the policy leaves it unchanged."""


@dataclass(frozen=True, slots=True)
class Policy:
    """The policy for pushes to one store, given the operations of its provider."""

    replaces: bool
    guarantee: Guarantee
    can_ask: bool

    @staticmethod
    def of(spec: PushSecretSpec, operations: frozenset[Operation]) -> Policy:
        can_ask = Operation.EXISTS in operations
        if Operation.PUSH_IF_ABSENT in operations:
            guarantee = Guarantee.ATOMIC
        else:
            guarantee = Guarantee.CHECKED if can_ask else Guarantee.NONE
        return Policy(spec.update_policy != IF_NOT_EXISTS, guarantee, can_ask)

    def asks(self, known: Known | None, digest: bytes) -> bool:
        """Return whether to check for existing values before anything is written."""
        if not self.can_ask:
            return False
        if self.replaces:
            return known is not None and known.digest == digest
        return known is not None or self.guarantee is Guarantee.CHECKED

    def action(
        self, known: Known | None, digest: bytes, answer: CheckResult | None, footing: Footing = UNSHARED
    ) -> Action:
        """Return the action, given the known state, the provider's answer if it was asked, and the pushes of others."""
        if self.replaces:
            return self._action_for_replace(known, digest, answer, footing)
        if answer is not None and answer.error is None and answer.exists:
            return Action.LEAVE
        return Action.PUSH_IF_ABSENT if self.guarantee is Guarantee.ATOMIC else Action.PUSH

    def _action_for_replace(
        self, known: Known | None, digest: bytes, answer: CheckResult | None, footing: Footing
    ) -> Action:
        if known is None or known.digest != digest or footing.standing is Standing.FREED:
            return Action.PUSH
        if self.can_ask and (answer is None or answer.error is not None or not answer.exists):
            return Action.PUSH
        if footing.standing is Standing.LOST:
            return Action.YIELD
        return Action.KEEP if answer is None or _is_expected(known, answer, footing) else Action.PUSH


def needed(spec: PushSecretSpec, entries: Sequence[Entry]) -> frozenset[Operation]:
    """Return the operations that the policy needs. A provider without them is rejected before the first write."""
    operations = {Operation.PUSH}
    if any(entry.is_whole for entry in entries):
        operations.add(Operation.PUSH_WHOLE_SECRET)
    if spec.deletion_policy == DELETE:
        operations.add(Operation.DELETE)
    return frozenset(operations)


def _is_expected(known: Known, answer: CheckResult, footing: Footing) -> bool:
    """Return whether only PushSecrets changed the remote key since then, as far as versions show."""
    version = answer.provider_version
    return not (known.version and version) or version == known.version or footing.expected


# --- calls ------------------------------------------------------------------------------------------------------------

Item = TypeVar("Item", PushItem, DeleteItem)


def batches(items: Sequence[Item], limits: Limits, operations: frozenset[Operation]) -> Iterator[list[Item]]:
    """Yield as few batches as possible.

    A provider with PUSH_GROUPED gets all items of a remote key in one call, unless they exceed the size of a call.
    Without it they are sent in consecutive calls, because a provider may process the items of one call in parallel.
    """
    if Operation.PUSH_GROUPED in operations:
        yield from _filled(groups(items), limits)
        return
    for wave in waves(items):
        yield from _filled([[item] for item in wave], limits)


def _filled(units: Iterable[Sequence[Item]], limits: Limits) -> Iterator[list[Item]]:
    """Yield calls that are as full as possible; a unit that fits into one call is never split."""
    room, most = int((limits.max_message_bytes or bounds.MAX_MESSAGE_BYTES) * _ROOM), batch_size(limits)
    batch: list[Item] = []
    size = 0
    for unit in units:
        whole = sum(map(_size, unit))
        fits = len(batch) + len(unit) <= most and size + whole <= room
        for number, item in enumerate(unit):
            begins = number == 0 and not fits
            if batch and (begins or len(batch) >= most or size + _size(item) > room):
                yield batch
                batch, size = [], 0
            batch.append(item)
            size += _size(item)
    if batch:
        yield batch


def batch_size(limits: Limits) -> int:
    return min(limits.max_batch_items or bounds.MAX_BATCH_ITEMS, bounds.MAX_BATCH_ITEMS)


def groups(items: Sequence[Item]) -> list[list[Item]]:
    """Group the items by remote key."""
    found: dict[str, list[Item]] = {}
    for item in items:
        found.setdefault(item.remote.key, []).append(item)
    return list(found.values())


def waves(items: Sequence[Item]) -> list[list[Item]]:
    """Return waves of items that contain every remote key at most once."""
    found: list[list[Item]] = []
    turns: dict[str, int] = {}
    for item in items:
        turn = turns.get(item.remote.key, 0)
        turns[item.remote.key] = turn + 1
        if turn == len(found):
            found.append([])
        found[turn].append(item)
    return found


def _size(item: PushItem | DeleteItem) -> int:
    return _OVERHEAD + len(item.remote.key) + (_payload_size(item) if isinstance(item, PushItem) else 0)


def _payload_size(item: PushItem) -> int:
    values = [item.payload] if isinstance(item.payload, SecretBytes) else item.payload.values()
    return sum(map(len, values))


FollowMetadata = Callable[[ResolvedStore, Mapping[str, Any] | None], Awaitable[Followed]]
"""Reads the objects that the metadata of an entry refers to."""


_MAX_NAMED: Final = 5


class Writes(Protocol):
    """The part of the gateway that is needed here."""

    async def check(self, bound: BoundStore, items: Sequence[GetItem]) -> tuple[CheckResult, ...]: ...

    async def push(self, bound: BoundStore, batch: PushBatch) -> tuple[PushResult, ...]: ...


@dataclass(slots=True, eq=False)
class StoreResult:
    """The result of a delivery."""

    store: Chosen
    pushed: list[Pushed] = field(default_factory=list)
    """Ours, written now or before."""
    existing: list[str] = field(default_factory=list)
    """Remote keys that exist and were not overwritten; not ours."""
    failures: list[Failure] = field(default_factory=list)
    known: dict[Place, Known] = field(default_factory=dict)
    depends_on: set[Dependency] = field(default_factory=set)
    written: int = 0
    landed: int = 0
    """Entries whose value, as it is now, is in the backend."""
    left: int = 0
    """Entries whose place holds another value, which stays."""
    yielded: int = 0
    """Those of them that another PushSecret overwrote."""
    unsure: list[Pushed] = field(default_factory=list)
    """Entries that failed in a way that does not show whether they were written."""
    guarantee: Guarantee = Guarantee.ATOMIC

    def fail(self, entry: Entry, error: ResolutionError | ProviderError) -> None:
        self.failures.append(failure_of(entry.path, entry.remote.key, str(self.store), error))

    def refuse(self, entry: Entry, error: ProviderError) -> None:
        """Record that an entry was not written, or that this is unknown."""
        failure = failure_of(entry.path, entry.remote.key, str(self.store), error)
        if error.reason is ErrorReason.OWNERSHIP_CONFLICT:
            failure = replace(failure, message=_not_ours(entry.remote.key))
        self.failures.append(failure)
        if error.reason in UNSURE:
            self.unsure.append(Pushed(entry.data))

    def take_over(self, later: StoreResult, lost: Collection[str]) -> None:
        """Replace the results of remote keys that were pushed once more."""
        self.pushed = [each for each in self.pushed if spot_of(each.data).remote_key not in lost] + later.pushed
        self.existing = [key for key in self.existing if key not in lost] + later.existing
        self.failures += later.failures
        self.unsure += later.unsure
        self.known |= later.known
        self.written += later.written
        self.landed += later.landed
        self.left += later.left
        self.yielded += later.yielded


@dataclass(frozen=True, slots=True, eq=False)
class BoundDelivery:
    """A delivery and its way to the backend; None if there is none, and then `result` says why."""

    delivery: Delivery
    result: StoreResult
    bound: BoundStore | None = field(default=None, repr=False)
    followed: Mapping[Place, Followed] = field(default_factory=dict, repr=False)
    """The objects that the metadata of entries refers to."""


class Pusher:
    """Pushes to stores. The process has one."""

    def __init__(
        self, resolver: Resolver, bind: Bind, gateway: Writes, rivals: Rivals, *, follow: FollowMetadata
    ) -> None:
        self._resolver = resolver
        self._bind = bind
        self._follow = follow
        self._gateway = gateway
        self._rivals = rivals

    async def bind(self, delivery: Delivery) -> BoundDelivery:
        """Resolve and bind the store. Nothing is written, and the backend is not called."""
        result = StoreResult(delivery.store)
        try:
            return await self._followed(delivery, await self._bound(delivery, result), result)
        except (ResolutionError, ProviderError) as error:
            result.depends_on |= _might_help(error)
            for entry in delivery.entries:
                result.fail(entry, error)
            return BoundDelivery(delivery, result)

    async def exist(self, store: Chosen, caller: ObjectRef, remotes: Mapping[str, RemoteRef]) -> dict[str, CheckResult]:
        """Return what the backend says of remote values, by their key here; nothing if it cannot be asked.

        Raises ResolutionError, ProviderError.
        """
        target = await self._resolver.resolve(store.ref, caller, need_to_push(Operation.PUSH))
        if Operation.EXISTS not in target.operations:
            return {}
        bound, most = await self._bind(target), batch_size(target.handshake.limits)
        items = [GetItem(key, remote) for key, remote in remotes.items()]
        found: dict[str, CheckResult] = {}
        for start in range(0, len(items), most):
            for each in await self._gateway.check(bound, items[start : start + most]):
                if each.error is not None:
                    raise each.error
                found[each.item_id] = each
        return found

    async def push(self, way: BoundDelivery) -> StoreResult:
        """Push one delivery."""
        delivery, bound, result = way.delivery, way.bound, way.result
        if bound is not None:
            policy = Policy.of(delivery.spec, bound.resolved.operations)
            round_ = _Round(delivery, policy, bound, self._rivals, result, way.followed)
            if await self._look(round_):
                for parcel in delivery.parcels:
                    await self._write(round_, parcel)
        return result

    async def _bound(self, delivery: Delivery, result: StoreResult) -> BoundStore:
        needs = needed(delivery.spec, delivery.entries)
        # Whole Secrets are checked below: not every entry is one, and the error must name those that are.
        of_all = need_to_push(*needs - {Operation.PUSH_WHOLE_SECRET})
        target = await self._resolver.resolve(delivery.store.ref, delivery.caller, of_all)
        result.depends_on |= depends_on(target)
        if needs - target.operations:
            raise _takes_no_whole_secrets(delivery, target)
        policy = Policy.of(delivery.spec, target.operations)
        if not policy.replaces and policy.guarantee is Guarantee.NONE:
            message = (
                f"{delivery.store}: provider {target.endpoint.label} can neither create only nor tell whether a key"
                " exists, so updatePolicy IfNotExists cannot be followed: use Replace, or another store"
            )
            raise ResolutionError(Reason.NOT_IMPLEMENTED, message, subject=target.store)
        bound = await self._bind(target)
        result.depends_on |= {on_object(source) for source in bound.sources}
        if not policy.replaces:
            result.guarantee = policy.guarantee
        return bound

    async def _followed(self, delivery: Delivery, bound: BoundStore, result: StoreResult) -> BoundDelivery:
        """Follow the references in the metadata of entries; an entry whose reference leads nowhere fails alone."""
        if not bound.resolved.config.metadata_references:
            return BoundDelivery(delivery, result, bound)
        followed: dict[Place, Followed] = {}
        for entry in delivery.entries:
            try:
                found = await self._follow(bound.resolved, entry.metadata)
            except ResolutionError as error:
                result.depends_on.add(on_object(error.subject))
                result.fail(entry, error)
            else:
                followed[delivery.place(entry)] = found
                result.depends_on |= {on_object(source) for source in found.sources}
        return BoundDelivery(delivery.only(followed), result, bound, followed)

    async def _look(self, round_: _Round) -> bool:
        """Check which values exist, as far as it matters. Return False if an unknown answer forbids writing."""
        questions = round_.questions()
        try:
            for start in range(0, len(questions), round_.batch_size):
                asked = questions[start : start + round_.batch_size]
                round_.answers |= {each.item_id: each for each in await self._gateway.check(round_.bound, asked)}
        except ProviderError as error:
            round_.answers |= {
                each.item_id: CheckResult(each.item_id, error=error)
                for each in questions
                if each.item_id not in round_.answers
            }
        return round_.may_write()

    async def _write(self, round_: _Round, parcel: Parcel) -> None:
        wanted = {item.item_id: (entry, item) for entry, item in round_.due(parcel)}
        target = round_.bound.resolved
        for batch in batches([item for _, item in wanted.values()], target.handshake.limits, target.operations):
            call = PushBatch(tuple(batch), parcel.source, idempotency_key=uuid.uuid4().hex)
            try:
                results = await self._gateway.push(round_.bound, call)
            except ProviderError as error:
                for item in batch:
                    round_.result.refuse(wanted[item.item_id][0], error)
                continue
            for one in results:
                round_.take(wanted[one.item_id][0], one)


@dataclass(slots=True, eq=False)
class _Round:
    """One delivery in progress."""

    delivery: Delivery
    policy: Policy
    bound: BoundStore
    rivals: Rivals
    result: StoreResult
    followed: Mapping[Place, Followed]
    answers: dict[str, CheckResult] = field(default_factory=dict)
    ids: dict[Place, str] = field(default_factory=dict)
    digests: dict[Place, bytes] = field(default_factory=dict)
    values: dict[Place, bytes] = field(default_factory=dict)
    """Digests of the values alone; none where the policy accepts any value."""

    def __post_init__(self) -> None:
        for parcel in self.delivery.parcels:
            for entry in parcel.entries:
                place = self.delivery.place(entry)
                self.ids[place] = str(len(self.ids))
                item = self._item(entry)
                self.digests[place] = digest(item, parcel.source, self._backend)
                self.values[place] = value_digest(item) if self.policy.replaces else b""

    @property
    def batch_size(self) -> int:
        return batch_size(self.bound.resolved.handshake.limits)

    def questions(self) -> list[GetItem]:
        places = ((self.delivery.place(entry), entry) for entry in self.delivery.entries)
        return [
            GetItem(self.ids[place], entry.remote)
            for place, entry in places
            if self.policy.asks(self.delivery.known.get(place), self.digests[place])
        ]

    def may_write(self) -> bool:
        """Return whether writes are permitted: IfNotExists that depends on checks needs all of their answers."""
        if self.policy.replaces or self.policy.guarantee is not Guarantee.CHECKED:
            return True
        for entry in self.delivery.entries:
            answer = self.answers.get(self.ids[self.delivery.place(entry)])
            if answer is not None and answer.error is not None:
                self.result.fail(entry, answer.error)
        return not self.result.failures

    def due(self, parcel: Parcel) -> list[tuple[Entry, PushItem]]:
        """Return the entries to write. Settle the others."""
        found = []
        for entry in parcel.entries:
            place = self.delivery.place(entry)
            answer = self.answers.get(self.ids[place])
            footing = self._footing(place, answer.provider_version if answer is not None else "")
            match self.policy.action(self.delivery.known.get(place), self.digests[place], answer, footing):
                case Action.PUSH:
                    found.append((entry, self._item(entry)))
                case Action.PUSH_IF_ABSENT:
                    found.append((entry, self._item(entry, PushPrecondition.IF_ABSENT)))
                case Action.KEEP:
                    self._keep(entry, answer.provider_version if answer is not None else "")
                case Action.YIELD:
                    self._yield(entry)
                case Action.LEAVE:
                    self._leave(entry, answer.provider_version if answer is not None else "")
        return found

    def take(self, entry: Entry, answer: PushResult) -> None:
        match answer.outcome:
            case ProviderError(reason=ErrorReason.ALREADY_EXISTS) if not self.policy.replaces:
                self._leave(entry, answer.provider_version)
            case ProviderError() as error:
                self.result.refuse(entry, error)
            case PushOutcome.SKIPPED_EXISTS:
                self._leave(entry, answer.provider_version)
            case PushOutcome.UNCHANGED:
                self._own(entry, answer.provider_version, wrote=False)
            case PushOutcome.CREATED | PushOutcome.UPDATED:
                self.result.written += 1
                self._own(entry, answer.provider_version, wrote=True)

    def _own(self, entry: Entry, version: str, *, wrote: bool) -> None:
        """Record an existing value of ours. A value that was not written keeps the number of its last write."""
        place = self.delivery.place(entry)
        before = self.delivery.known.get(place)
        known = Known(self.digests[place], version, value=self.values[place], made=version if wrote else "")
        held = before is not None and before.value == known.value and self._footing(place).standing is Standing.HELD
        if before is not None and held and not wrote:
            known = known._replace(order=before.order, made=before.made, written=before.written)
        else:
            order = self.rivals.next_order()
            known = known._replace(order=order, written=order if wrote else before.written if before else 0)
        self.result.landed += 1
        self.result.known[place] = known
        self.result.pushed.append(Pushed(entry.data, version))

    def _keep(self, entry: Entry, version: str) -> None:
        place = self.delivery.place(entry)
        known = self.delivery.known[place]
        known = known._replace(version=version) if version not in ("", known.version) else known
        self.result.landed += 1
        self.result.known[place] = known
        self.result.pushed.append(Pushed(entry.data, known.version))

    def _yield(self, entry: Entry) -> None:
        """Remember our own version: once the other PushSecret withdraws, the remote value is not ours."""
        place = self.delivery.place(entry)
        known = self.delivery.known[place]
        self.result.left += 1
        self.result.yielded += 1
        self.result.known[place] = known
        self.result.pushed.append(Pushed(entry.data, known.version))

    def _leave(self, entry: Entry, version: str) -> None:
        """Record an existing value. It is ours only if the status lists it, or if we remember pushing it."""
        place = self.delivery.place(entry)
        before = self.delivery.known.get(place)
        ours = spot_of(entry.data) in self.delivery.ours or (before is not None and before.ours)
        self.result.left += 1
        self.result.known[place] = Known(b"", version, ours)
        if ours:
            self.result.pushed.append(Pushed(entry.data, version))
        else:
            self.result.existing.append(entry.remote.key)

    def _footing(self, place: Place, version: str = "") -> Footing:
        caller = self.delivery.caller
        return self.rivals.footing(ObjectKey(caller.namespace, caller.name), place, version)

    def _item(self, entry: Entry, precondition: PushPrecondition = PushPrecondition.NONE) -> PushItem:
        return PushItem(
            item_id=self.ids[self.delivery.place(entry)],
            remote=entry.remote,
            payload=entry.payload,
            provider_metadata=entry.metadata,
            precondition=precondition,
            owner_token=OWNER_TOKEN,
            secret_key="" if entry.is_whole else entry.data.match.secret_key,
            resolved=found.credentials if (found := self.followed.get(self.delivery.place(entry))) else (),
        )

    @property
    def _backend(self) -> str:
        """Return the identity of the backend without credentials, which rotate."""
        target = self.bound.resolved
        config = target.config.ref
        return f"{target.store.uid} {target.store.generation} {config.uid} {config.generation}"


def depends_on(target: ResolvedStore) -> set[Dependency]:
    """Return the dependencies of a target, so that their changes wake the PushSecret."""
    of_provider: set[Dependency] = {on_connection(target.connection), OnLabel(target.endpoint.label)}
    return of_provider | {on_object(target.config.ref), on_object(target.store)}


def failure_of(path: str, remote_key: str, store: str, error: ResolutionError | ProviderError) -> Failure:
    match error:
        case ResolutionError():
            retry = RetryClass.NEVER if error.reason is Reason.NOT_IMPLEMENTED else RetryClass.BACKOFF
            return Failure(path, error.reason.value, error.message, remote_key, store, retry, waits=error.waits)
        case ProviderError():
            failure = Failure(path, cause_of(error), error.message, remote_key, store, error.retry, error.retry_after)
            return replace(failure, unreachable=True) if isinstance(error, TransportError) else failure


def _not_ours(remote_key: str) -> str:
    what = f'remote key "{remote_key}" exists and was not created by External Secrets'
    return f"{what}; delete it or choose another remoteKey"


def _takes_no_whole_secrets(delivery: Delivery, target: ResolvedStore) -> ResolutionError:
    whole = list(dict.fromkeys(entry.path for entry in delivery.entries if entry.is_whole))
    named = ", ".join(whole[:_MAX_NAMED]) + (" and others" if len(whole) > _MAX_NAMED else "")
    message = (
        f"{delivery.store}: provider {target.endpoint.label} cannot take a whole Secret (PUSH_WHOLE_SECRET), which is"
        f" what {named} would push, so nothing is pushed there: name a key of the Secret, or use another store"
    )
    return ResolutionError(Reason.NOT_IMPLEMENTED, message, subject=target.store)


def _might_help(error: ResolutionError | ProviderError) -> set[Dependency]:
    found: set[Dependency] = {ANY_PROVIDER}
    if isinstance(error, ResolutionError):
        found.add(on_object(error.subject))
    return found
