"""An interval that is too short does not keep the operator busy. In real time, on a live API server."""

import pytest

from eso_testkit.operator.scenes import Scene
from kubebase.clock import SystemClock

pytestmark = [pytest.mark.live, pytest.mark.asyncio(loop_scope="module")]


async def test_an_interval_of_a_millisecond_counts_as_a_second_and_says_so(stage: Scene) -> None:
    stage.backend(db="v1")
    await stage.apply("greedy", {"password": "db"}, refreshInterval="1ms")
    await stage.ready("greedy", "", "secret synced", "refreshInterval 1ms is shorter than this operator allows: 1s is")
    before = stage.reads

    await SystemClock().sleep(4.0)

    assert 1 <= stage.reads - before <= 6
    assert len(stage.api_calls.writes("greedy", "status")) <= 3
