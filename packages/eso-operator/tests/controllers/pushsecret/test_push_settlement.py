"""The results of a push that is interrupted or comes too late."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from eso_api.pushsecret import PushData, PushSecret
from eso_operator.controllers.pushsecret.ownership import PLACES_INDEX, Claims, Pushes, places_of
from eso_operator.controllers.pushsecret.push import BoundDelivery, StoreResult
from eso_operator.controllers.pushsecret.record import PushSecretRecord, Spot, spot_of
from eso_operator.controllers.pushsecret.removal import Removal, Urgency
from eso_operator.controllers.pushsecret.selection import Delivery
from eso_operator.controllers.pushsecret.snapshot import PushSnapshot, Sources, caller_of
from eso_operator.controllers.pushsecret.sync import Planned, Settlement
from eso_operator.memory import Memory
from eso_testkit.operator.pushsecrets import chosen, push_secret, pushed
from kuberun.cache import Cache

NOW = datetime(2024, 5, 1, tzinfo=UTC)


@dataclass(slots=True)
class Interrupted:
    """A pusher that gets as far as the first store."""

    landed: asyncio.Event = field(default_factory=asyncio.Event)

    async def push(self, way: BoundDelivery) -> StoreResult:
        if way.delivery.store.ref.name == "first":
            way.result.pushed.append(pushed("db"))
            self.landed.set()
            return way.result
        await self.landed.wait()
        raise RuntimeError


class Removing:
    """A remover that always succeeds."""

    async def remove(self, push: PushSecret, entries: Mapping[str, Sequence[PushData]], urgency: Urgency) -> Removal:
        del push, urgency
        return Removal(gone={store: list(map(spot_of, each)) for store, each in entries.items()})


async def test_values_written_by_an_interrupted_push_are_remembered() -> None:
    """Under IfNotExists the value would otherwise count as another owner's forever."""
    push, records, pusher = push_secret(updatePolicy="IfNotExists"), Memory(PushSecretRecord), Interrupted()
    memory = Pushes(records)
    objects: Cache[PushSecret] = Cache({PLACES_INDEX: places_of})
    unused: Any = None
    settlement = Settlement(pusher, unused, memory, Claims(objects, records), unused)  # type: ignore[arg-type]  # a part of a Pusher

    with pytest.raises(ExceptionGroup):
        await settlement.push(
            PushSnapshot(push, NOW, None, (), ()), Sources(()), Planned(_to(push, "first", "second"), {})
        )

    assert memory.unrecorded(push) == {"SecretStore/first": [pushed("db")]}


@pytest.mark.parametrize(("policy", "gone"), [("None", {}), ("Delete", {"SecretStore/first": [Spot("db", "")]})])
async def test_values_pushed_for_an_object_that_went_meanwhile_are_deleted_only_under_policy_delete(
    policy: str, gone: dict[str, list[Spot]]
) -> None:
    push, records = push_secret(deletionPolicy=policy), Memory(PushSecretRecord)
    memory = Pushes(records)
    objects: Cache[PushSecret] = Cache({PLACES_INDEX: places_of})
    unused: Any = None
    settlement = Settlement(Interrupted(), Removing(), memory, Claims(objects, records), unused)  # type: ignore[arg-type]  # parts of them
    memory.wrote(push, {}, {"SecretStore/first": [pushed("db")]})

    astray = settlement.astray(push.key)
    removal = await settlement.undo(push)

    assert astray is (push if gone else None)
    assert removal.gone == gone


def _to(push: PushSecret, *stores: str) -> tuple[BoundDelivery, ...]:
    plain = [Delivery(chosen(name), (), push.spec, caller_of(push)) for name in stores]
    return tuple(BoundDelivery(delivery, StoreResult(delivery.store)) for delivery in plain)
