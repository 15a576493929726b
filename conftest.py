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
    """Collect tests without the garbage collector: they live as long as the run, and it would visit them all often."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()  # from here on they count as old objects, which it visits rarely
