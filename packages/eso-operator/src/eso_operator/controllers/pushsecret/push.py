"""Pushes to one store: resolve, compare, write in as few calls as possible, and return the result of each entry.

    prepare: resolve, read credentials -> push: check for existing values, push the rest -> StoreResult

Nothing is written before `push`: a store that could not be bound certainly got no value. Entries fail one by one.
Errors of stores, providers and backends are results, never exceptions. Values are compared before they are written, and
protected values are never overwritten:

    Replace        not pushed yet, or another value         push
                   the same value, still there              keep: no write
                   the same value, gone or changed there    push
                   overwritten by another PushSecret        yield, until that one stops pushing (`ownership.py`)
    IfNotExists    exists                                   leave it unchanged
                   does not exist                           push, create-only

If the provider supports EXISTS, it is asked whether a value still exists. With PUSH_IF_ABSENT, create-only is atomic.
Without it, the value is checked just before the write; the condition reports this weaker guarantee.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final, TypeVar

import msgspec

from eso_api.pushsecret import PushSecretSpec
from eso_api.values import SecretBytes
from eso_operator.controllers.pushsecret.ownership import OWNER_TOKEN, Decision, Writes
from eso_operator.controllers.pushsecret.record import RemoteKey, RemoteValue, SyncedEntry
from eso_operator.controllers.pushsecret.selection import Delivery, Entry
from eso_operator.controllers.pushsecret.snapshot import PushStore
from eso_operator.dependencies import ANY_PROVIDER, Dependency, OnLabel, on_connection, on_object
from eso_operator.providers.errors import UNSURE, cause_of
from eso_operator.providers.gateway import Gateway
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
    SourceSecret,
)
from kubebase.meta import ObjectKey

IF_NOT_EXISTS: Final = "IfNotExists"
DELETE: Final = "Delete"
_VALUE_SHARE: Final = 0.75
"""Share of a message that values may take."""
_OVERHEAD: Final = 256
"""Bytes of an item besides its value."""
_MAX_NAMED: Final = 5

# --- what to do with an entry -----------------------------------------------------------------------------------------


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
    can_check: bool

    @staticmethod
    def of(spec: PushSecretSpec, operations: frozenset[Operation]) -> Policy:
        can_check = Operation.EXISTS in operations
        if Operation.PUSH_IF_ABSENT in operations:
            guarantee = Guarantee.ATOMIC
        else:
            guarantee = Guarantee.CHECKED if can_check else Guarantee.NONE
        return Policy(spec.update_policy != IF_NOT_EXISTS, guarantee, can_check)

    def checks(self, known: RemoteValue | None, digest: bytes) -> bool:
        """Return whether to check for existing values before anything is written."""
        if not self.can_check:
            return False
        if self.replaces:
            return known is not None and known.digest == digest
        return known is not None or self.guarantee is Guarantee.CHECKED

    @property
    def needs_checks(self) -> bool:
        """Return whether nothing may be written without the answers to all checks."""
        return not self.replaces and self.guarantee is Guarantee.CHECKED

    def action(
        self,
        known: RemoteValue | None,
        digest: bytes,
        found: CheckResult | None,
        decision: Decision = Decision.KEEP,
        *,
        expected: bool = False,
    ) -> Action:
        """Return the action for an entry.

        It follows from the value that is known, from what the provider found if it was asked, and from the pushes of
        other PushSecrets; `expected` if one of them made the version that was found.
        """
        if not self.replaces:
            if found is not None and found.error is None and found.exists:
                return Action.LEAVE
            return Action.PUSH_IF_ABSENT if self.guarantee is Guarantee.ATOMIC else Action.PUSH
        if known is None or known.digest != digest or decision is Decision.PUSH_AGAIN:
            return Action.PUSH
        if self.can_check and (found is None or found.error is not None or not found.exists):
            return Action.PUSH
        if decision is Decision.YIELD:
            return Action.YIELD
        if found is None or not (known.version and found.provider_version):
            return Action.KEEP
        return Action.KEEP if found.provider_version == known.version or expected else Action.PUSH


def needed(spec: PushSecretSpec, entries: Sequence[Entry]) -> frozenset[Operation]:
    """Return the operations that the policy needs. A provider without them is rejected before the first write."""
    operations = {Operation.PUSH}
    if any(entry.is_whole for entry in entries):
        operations.add(Operation.PUSH_WHOLE_SECRET)
    if spec.deletion_policy == DELETE:
        operations.add(Operation.DELETE)
    return frozenset(operations)


# --- one store --------------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class StoreResult:
    """The result of a delivery. It is filled while values are written, so that an interrupted push forgets none."""

    store: PushStore
    entries: dict[RemoteKey, SyncedEntry] = field(default_factory=dict)
    """Ours, written now or before."""
    existing: list[str] = field(default_factory=list)
    """Remote keys that exist and were not overwritten; not ours."""
    failures: list[Failure] = field(default_factory=list)
    known: dict[RemoteKey, RemoteValue] = field(default_factory=dict)
    depends_on: set[Dependency] = field(default_factory=set)
    written: int = 0
    landed: int = 0
    """Entries whose value, as it is now, is in the backend."""
    left: int = 0
    """Entries whose place holds another value, which stays."""
    yielded: int = 0
    """Those of them that another PushSecret overwrote."""
    unsure: dict[RemoteKey, SyncedEntry] = field(default_factory=dict)
    """Entries that failed in a way that does not show whether they were written."""
    guarantee: Guarantee = Guarantee.ATOMIC

    def fail(self, entry: Entry, error: ResolutionError | ProviderError) -> None:
        self.failures.append(failure_of(entry.path, entry.remote.key, str(self.store), error))

    def refuse(self, entry: Entry, error: ProviderError) -> None:
        """Record that an entry was not written, or that this is unknown."""
        failure = failure_of(entry.path, entry.remote.key, str(self.store), error)
        if error.reason is ErrorReason.OWNERSHIP_CONFLICT:
            what = f'remote key "{entry.remote.key}" exists and was not created by External Secrets'
            failure = replace(failure, message=f"{what}; delete it or choose another remoteKey")
        self.failures.append(failure)
        if error.reason in UNSURE:
            self.unsure[RemoteKey.of(self.store.key, entry.data)] = SyncedEntry(entry.data)

    def own(self, candidate: _Candidate, value: RemoteValue, version: str) -> None:
        self.known[candidate.key] = value
        self.entries[candidate.key] = SyncedEntry(candidate.entry.data, version)

    def take_over(self, later: StoreResult, lost: Collection[str]) -> None:
        """Replace the results of remote keys that were pushed once more."""
        self.entries = {key: entry for key, entry in self.entries.items() if key.name not in lost} | later.entries
        self.existing = [key for key in self.existing if key not in lost] + later.existing
        self.failures += later.failures
        self.unsure |= later.unsure
        self.known |= later.known
        self.written += later.written
        self.landed += later.landed
        self.left += later.left
        self.yielded += later.yielded


@dataclass(frozen=True, slots=True, eq=False)
class BoundDelivery:
    """A delivery with its store, ready for calls; `bound` is None if that failed, and then `result` says why."""

    delivery: Delivery
    result: StoreResult
    bound: BoundStore | None = field(default=None, repr=False)
    followed: Mapping[RemoteKey, Followed] = field(default_factory=dict, repr=False)
    """The objects that the metadata of entries refers to."""


@dataclass(frozen=True, slots=True, eq=False)
class _Candidate:
    """An entry that may be written, and the value that is known to be there."""

    key: RemoteKey
    entry: Entry
    item: PushItem
    known: RemoteValue | None
    digest: bytes
    value: bytes
    """The digest of the value alone; empty where the policy accepts any value."""


@dataclass(frozen=True, slots=True)
class Pusher:
    """Pushes to stores. The process has one."""

    resolver: Resolver
    bind: Bind
    gateway: Gateway
    writes: Writes
    follow: Callable[[ResolvedStore, Mapping[str, Any] | None], Awaitable[Followed]]
    """Reads the objects that the metadata of an entry refers to."""

    async def prepare(self, delivery: Delivery) -> BoundDelivery:
        """Resolve and bind the store. Nothing is written, and the backend is not called."""
        result = StoreResult(delivery.store)
        try:
            return await self._followed(delivery, await self._bound(delivery, result), result)
        except (ResolutionError, ProviderError) as error:
            result.depends_on.add(ANY_PROVIDER)
            if isinstance(error, ResolutionError):
                result.depends_on.add(on_object(error.subject))
            for entry in delivery.entries:
                result.fail(entry, error)
            return BoundDelivery(delivery, result)

    async def existing(
        self, store: PushStore, caller: ObjectRef, remotes: Mapping[str, RemoteRef]
    ) -> dict[str, CheckResult]:
        """Return what the backend says of remote values, by their key here; nothing if it cannot be asked.

        Raises ResolutionError, ProviderError.
        """
        target = await self.resolver.resolve(store.ref, caller, need_to_push(Operation.PUSH))
        if Operation.EXISTS not in target.operations:
            return {}
        bound, most = await self.bind(target), batch_size(target.handshake.limits)
        items = [GetItem(key, remote) for key, remote in remotes.items()]
        found: dict[str, CheckResult] = {}
        for start in range(0, len(items), most):
            for each in await self.gateway.check(bound, items[start : start + most]):
                if each.error is not None:
                    raise each.error
                found[each.item_id] = each
        return found

    async def push(self, prepared: BoundDelivery) -> StoreResult:
        """Push one delivery."""
        delivery, bound, result = prepared.delivery, prepared.bound, prepared.result
        if bound is None:
            return result
        policy = Policy.of(delivery.spec, bound.resolved.operations)
        candidates = _candidates(prepared, bound, policy)
        to_check = [each for each in candidates.values() if policy.checks(each.known, each.digest)]
        found = await self._checked(bound, to_check)
        if policy.needs_checks:
            for each in to_check:
                check = found.get(each.item.item_id)
                if check is not None and check.error is not None:
                    result.fail(each.entry, check.error)
            if result.failures:
                return result
        for group in delivery.by_source:
            of_source = [candidates[delivery.key(entry)] for entry in group.entries]
            due = self._due(prepared, policy, of_source, found)
            await self._write(prepared, policy, bound, group.source, due)
        return result

    async def _bound(self, delivery: Delivery, result: StoreResult) -> BoundStore:
        needs = needed(delivery.spec, delivery.entries)
        # Whole Secrets are checked below: not every entry is one, and the error must name those that are.
        of_all = need_to_push(*needs - {Operation.PUSH_WHOLE_SECRET})
        target = await self.resolver.resolve(delivery.store.ref, delivery.caller, of_all)
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
        bound = await self.bind(target)
        result.depends_on |= {on_object(source) for source in bound.sources}
        if not policy.replaces:
            result.guarantee = policy.guarantee
        return bound

    async def _followed(self, delivery: Delivery, bound: BoundStore, result: StoreResult) -> BoundDelivery:
        """Follow the references in the metadata of entries; an entry whose reference leads nowhere fails alone."""
        if not bound.resolved.config.metadata_references:
            return BoundDelivery(delivery, result, bound)
        followed: dict[RemoteKey, Followed] = {}
        for entry in delivery.entries:
            try:
                found = await self.follow(bound.resolved, entry.metadata)
            except ResolutionError as error:
                result.depends_on.add(on_object(error.subject))
                result.fail(entry, error)
            else:
                followed[delivery.key(entry)] = found
                result.depends_on |= {on_object(source) for source in found.sources}
        return BoundDelivery(delivery.only(lambda entry: delivery.key(entry) in followed), result, bound, followed)

    async def _checked(self, bound: BoundStore, to_check: Sequence[_Candidate]) -> dict[str, CheckResult]:
        """Return which values exist, by item; an error for every item that could not be checked."""
        items = [GetItem(each.item.item_id, each.entry.remote) for each in to_check]
        most = batch_size(bound.resolved.handshake.limits)
        found: dict[str, CheckResult] = {}
        try:
            for start in range(0, len(items), most):
                results = await self.gateway.check(bound, items[start : start + most])
                found |= {each.item_id: each for each in results}
        except ProviderError as error:
            return {item.item_id: CheckResult(item.item_id, error=error) for item in items} | found
        return found

    def _due(
        self,
        prepared: BoundDelivery,
        policy: Policy,
        candidates: Iterable[_Candidate],
        found: Mapping[str, CheckResult],
    ) -> list[tuple[_Candidate, PushItem]]:
        """Return what to write now. The other entries have their result at once."""
        result, push = prepared.result, _push_key(prepared)
        due = []
        for each in candidates:
            check = found.get(each.item.item_id)
            version = check.provider_version if check is not None else ""
            decision, expected = self.writes.decide(push, each.key), self.writes.is_expected(push, each.key, version)
            match policy.action(each.known, each.digest, check, decision, expected=expected), each.known:
                case Action.PUSH, _:
                    due.append((each, each.item))
                case Action.PUSH_IF_ABSENT, _:
                    due.append((each, replace(each.item, precondition=PushPrecondition.IF_ABSENT)))
                case Action.LEAVE, _:
                    _leave(prepared, each, version)
                case Action.KEEP, RemoteValue() as known:
                    result.landed += 1
                    newer = known._replace(version=version) if version not in ("", known.version) else known
                    result.own(each, newer, newer.version)
                case Action.YIELD, RemoteValue() as known:
                    # Our own version is remembered: once the other PushSecret stops, the remote value is not ours.
                    result.left += 1
                    result.yielded += 1
                    result.own(each, known, known.version)
        return due

    async def _write(
        self,
        prepared: BoundDelivery,
        policy: Policy,
        bound: BoundStore,
        source: SourceSecret,
        due: Sequence[tuple[_Candidate, PushItem]],
    ) -> None:
        by_id = {item.item_id: candidate for candidate, item in due}
        target = bound.resolved
        for batch in batches([item for _, item in due], target.handshake.limits, target.operations):
            call = PushBatch(tuple(batch), source, idempotency_key=uuid.uuid4().hex)
            try:
                results = await self.gateway.push(bound, call)
            except ProviderError as error:
                for item in batch:
                    prepared.result.refuse(by_id[item.item_id].entry, error)
                continue
            for each in results:
                self._take(prepared, policy, by_id[each.item_id], each)

    def _take(self, prepared: BoundDelivery, policy: Policy, candidate: _Candidate, done: PushResult) -> None:
        """Take the result of a write."""
        match done.outcome:
            case ProviderError(reason=ErrorReason.ALREADY_EXISTS) if not policy.replaces:
                _leave(prepared, candidate, done.provider_version)
            case ProviderError() as error:
                prepared.result.refuse(candidate.entry, error)
            case PushOutcome.SKIPPED_EXISTS:
                _leave(prepared, candidate, done.provider_version)
            case PushOutcome.UNCHANGED:
                self._own(prepared, candidate, done.provider_version, wrote=False)
            case PushOutcome.CREATED | PushOutcome.UPDATED:
                prepared.result.written += 1
                self._own(prepared, candidate, done.provider_version, wrote=True)

    def _own(self, prepared: BoundDelivery, candidate: _Candidate, version: str, *, wrote: bool) -> None:
        """Record a value of ours. A value that was not written keeps the number of its last write."""
        before = candidate.known
        value = RemoteValue(candidate.digest, version, value=candidate.value, made=version if wrote else "")
        same = before is not None and before.value == value.value
        if before is not None and same and not wrote and self._holds(prepared, candidate):
            value = value._replace(order=before.order, made=before.made, written=before.written)
        else:
            order = self.writes.next_order()
            value = value._replace(order=order, written=order if wrote else before.written if before else 0)
        prepared.result.landed += 1
        prepared.result.own(candidate, value, version)

    def _holds(self, prepared: BoundDelivery, candidate: _Candidate) -> bool:
        return self.writes.decide(_push_key(prepared), candidate.key) is Decision.KEEP


def _push_key(prepared: BoundDelivery) -> ObjectKey:
    return ObjectKey(prepared.delivery.caller.namespace, prepared.delivery.caller.name)


def _candidates(prepared: BoundDelivery, bound: BoundStore, policy: Policy) -> dict[RemoteKey, _Candidate]:
    """Return the entries as items of calls, with the digests that show whether they changed."""
    delivery, target = prepared.delivery, bound.resolved
    # The identity of the backend without credentials, which rotate.
    config = target.config.ref
    backend = f"{target.store.uid} {target.store.generation} {config.uid} {config.generation}"
    found: dict[RemoteKey, _Candidate] = {}
    for group in delivery.by_source:
        for entry in group.entries:
            key = delivery.key(entry)
            followed = prepared.followed.get(key)
            item = PushItem(
                item_id=str(len(found)),
                remote=entry.remote,
                payload=entry.payload,
                provider_metadata=entry.metadata,
                owner_token=OWNER_TOKEN,
                secret_key="" if entry.is_whole else entry.data.match.secret_key,
                resolved=followed.credentials if followed is not None else (),
            )
            value = value_digest(item) if policy.replaces else b""
            known = delivery.known.get(key)
            found[key] = _Candidate(key, entry, item, known, digest(item, group.source, backend), value)
    return found


def _leave(prepared: BoundDelivery, candidate: _Candidate, version: str) -> None:
    """Record an existing value. It is ours only if the status lists it, or if we remember pushing it."""
    delivery, result, known = prepared.delivery, prepared.result, candidate.known
    ours = candidate.key in delivery.ours or (known is not None and known.ours)
    result.left += 1
    if ours:
        result.own(candidate, RemoteValue(b"", version, ours), version)
    else:
        result.known[candidate.key] = RemoteValue(b"", version, ours)
        result.existing.append(candidate.entry.remote.key)


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


def _takes_no_whole_secrets(delivery: Delivery, target: ResolvedStore) -> ResolutionError:
    whole = list(dict.fromkeys(entry.path for entry in delivery.entries if entry.is_whole))
    named = ", ".join(whole[:_MAX_NAMED]) + (" and others" if len(whole) > _MAX_NAMED else "")
    message = (
        f"{delivery.store}: provider {target.endpoint.label} cannot take a whole Secret (PUSH_WHOLE_SECRET), which is"
        f" what {named} would push, so nothing is pushed there: name a key of the Secret, or use another store"
    )
    return ResolutionError(Reason.NOT_IMPLEMENTED, message, subject=target.store)


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
    room, most = int((limits.max_message_bytes or bounds.MAX_MESSAGE_BYTES) * _VALUE_SHARE), batch_size(limits)
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
    rounds: dict[str, int] = {}
    for item in items:
        round_ = rounds.get(item.remote.key, 0)
        rounds[item.remote.key] = round_ + 1
        if round_ == len(found):
            found.append([])
        found[round_].append(item)
    return found


def _size(item: PushItem | DeleteItem) -> int:
    return _OVERHEAD + len(item.remote.key) + (_payload_size(item) if isinstance(item, PushItem) else 0)


def _payload_size(item: PushItem) -> int:
    values = [item.payload] if isinstance(item.payload, SecretBytes) else item.payload.values()
    return sum(map(len, values))


# --- digests ----------------------------------------------------------------------------------------------------------

_KEY: Final = secrets.token_bytes(32)
"""Digests are keyed with a key of this process, so they reveal nothing about a value."""
_VALUE_DIGEST: Final = 16


def digest(item: PushItem, source: SourceSecret, backend: str) -> bytes:
    """Return a digest that is equal for equal pushes.

    It covers value, settings, source metadata, and the store's configuration (`backend`).
    """
    settings = msgspec.json.encode(
        [
            backend,
            item.provider_metadata,
            item.remote.key,
            item.remote.property,
            source.type,
            sorted(source.labels.items()),
            sorted(source.annotations.items()),
        ],
        order="deterministic",
    )
    mark = hmac.new(_KEY, settings, hashlib.sha256)
    for credential in item.resolved:
        mark.update(credential.pointer.encode())
        if isinstance(credential.value, SecretBytes):
            mark.update(credential.value.reveal())
    _add_payload(mark, item)
    return mark.digest()


def value_digest(item: PushItem) -> bytes:
    """Return a digest that is equal for equal values, whatever their source."""
    mark = hmac.new(_KEY, b"", hashlib.sha256)
    _add_payload(mark, item)
    return mark.digest()[:_VALUE_DIGEST]


def _add_payload(mark: hmac.HMAC, item: PushItem) -> None:
    if isinstance(item.payload, SecretBytes):
        _add(mark, b"value", item.payload)
    else:
        mark.update(b"whole:")
        for name in sorted(item.payload):
            _add(mark, name.encode("utf-8", "surrogateescape"), item.payload[name])


def _add(mark: hmac.HMAC, name: bytes, value: SecretBytes) -> None:
    mark.update(b"%d:%b%d:" % (len(name), name, len(value)))
    mark.update(value.reveal())
