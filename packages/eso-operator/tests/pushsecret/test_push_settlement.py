"""What a push that is interrupted, or comes too late, leaves behind."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from eso_api.pushsecret import PushData, PushSecret
from eso_operator.pushsecret.claims import PLACES_INDEX, Claims, places_of
from eso_operator.pushsecret.memory import Memory
from eso_operator.pushsecret.push import BoundDelivery, Delivery, StoreResult
from eso_operator.pushsecret.records import Spot, spot_of
from eso_operator.pushsecret.removal import Removal, Urgency
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


class Removing:
    """A remover that always succeeds."""

    async def remove(self, push: PushSecret, entries: Mapping[str, Sequence[PushData]], urgency: Urgency) -> Removal:
        del push, urgency
        return Removal(gone={store: list(map(spot_of, each)) for store, each in entries.items()})


async def test_what_landed_before_a_push_was_interrupted_is_not_forgotten() -> None:
    """Under IfNotExists it would otherwise be taken for somebody else's ever after."""
    push, memory, pusher = push_secret(updatePolicy="IfNotExists"), Memory(), Interrupted()
    objects: Store[PushSecret] = Store({PLACES_INDEX: places_of})
    nobody: Any = None
    settlement = Settlement(pusher, nobody, memory, Claims(objects))  # type: ignore[arg-type]  # a part of a Pusher

    with pytest.raises(ExceptionGroup):
        await settlement.push(Snapshot(push, NOW, None, (), ()), Sources(()), Planned(_to(push, "first", "second"), {}))

    assert memory.unrecorded(push) == {"SecretStore/first": [pushed("db")]}


@pytest.mark.parametrize(("policy", "gone"), [("None", {}), ("Delete", {"SecretStore/first": [Spot("db", "")]})])
async def test_what_was_pushed_for_an_object_that_went_meanwhile_goes_only_where_the_policy_is_delete(
    policy: str, gone: dict[str, list[Spot]]
) -> None:
    push, memory = push_secret(deletionPolicy=policy), Memory()
    objects: Store[PushSecret] = Store({PLACES_INDEX: places_of})
    settlement = Settlement(Interrupted(), Removing(), memory, Claims(objects))  # type: ignore[arg-type]  # parts of them
    memory.wrote(push, {}, {"SecretStore/first": [pushed("db")]})

    astray = settlement.astray(push.key)
    removal = await settlement.undo(push)

    assert astray is (push if gone else None)
    assert removal.gone == gone


def _to(push: PushSecret, *stores: str) -> tuple[BoundDelivery, ...]:
    plain = [Delivery(chosen(name), (), push.spec, caller_of(push)) for name in stores]
    return tuple(BoundDelivery(delivery, StoreResult(delivery.store)) for delivery in plain)
