"""The whole product on Doppler: the manifests of its guide, and a push."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from eso_api.pushsecret import PUSH_SECRET
from eso_api.secretstore import SECRET_STORE
from eso_cli.testing.upprocess import UpProcess, up_running
from eso_provider_doppler.testing.server import DopplerServer
from kubebase.meta import JsonObject

pytestmark = pytest.mark.slow

GUIDE = Path(__file__).resolve().parents[2] / "docs/guides/providers/doppler.md"
TOKEN = "dp.st.prd.only-an-example"


@pytest.fixture(scope="module")
def doppler() -> Iterator[DopplerServer]:
    with DopplerServer.started(tokens={TOKEN: None}) as running:
        yield running


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory, manifests: Path, doppler: DopplerServer) -> Iterator[UpProcess]:
    """`eso up` with no other flag: the provider starts with the first store, and has the environment of `eso up`."""
    environment = {"DOPPLER_BASE_URL": doppler.url, "ESO_PROVIDER_ALLOW_ADDRESS": "loopback", "NO_PROXY": "127.0.0.1"}
    folder = tmp_path_factory.mktemp("up-doppler")
    with up_running(folder, "--file", str(manifests), environment=environment) as running:
        yield running


def documents() -> list[JsonObject]:
    """Return the manifests of the guide."""
    blocks = GUIDE.read_text(encoding="utf-8").split("```yaml\n")[1:]
    return [one for block in blocks for one in yaml.safe_load_all(block.partition("```")[0])]


async def test_every_manifest_of_the_guide_works(site: Any, doppler: DopplerServer) -> None:
    doppler.configs["shop", "prd"] = {"DB_PASSWORD": "first", "DB_LOGIN": '{"user":"anna"}'}
    await site.namespace("team-a")

    await site.apply(*documents())

    await site.ready(SECRET_STORE.resource(), "doppler", "team-a")
    await site.secret("database", "team-a", lambda text: text == {"password": "first", "user": "anna"})
    await site.ready(PUSH_SECRET.resource(), "to-doppler", "team-a")
    assert doppler.configs["shop", "prd"]["COPY_OF_PASSWORD"] == "first"
    await site.delete(PUSH_SECRET.resource(), "to-doppler", "team-a")

    async def gone() -> bool:
        return "COPY_OF_PASSWORD" not in doppler.configs["shop", "prd"]

    await site.until(gone, "the pushed value is still there")
