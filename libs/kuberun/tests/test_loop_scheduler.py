"""Namespaces share the loop's time: a busy namespace leaves the others their turns."""

from __future__ import annotations

import asyncio

import pytest

from kuberun.loopscheduler import SLICE, LoopScheduler, scheduler_of


class Steps:
    """Work whose steps take a time that the test decides, with a record of who ran them."""

    def __init__(self) -> None:
        self.now = 0.0
        self.done: list[str] = []
        self.scheduler = LoopScheduler(lambda: self.now)

    async def work(self, share: str, steps: int, seconds: float) -> None:
        for _ in range(steps):
            self.now += seconds
            self.done.append(share)
            await asyncio.sleep(0)

    def begin(self, share: str, *, tasks: int = 1, steps: int, seconds: float = 2 * SLICE) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(self.scheduler.take(share, self.work(share, steps, seconds))) for _ in range(tasks)]

    def begin_urgent(self, share: str, *, steps: int) -> asyncio.Task[None]:
        work = self.work(share, steps, SLICE / 10)
        return asyncio.create_task(self.scheduler.take(share, work, urgent=True))


async def test_a_neighbour_waits_for_a_step_or_two_of_a_crowd_and_not_for_all_of_it() -> None:
    steps = Steps()
    crowd = steps.begin("crowd", tasks=50, steps=20)
    await asyncio.sleep(0)  # the crowd starts first

    await asyncio.gather(*steps.begin("neighbour", steps=10, seconds=SLICE / 10))

    between = steps.done[steps.done.index("neighbour") :].count("crowd")
    await asyncio.gather(*crowd)
    assert between <= 20, "nine rounds of the whole crowd would be 450 steps"
    assert steps.done.count("crowd") == 1000


async def test_urgent_work_does_not_wait_for_a_round_of_many_namespaces() -> None:
    """No single namespace is above its share, so none would wait without the urgent work."""
    steps = Steps()
    others = [task for number in range(50) for task in steps.begin(f"team-{number}", steps=20)]
    await asyncio.sleep(0)  # they start first

    await steps.begin_urgent("new", steps=10)

    between = steps.done[steps.done.index("new") :]
    await asyncio.gather(*others)
    assert len(between) - between.count("new") <= 70, "nine rounds of all of them would be 450 steps"
    assert len(between) > between.count("new"), "they go on meanwhile"
    assert len(steps.done) == 1010


async def test_urgent_work_without_end_leaves_the_others_their_turns() -> None:
    steps = Steps()
    urgent = steps.begin_urgent("new", steps=10_000)

    await asyncio.gather(*steps.begin("a", tasks=5, steps=5), *steps.begin("b", tasks=5, steps=5))

    assert not urgent.done()
    urgent.cancel()


async def test_a_namespace_that_is_alone_never_waits() -> None:
    steps = Steps()

    await asyncio.gather(*steps.begin("only", tasks=5, steps=3))

    assert steps.scheduler.wait_for("only") is None
    assert len(steps.done) == 15


async def test_namespaces_that_use_the_same_are_served_alike() -> None:
    steps = Steps()
    both = steps.begin("a", tasks=10, steps=10) + steps.begin("b", tasks=10, steps=10)
    await asyncio.gather(*both)

    assert 30 <= steps.done[:100].count("a") <= 70


async def test_results_and_errors_pass_and_a_cancelled_task_gives_up_its_place() -> None:
    steps = Steps()
    crowd = steps.begin("crowd", tasks=3, steps=50)
    await asyncio.gather(*steps.begin("neighbour", steps=2, seconds=SLICE / 10))

    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await steps.scheduler.take("crowd", fail())
    crowd[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await crowd[0]
    await asyncio.gather(*crowd[1:])


async def test_work_can_catch_its_cancellation_and_finish() -> None:
    begun = asyncio.Event()

    async def careful() -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            return "put away"
        return "not cancelled"

    task = asyncio.create_task(scheduler_of(asyncio.get_running_loop()).take("a", careful()))
    await begun.wait()
    task.cancel()

    assert await task == "put away"


async def test_all_controllers_of_a_loop_share_its_turns() -> None:
    loop = asyncio.get_running_loop()

    assert scheduler_of(loop) is scheduler_of(loop)
