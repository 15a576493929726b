"""The results of a push that fails, is interrupted, or comes too late."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from eso_api.pushsecret import PushSecret
from eso_operator.controllers.pushsecret.controller import PushSecretReconciler
from eso_operator.controllers.pushsecret.ownership import KEYS_INDEX, Owners, Writes, keys_index
from eso_operator.controllers.pushsecret.push import BoundDelivery, StoreResult
from eso_operator.controllers.pushsecret.record import PushSecretRecord, RemoteKey, SyncedEntries
from eso_operator.controllers.pushsecret.removal import Removal
from eso_operator.controllers.pushsecret.selection import Delivery
from eso_operator.controllers.pushsecret.snapshot import caller_of
from eso_operator.controllers.pushsecret.sync import PlannedPush, PushSecretDeps, push_and_remove
from eso_operator.memory import Memory
from eso_testkit.operator.pushsecrets import chosen, push_secret, pushed
from kubebase.meta import ObjectKey
from kuberun.cache import Cache
from kuberun.errors import NotFound

NOW = datetime(2024, 5, 1, tzinfo=UTC)
FIRST = "SecretStore/first"


@dataclass(slots=True)
class Interrupted:
    """A pusher that gets as far as the first store."""

    landed: asyncio.Event = field(default_factory=asyncio.Event)

    async def push(self, prepared: BoundDelivery) -> StoreResult:
        if prepared.delivery.store.ref.name == "first":
            prepared.result.entries.update(pushed("db", store=FIRST))
            self.landed.set()
            return prepared.result
        await self.landed.wait()
        raise RuntimeError


@dataclass(slots=True)
class Removing:
    """A remover that always succeeds."""

    gone: set[RemoteKey] = field(default_factory=set)

    async def remove(self, push: PushSecret, entries: SyncedEntries, *, final: bool) -> Removal:
        del push, final
        self.gone |= entries.keys()
        return Removal(gone=set(entries))


class Deleted:
    """An API server that does not have the object any more."""

    async def get(self, kind: Any, key: ObjectKey) -> Any:
        del kind, key
        raise NotFound(404, "NotFound", "gone")


class Silent:
    """A reporter whose events are not looked at."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def deps(records: Memory[PushSecretRecord], **parts: Any) -> PushSecretDeps:
    objects: Cache[PushSecret] = Cache({KEYS_INDEX: keys_index})
    unused = dict.fromkeys(PushSecretDeps.__dataclass_fields__, Silent())
    made: dict[str, Any] = {"writes": Writes(records), "owners": Owners(objects, records), "memory": records}
    return PushSecretDeps(**{**unused, **made, **parts})


async def test_values_written_by_an_interrupted_push_are_remembered() -> None:
    """Under IfNotExists the value would otherwise count as another owner's forever."""
    push, parts = push_secret(updatePolicy="IfNotExists"), deps(Memory(PushSecretRecord), pusher=Interrupted())

    with pytest.raises(ExceptionGroup):
        await push_and_remove(parts, push, PlannedPush(_to(push, "first", "second"), {}))

    assert parts.writes.unrecorded(push) == pushed("db", store=FIRST)


@pytest.mark.parametrize(("policy", "gone"), [("None", set()), ("Delete", set(pushed("db")))])
async def test_values_pushed_for_an_object_that_went_meanwhile_are_deleted_only_under_policy_delete(
    policy: str, gone: set[RemoteKey]
) -> None:
    push, remover, records = push_secret(deletionPolicy=policy), Removing(), Memory(PushSecretRecord)
    parts = deps(records, remover=remover, client=Deleted())
    parts.writes.wrote(push, {}, pushed("db"))

    await PushSecretReconciler(parts).gone(push.key)

    assert remover.gone == gone
    assert push.key not in records


def _to(push: PushSecret, *stores: str) -> tuple[BoundDelivery, ...]:
    plain = [Delivery(chosen(name), (), push.spec, caller_of(push)) for name in stores]
    return tuple(BoundDelivery(delivery, StoreResult(delivery.store)) for delivery in plain)
