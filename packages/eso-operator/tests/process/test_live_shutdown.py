"""An operator that ends while a provider keeps it waiting."""

import asyncio

import pytest

from eso_operator.providers.batching import ReadBatcher
from eso_testkit.operator.operators import Bench
from eso_testkit.operator.scenes import scene

pytestmark = pytest.mark.live


async def test_nothing_of_a_read_that_hangs_is_left_when_the_operator_has_ended(bench: Bench) -> None:
    """Nor is it waited for: the provider never answers."""
    async with scene(bench, {"db": "v1"}) as stage:
        stage.provider.hangs = True
        await stage.apply("db", {"password": "db"})
        async with asyncio.timeout(30):
            await stage.provider.until_called("GetSecrets")
        during = reads_under_way()
        stage.operator.manager.stop()  # the second time, when the block ends, it drains no longer

    assert during
    assert not reads_under_way()


def reads_under_way() -> list[str]:
    """Return the tasks of the planner."""
    names = [getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks()]
    return [name for name in names if name.startswith(f"{ReadBatcher.__name__}.")]
