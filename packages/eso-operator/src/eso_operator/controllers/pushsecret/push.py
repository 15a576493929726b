"""Pushes to one store: resolve, compare, write in as few calls as possible, and return the result of each entry.

    bind: resolve, read credentials -> push: check for existing values, push the rest -> StoreResult

Nothing is written before `push`: a store that could not be bound certainly got no value. Entries fail one by one.
Errors of stores, providers and backends are results, never exceptions.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from eso_api.pushsecret import PushSecretSpec
from eso_operator.controllers.pushsecret.identity import OWNER_TOKEN
from eso_operator.controllers.pushsecret.memory import digest, value_digest
from eso_operator.controllers.pushsecret.places import Known, Place
from eso_operator.controllers.pushsecret.plan import Fate, Guarantee, Policy, batch_size, batches, needed
from eso_operator.controllers.pushsecret.records import Pushed, Spot, spot_of
from eso_operator.controllers.pushsecret.rivals import Footing, Rivals, Standing
from eso_operator.controllers.pushsecret.select import Entry
from eso_operator.controllers.pushsecret.snapshot import Chosen
from eso_operator.dependencies.dependencies import ANY_PROVIDER, Dependency, OnLabel, on_connection, on_object
from eso_operator.providers.errors import UNSURE, cause_of
from eso_operator.sources.results import Failure
from eso_operator.stores.credentials import Followed
from eso_operator.stores.inputs import need_to_push
from eso_operator.stores.resolved import Bind, BoundStore, Reason, ResolutionError, ResolvedStore
from eso_operator.stores.resolver import Resolver
from eso_wire.errors import ErrorReason, ProviderError, RetryClass
from eso_wire.status import TransportError
from eso_wire.values import (
    CheckResult,
    GetItem,
    ObjectRef,
    Operation,
    PushBatch,
    PushItem,
    PushOutcome,
    PushPrecondition,
    PushResult,
    RemoteRef,
    SourceSecret,
)
from kubebase.meta import ObjectKey

FollowMetadata = Callable[[ResolvedStore, Mapping[str, Any] | None], Awaitable[Followed]]
"""Reads the objects that the metadata of an entry refers to."""

_MAX_NAMED: Final = 5


class Writes(Protocol):
    """The part of the gateway that is needed here."""

    async def check(self, bound: BoundStore, items: Sequence[GetItem]) -> tuple[CheckResult, ...]: ...

    async def push(self, bound: BoundStore, batch: PushBatch) -> tuple[PushResult, ...]: ...


@dataclass(frozen=True, slots=True)
class Parcel:
    """The values of one source for a store."""

    source: SourceSecret
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Delivery:
    """All values for one store. `ours` are the entries in the status, `known` those that this process remembers."""

    store: Chosen
    parcels: tuple[Parcel, ...]
    spec: PushSecretSpec
    caller: ObjectRef
    ours: frozenset[Spot] = frozenset()
    known: Mapping[Place, Known] = field(default_factory=dict)

    @property
    def entries(self) -> list[Entry]:
        return [entry for parcel in self.parcels for entry in parcel.entries]

    def place(self, entry: Entry) -> Place:
        return Place(self.store.key, *spot_of(entry.data))

    def only(self, places: Collection[Place]) -> Delivery:
        """Return the same delivery without entries for other places."""
        parcels = [
            Parcel(parcel.source, tuple(entry for entry in parcel.entries if self.place(entry) in places))
            for parcel in self.parcels
        ]
        return replace(self, parcels=tuple(parcel for parcel in parcels if parcel.entries))

    def again(self, lost: Collection[str], known: Mapping[Place, Known]) -> Delivery | None:
        """Return a delivery of the entries for remote keys that may have been deleted since; None if there are none."""
        parcels = [
            Parcel(parcel.source, tuple(entry for entry in parcel.entries if entry.remote.key in lost))
            for parcel in self.parcels
        ]
        part = replace(self, parcels=tuple(parcel for parcel in parcels if parcel.entries))
        doubts = {place: known[place] for place in map(self.place, part.entries) if place in known}
        uncertain = {place: each._replace(digest=b"", version="") for place, each in doubts.items()}
        return replace(part, known=uncertain) if part.parcels else None


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
            match self.policy.fate(self.delivery.known.get(place), self.digests[place], answer, footing):
                case Fate.PUSH:
                    found.append((entry, self._item(entry)))
                case Fate.PUSH_IF_ABSENT:
                    found.append((entry, self._item(entry, PushPrecondition.IF_ABSENT)))
                case Fate.KEEP:
                    self._keep(entry, answer.provider_version if answer is not None else "")
                case Fate.YIELD:
                    self._yield(entry)
                case Fate.LEAVE:
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
