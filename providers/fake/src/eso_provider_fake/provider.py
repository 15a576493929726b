"""The fake provider as a whole; `fake_provider` makes one with a world of its own, for tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from eso_provider_fake.kinds import KINDS
from eso_provider_fake.store import FakeStore, World
from eso_sdk.provider import DEFAULT_LIMITS, Maturity, Provider, store_kind

NAME: Final = "fake"
VERSION: Final = "0.1.0"


def fake_provider(world: World, *, max_message_bytes: int = 0) -> Provider:
    """Return a provider whose stores use the values and faults of this world."""

    @store_kind(objects=KINDS, v1_key="fake", concurrency=64)
    class WorldlyStore(FakeStore):
        WORLD = world

    limits = replace(DEFAULT_LIMITS, max_message_bytes=max_message_bytes or DEFAULT_LIMITS.max_message_bytes)
    return Provider(
        name=NAME,
        version=VERSION,
        kinds=(WorldlyStore,),
        maturity=Maturity.STABLE,
        limits=limits,
        before_call=world.before_call,
    )


PROVIDER: Final = fake_provider(World())
