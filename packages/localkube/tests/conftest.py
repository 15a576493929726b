"""Fixtures of more than one test file."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from kuberun.clock import SystemClock
from localkube.cluster import Cluster
from localkube.testing.verbs import Verbs


@pytest.fixture
async def verbs() -> AsyncIterator[Verbs]:
    """A running cluster in memory, with the verbs to use it."""
    async with Cluster(None, clock=SystemClock()) as cluster:
        verbs = Verbs(cluster)
        await verbs.until_idle()
        yield verbs
