"""Pushes of generated values that are interrupted: by a status that cannot be written, or by the end of the process.

Generated values cannot be read again. Before the first of them is pushed, the status records that the push begins, and
the version of each remote value, or that there is none. A process that finds such a record asks the backend: if every
remote value is a new one, the push arrived, and only the status is missing. If not, values are generated again.

A push is recorded only if that can be found out: the provider says whether a value exists, and has versions of values
that exist. Under IfNotExists there is no record, because a pushed value is never replaced.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from eso_api.pushsecret import PendingPush, PushSecret
from eso_operator.controllers.outcomes import Step
from eso_operator.controllers.pushsecret.push import DELETE, IF_NOT_EXISTS, BoundDelivery, Pusher, failure_of
from eso_operator.controllers.pushsecret.record import (
    NOTHING,
    LastPush,
    PushSecretRecord,
    RemoteKey,
    SyncedEntries,
    SyncedEntry,
    Unreported,
    entry_key,
)
from eso_operator.controllers.pushsecret.removal import remote_ref
from eso_operator.controllers.pushsecret.selection import Delivery
from eso_operator.controllers.pushsecret.snapshot import (
    PushSnapshot,
    PushSources,
    PushStore,
    caller_of,
)
from eso_operator.controllers.pushsecret.status import Pushed, PushFailed
from eso_operator.controllers.refresh import current_version, moment
from eso_operator.generators.ledger import RecordedStates
from eso_operator.memory import Memory
from eso_operator.sources.fetch import Failure
from eso_operator.stores.resolved import ResolutionError
from eso_wire.errors import ProviderError
from eso_wire.values import CheckResult
from kubebase.clock import rfc3339


@dataclass(frozen=True, slots=True)
class FinishedPush:
    """An interrupted push whose values all arrived."""

    outcome: Pushed
    at: datetime
    states: Sequence[str] | None = None
    """The names of their GeneratorStates, if the older ones may not have a deadline yet."""


@dataclass(frozen=True, slots=True)
class PendingPushes:
    """Records pushes that begin, and finds out whether they arrived. The process has one."""

    pusher: Pusher
    memory: Memory[PushSecretRecord]

    async def begin(
        self,
        snapshot: PushSnapshot,
        sources: PushSources,
        deliveries: Sequence[BoundDelivery],
        ours: SyncedEntries,
        states: RecordedStates,
    ) -> PendingPush | None:
        """Return the record of a push that begins; None if it could not be found out later whether it arrived."""
        push, within = snapshot.push, sources.renew_within
        if not sources.made or push.spec.update_policy == IF_NOT_EXISTS:
            return None
        before: dict[str, dict[str, str]] = {}
        for each in deliveries:
            versions = None if each.bound is None else await self._versions(each.delivery, ours)
            if versions is None:
                return None
            before[each.delivery.store.key] = versions
        return PendingPush(
            time=rfc3339(snapshot.now),
            renew_time=None if within is None else rfc3339(snapshot.now + timedelta(seconds=within)),
            synced_resource_version=current_version(push),
            before=before,
            states=[state.name for state in states.new],
        )

    async def finish(self, snapshot: PushSnapshot) -> FinishedPush | PushFailed | None:
        """Return the outcome of an interrupted push whose values arrived; None if there is none.

        As long as the backend cannot be asked, that is a failure: new values could replace those that arrived.
        """
        push, pending = snapshot.push, snapshot.push.status.pending_push
        known = self.memory.known(push.key, push.metadata.uid)
        left = None if known is None else known.unreported
        if left is not None and left.generation == push.metadata.generation:
            return _finished(Pushed(left.entries, last=left.last, values=left.values), left.last)
        if pending is None or isinstance(snapshot.stores, Failure) or not _is_pending(push, pending):
            return None
        at = moment(pending.time)
        if at is None or set(pending.before) != {store.key for store in snapshot.stores}:
            return None
        entries: dict[RemoteKey, SyncedEntry] = {}
        for store in snapshot.stores:
            try:
                arrived = await self._arrived(push, store, pending.before[store.key])
            except (ResolutionError, ProviderError) as error:
                return PushFailed(Step.PUSH, (failure_of("spec.secretStoreRefs", "", str(store), error),))
            if arrived is None:
                return None
            entries |= arrived
        version, renew_at = pending.synced_resource_version, moment(pending.renew_time)
        last = LastPush(at, version, sources=frozenset(), stores=snapshot.store_marks, renew_at=renew_at)
        return replace(_finished(Pushed(entries, last=last, values=NOTHING), last), states=pending.states)

    def not_reported(self, push: PushSecret, outcome: Pushed) -> None:
        """Remember a successful push of generated values whose status could not be written."""
        if outcome.last is not None and push.spec.selector.generator_ref is not None:
            left = Unreported(push.metadata.generation, outcome.entries, outcome.last, outcome.values)
            self.memory.of(push.key, push.metadata.uid).unreported = left

    def reported(self, push: PushSecret) -> None:
        if (known := self.memory.known(push.key, push.metadata.uid)) is not None:
            known.unreported = None

    async def _versions(self, delivery: Delivery, ours: SyncedEntries) -> dict[str, str] | None:
        """Return the version of each remote value before a push; None if one of them is unknown."""
        wanted = {entry_key(entry.data): entry for entry in delivery.entries}
        if len(wanted) != len(delivery.entries):
            return None
        known = {key: ours[remote] for key, entry in wanted.items() if (remote := delivery.key(entry)) in ours}
        if not all(entry.version for entry in known.values()):
            return None
        new = {key: entry.remote for key, entry in wanted.items() if key not in known}
        try:
            found = await self.pusher.existing(delivery.store, delivery.caller, new) if new else {}
        except (ResolutionError, ProviderError):
            return None
        if found.keys() != new.keys() or any(each.exists and not each.provider_version for each in found.values()):
            return None
        versions = {key: entry.version for key, entry in known.items()}
        return versions | {key: each.provider_version if each.exists else "" for key, each in found.items()}

    async def _arrived(
        self, push: PushSecret, store: PushStore, before: Mapping[str, str]
    ) -> dict[RemoteKey, SyncedEntry] | None:
        """Return the entries of one store; None if one of them did not arrive. Raises as `Pusher.existing`."""
        entries = push.status.synced_push_secrets.get(store.key, {})
        if not before.keys() <= entries.keys():
            return None
        remotes = {key: remote_ref(entries[key]) for key in before}
        found = await self.pusher.existing(store, caller_of(push), remotes)
        if any(key not in found or not _is_new(version, found[key]) for key, version in before.items()):
            return None
        return {
            RemoteKey.of(store.key, entries[key]): SyncedEntry(entries[key], found[key].provider_version)
            for key in before
        }


def _finished(outcome: Pushed, last: LastPush) -> FinishedPush:
    within = None if last.renew_at is None else (last.renew_at - last.at).total_seconds()
    return FinishedPush(replace(outcome, wrote=True, renew_within=within), last.at)


def _is_pending(push: PushSecret, pending: PendingPush) -> bool:
    """Return whether the record is about the object as it is, and nothing else is left to do."""
    recorded = _entry_keys(push.status.synced_push_secrets)
    wanted = _entry_keys(pending.before)
    stale = push.spec.deletion_policy == DELETE and bool(recorded - wanted)
    return pending.synced_resource_version == current_version(push) and bool(wanted) and not stale


def _entry_keys(by_store: Mapping[str, Collection[str]]) -> set[tuple[str, str]]:
    return {(store, key) for store, keys in by_store.items() for key in keys}


def _is_new(before: str, found: CheckResult) -> bool:
    """Return whether a remote value was written since."""
    return found.exists and (not before or found.provider_version not in ("", before))
