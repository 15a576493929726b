"""One object's templates hold up no other object: bounds for all of them together, and a thread for slow ones."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from eso_api.externalsecret import RemoteRef
from eso_api.rewrite import Rewrite, TransformRewrite
from eso_api.values import SecretBytes
from eso_operator.sync.errors import ShapeError
from eso_operator.sync.shape import shape_fetched
from eso_operator.targets.rendering import PATIENT_SECONDS, QUICK_SECONDS, Budget, Rendering
from eso_render.errors import RenderError
from eso_render.scopes import RenderText

PLAIN = "{{ .a }}"


class Stopwatch:
    """Processor time that passes only while somebody renders: so much whenever it is looked at."""

    def __init__(self, step: float) -> None:
        self.now = 0.0
        self.step = step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def rendering_all(count: int, threads: set[str]) -> Callable[[RenderText], list[bytes]]:
    """Work of so many templates, which notes where it is done."""

    def work(render: RenderText) -> list[bytes]:
        threads.add(threading.current_thread().name)
        return [render(PLAIN, {"a": b"x"}, name="one") for _ in range(count)]

    return work


async def test_what_is_quick_is_done_at_once() -> None:
    threads: set[str] = set()

    made = await Rendering(seconds=Stopwatch(0)).run(rendering_all(100, threads), of="a")

    assert made == [b"x"] * 100
    assert threads == {threading.current_thread().name}


async def test_what_takes_longer_is_done_in_a_thread_and_from_then_on_there_at_once() -> None:
    rendering, threads = Rendering(seconds=Stopwatch(QUICK_SECONDS / 4)), set[str]()

    made = await rendering.run(rendering_all(20, threads), of="a")

    assert made == [b"x"] * 20
    assert len(threads) == 2
    assert threading.current_thread().name in threads
    threads.clear()
    await rendering.run(rendering_all(1, threads), of="a")
    assert len(threads) == 1
    assert threading.current_thread().name not in threads
    threads.clear()
    await rendering.run(rendering_all(1, threads), of="another object")
    assert threads == {threading.current_thread().name}


async def test_slow_objects_have_their_turn_one_after_the_other() -> None:
    rendering, loop_thread = Rendering(seconds=Stopwatch(QUICK_SECONDS / 4)), threading.current_thread()
    story: list[str] = []
    release = threading.Event()

    def working(name: str) -> Callable[[RenderText], None]:
        def work(render: RenderText) -> None:
            if threading.current_thread() is loop_thread:
                rendering_all(20, set())(render)
                return
            story.append(f"{name} begins")
            release.wait(30)
            story.append(f"{name} ends")

        return work

    async with asyncio.TaskGroup() as group:
        for name in ("a", "b", "c"):
            group.create_task(rendering.run(working(name), of=name))
        group.create_task(asyncio.to_thread(release.set))

    assert story == ["a begins", "a ends", "b begins", "b ends", "c begins", "c ends"]


def test_no_thread_is_left_when_the_process_ends() -> None:
    before, threads = set(threading.enumerate()), set[str]()

    asyncio.run(Rendering(seconds=Stopwatch(QUICK_SECONDS / 4)).run(rendering_all(20, threads), of="a"))

    assert len(threads) == 2
    assert set(threading.enumerate()) == before


async def test_templates_that_take_too_long_together_fail_with_what_to_know() -> None:
    rendering = Rendering(seconds=Stopwatch(PATIENT_SECONDS / 8))

    with pytest.raises(RenderError, match="at key one: the templates took longer than 2 seconds"):
        await rendering.run(rendering_all(1000, set()), of="a")


async def test_a_template_that_is_wrong_fails_at_once() -> None:
    threads: set[str] = set()

    def work(render: RenderText) -> bytes:
        threads.add(threading.current_thread().name)
        return render("{{ .nope }}", {}, name="one")

    with pytest.raises(RenderError, match="nope"):
        await Rendering(seconds=Stopwatch(0)).run(work, of="a")

    assert threads == {threading.current_thread().name}


def test_keys_that_are_renamed_share_one_budget() -> None:
    """Each alone would be in time; a hundred thousand of them would take days."""
    step = Rewrite(transform=TransformRewrite(template="{{ .value }}"))
    values = {f"key{number}": SecretBytes(b"x") for number in range(1000)}
    watch = Stopwatch(PATIENT_SECONDS / 100)
    plain: Any = Rendering()._quick

    with pytest.raises(ShapeError, match="took longer than 2 seconds"):
        shape_fetched(values, RemoteRef(key="a"), [step], Budget(plain, PATIENT_SECONDS, watch))

    assert watch.now < 3 * PATIENT_SECONDS


async def test_work_that_names_its_failure_otherwise_gets_its_time_in_a_thread_all_the_same() -> None:
    """Keys of PushSecrets are renamed by templates, and what goes wrong there is an error of the entry."""
    rendering = Rendering(seconds=Stopwatch(QUICK_SECONDS / 4))

    def work(render: RenderText) -> list[bytes]:
        try:
            return rendering_all(20, set())(render)
        except RenderError as problem:
            raise ShapeError(str(problem)) from None

    assert await rendering.run(work, of="a") == [b"x"] * 20
