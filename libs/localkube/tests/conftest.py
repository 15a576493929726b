"""Fixtures of more than one test file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from kubebase.clock import SystemClock
from kuberun.testing.rawapi import RawApi, raw_api
from localkube.cluster import Cluster
from localkube.server import LocalKube
from localkube.testing.verbs import Verbs


@pytest.fixture
async def verbs() -> AsyncIterator[Verbs]:
    """A running cluster in memory, with the verbs to use it."""
    async with Cluster(None, clock=SystemClock()) as cluster:
        verbs = Verbs(cluster)
        await verbs.until_idle()
        yield verbs


@pytest.fixture
async def kube() -> AsyncIterator[LocalKube]:
    """The whole server, in this process."""
    async with LocalKube() as running:
        yield running


@pytest.fixture
async def admin(kube: LocalKube, tmp_path: Path) -> AsyncIterator[RawApi]:
    """Its administrator."""
    authority = tmp_path / "trusted.crt"
    authority.write_bytes(kube.certificates.authority_pem)
    token: str = yaml.safe_load(kube.kubeconfig_text)["users"][0]["user"]["token"]
    async with raw_api(kube.url, token, str(authority)) as client:
        yield client
