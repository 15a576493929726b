"""Pushes of generated values that are interrupted: by a status that cannot be written, or by the end of the process.

Generated values cannot be read again. Before the first of them is pushed, the status records that the push begins, and
the version of each remote value, or that there is none. A process that finds such a record asks the backend: if every
remote value is a new one, the push arrived, and only the status is missing. If not, values are generated again.

A push is recorded only if that can be found out: the provider says whether a value exists, and has versions of values
that exist. Under IfNotExists there is no record, because a pushed value is never replaced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from eso_api.pushsecret import PendingPush, PushData, PushSecret
from eso_operator.controllers.outcomes import Step
from eso_operator.controllers.pushsecret.push import DELETE, IF_NOT_EXISTS, Pusher, failure_of
from eso_operator.controllers.pushsecret.record import (
    LastPush,
    Learned,
    Pushed,
    PushSecretRecord,
    Records,
    Unreported,
    entry_key,
    spot_of,
)
from eso_operator.controllers.pushsecret.selection import Delivery
from eso_operator.controllers.pushsecret.snapshot import (
    Chosen,
    NoChoice,
    PushSnapshot,
    Sources,
    caller_of,
    current_version,
)
from eso_operator.controllers.pushsecret.status import Failed, Synced
from eso_operator.controllers.pushsecret.sync import Planned
from eso_operator.controllers.refresh import moment
from eso_operator.generators.ledger import RecordedStates
from eso_operator.memory import Memory
from eso_operator.stores.resolved import ResolutionError
from eso_wire.errors import ProviderError
from eso_wire.values import CheckResult, RemoteRef
from kubebase.clock import rfc3339


@dataclass(frozen=True, slots=True)
class Finished:
    """An interrupted push whose values all arrived."""

    outcome: Synced
    at: datetime
    states: Sequence[str] | None = None
    """The names of their GeneratorStates, if the older ones may not have a deadline yet."""


class PendingPushes:
    """Records pushes that begin, and finds out whether they arrived. The process has one."""

    def __init__(self, pusher: Pusher, memory: Memory[PushSecretRecord]) -> None:
        self._pusher = pusher
        self._memory = memory

    async def begin(
        self, snapshot: PushSnapshot, sources: Sources, planned: Planned, kept: RecordedStates
    ) -> PendingPush | None:
        """Return the record of a push that begins; None if it could not be found out later whether it arrived."""
        push, within = snapshot.push, sources.renew_within
        if not sources.made or push.spec.update_policy == IF_NOT_EXISTS:
            return None
        before: dict[str, dict[str, str]] = {}
        for each in planned.deliveries:
            versions = None
            if each.bound is not None:
                versions = await self._versions(each.delivery, planned.ours.get(each.delivery.store.key, ()))
            if versions is None:
                return None
            before[each.delivery.store.key] = versions
        return PendingPush(
            time=rfc3339(snapshot.now),
            renew_time=None if within is None else rfc3339(snapshot.now + timedelta(seconds=within)),
            synced_resource_version=current_version(push),
            before=before,
            states=[state.name for state in kept.new],
        )

    async def finish(self, snapshot: PushSnapshot) -> Finished | Failed | None:
        """Return the outcome of an interrupted push whose values arrived; None if there is none.

        As long as the backend cannot be asked, that is a failure: new values could replace those that arrived.
        """
        push, pending = snapshot.push, snapshot.push.status.pending_push
        known = self._memory.known(push.key, push.metadata.uid)
        left = None if known is None else known.unreported
        if left is not None and left.generation == push.metadata.generation:
            return _finished(left.records, left.learned)
        if pending is None or isinstance(snapshot.stores, NoChoice) or not _is_pending(push, pending):
            return None
        at = moment(pending.time)
        if at is None or set(pending.before) != {store.key for store in snapshot.stores}:
            return None
        records: dict[str, list[Pushed]] = {}
        for store in snapshot.stores:
            try:
                arrived = await self._arrived(push, store, pending.before[store.key])
            except (ResolutionError, ProviderError) as error:
                return Failed(Step.PUSH, (failure_of("spec.secretStoreRefs", "", str(store), error),))
            if arrived is None:
                return None
            records[store.key] = arrived
        version, renew_at = pending.synced_resource_version, moment(pending.renew_time)
        last = LastPush(at, version, sources=frozenset(), stores=snapshot.store_marks, renew_at=renew_at)
        return replace(_finished(records, Learned(last, {})), states=pending.states)

    def not_reported(self, push: PushSecret, outcome: Synced) -> None:
        """Remember a successful push of generated values whose status could not be written."""
        if outcome.learned is not None and push.spec.selector.generator_ref is not None:
            left = Unreported(push.metadata.generation, outcome.records, outcome.learned)
            self._memory.of(push.key, push.metadata.uid).unreported = left

    def reported(self, push: PushSecret) -> None:
        if (known := self._memory.known(push.key, push.metadata.uid)) is not None:
            known.unreported = None

    async def _versions(self, delivery: Delivery, ours: Sequence[Pushed]) -> dict[str, str] | None:
        """Return the version of each remote value before a push; None if one of them is unknown."""
        known = {spot_of(each.data): each.version for each in ours}
        wanted = {entry_key(entry.data): entry for entry in delivery.entries}
        if len(wanted) != len(delivery.entries):
            return None
        versions = {key: known[spot_of(entry.data)] for key, entry in wanted.items() if spot_of(entry.data) in known}
        new = {key: entry.remote for key, entry in wanted.items() if key not in versions}
        if not all(versions.values()):
            return None
        try:
            found = await self._pusher.exist(delivery.store, delivery.caller, new) if new else {}
        except (ResolutionError, ProviderError):
            return None
        if found.keys() != new.keys() or any(each.exists and not each.provider_version for each in found.values()):
            return None
        return versions | {key: each.provider_version if each.exists else "" for key, each in found.items()}

    async def _arrived(self, push: PushSecret, store: Chosen, before: Mapping[str, str]) -> list[Pushed] | None:
        """Return the entries of one store; None if one of them did not arrive. Raises as `Pusher.exist`."""
        entries = push.status.synced_push_secrets.get(store.key, {})
        if not before.keys() <= entries.keys():
            return None
        found = await self._pusher.exist(store, caller_of(push), {key: _remote(entries[key]) for key in before})
        if any(key not in found or not _is_new(version, found[key]) for key, version in before.items()):
            return None
        return [Pushed(entries[key], found[key].provider_version) for key in before]


def _finished(records: Records, learned: Learned) -> Finished:
    at, renew_at = learned.last.at, learned.last.renew_at
    within = None if renew_at is None else (renew_at - at).total_seconds()
    return Finished(Synced(records, wrote=True, renew_within=within, learned=learned), at)


def _is_pending(push: PushSecret, pending: PendingPush) -> bool:
    """Return whether the record is about the object as it is, and nothing else is left to do."""
    recorded = {(store, key) for store, entries in push.status.synced_push_secrets.items() for key in entries}
    wanted = {(store, key) for store, entries in pending.before.items() for key in entries}
    stale = push.spec.deletion_policy == DELETE and bool(recorded - wanted)
    return pending.synced_resource_version == current_version(push) and bool(wanted) and not stale


def _is_new(before: str, found: CheckResult) -> bool:
    """Return whether a remote value was written since."""
    return found.exists and (not before or found.provider_version not in ("", before))


def _remote(data: PushData) -> RemoteRef:
    ref = data.match.remote_ref
    return RemoteRef(ref.remote_key, property=ref.property)
