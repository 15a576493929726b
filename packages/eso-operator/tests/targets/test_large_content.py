"""Large content is hashed beside the loop, small content on it."""

from __future__ import annotations

import threading

import pytest

from eso_operator.targets.secret import LARGE, LargeContent


@pytest.mark.parametrize(
    ("size", "here"),
    [pytest.param(LARGE - 1, True, id="small content: here"), pytest.param(LARGE, False, id="large content: aside")],
)
async def test_the_size_of_the_content_decides_where_the_work_is_done(size: int, here: bool) -> None:
    thread = await LargeContent().run_in_thread(size, threading.current_thread)

    assert (thread is threading.current_thread()) is here


async def test_an_error_beside_the_loop_is_raised_to_the_caller() -> None:
    def fail() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await LargeContent().run_in_thread(LARGE, fail)
