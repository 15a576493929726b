"""Settings of every test run: API servers for live tests (`--apiserver`), property tests without a clock."""

import gc
from collections.abc import Generator

import pytest
from hypothesis import settings

pytest_plugins = ["kuberun.testing.plugin"]

settings.register_profile("shared-machine", deadline=None)  # how long an example takes says nothing on a busy machine
settings.load_profile("shared-machine")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the collected tests out of the garbage collector, which would visit them all: they live as long as the run.

    It also looks for garbage less often: reference counts free nearly everything that a test leaves.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(10_000, 10, 10)
        gc.enable()
