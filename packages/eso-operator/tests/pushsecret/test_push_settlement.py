"""What a push that is interrupted leaves behind."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from eso_api.pushsecret import PushSecret
from eso_operator.pushsecret.claims import PLACES_INDEX, Claims, places_of
from eso_operator.pushsecret.memory import Memory
from eso_operator.pushsecret.push import BoundDelivery, Delivery, StoreResult
from eso_operator.pushsecret.settlement import Planned, Settlement
from eso_operator.pushsecret.snapshot import Snapshot
from eso_operator.pushsecret.sources import Sources, caller_of
from eso_operator.testing.pushsecrets import chosen, push_secret, pushed
from kuberun.cache import Store

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


async def test_what_landed_before_a_push_was_interrupted_is_not_forgotten() -> None:
    """Under IfNotExists it would otherwise be taken for somebody else's ever after."""
    push, memory, pusher = push_secret(updatePolicy="IfNotExists"), Memory(), Interrupted()
    objects: Store[PushSecret] = Store({PLACES_INDEX: places_of})
    nobody: Any = None
    settlement = Settlement(pusher, nobody, memory, Claims(objects))  # type: ignore[arg-type]  # a part of a Pusher

    with pytest.raises(ExceptionGroup):
        await settlement.push(Snapshot(push, NOW, None, (), ()), Sources(()), Planned(_to(push, "first", "second"), {}))

    assert memory.unrecorded(push) == {"SecretStore/first": [pushed("db")]}


def _to(push: PushSecret, *stores: str) -> tuple[BoundDelivery, ...]:
    plain = [Delivery(chosen(name), (), push.spec, caller_of(push), "") for name in stores]
    return tuple(BoundDelivery(delivery, StoreResult(delivery.store)) for delivery in plain)
