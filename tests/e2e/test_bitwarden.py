"""The whole product on Bitwarden, behind a companion server: the manifests of its guide, and a push."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from eso_api.pushsecret import PUSH_SECRET
from eso_api.secretstore import SECRET_STORE
from eso_cli.testing.upprocess import UpProcess, up_running
from eso_provider_bitwarden.testing.server import OTHER, PROJECT, CompanionServer
from kubebase.meta import JsonObject

pytestmark = pytest.mark.slow

GUIDE = Path(__file__).resolve().parents[2] / "docs/guides/providers/bitwarden.md"
TOKEN = "0.4bdb2ab9-5d0f-4d2a-9d0c-0b1a8b1fa8d9.only-an-example:c2lnbmVk"


@pytest.fixture(scope="module")
def bitwarden() -> Iterator[CompanionServer]:
    with CompanionServer.started(tokens={TOKEN: frozenset({PROJECT, OTHER})}) as running:
        yield running


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory, manifests: Path) -> Iterator[UpProcess]:
    """`eso up` with no other flag: the provider starts with the first store, and has the environment of `eso up`."""
    environment = {"ESO_PROVIDER_ALLOW_ADDRESS": "loopback", "NO_PROXY": "127.0.0.1"}
    folder = tmp_path_factory.mktemp("up-bitwarden")
    with up_running(folder, "--file", str(manifests), environment=environment) as running:
        yield running


def documents(url: str) -> list[JsonObject]:
    """Return the manifests of the guide, with the address of the server that stands in."""
    text = GUIDE.read_text(encoding="utf-8").replace("https://bitwarden-sdk-server.bitwarden.svc:9998", url)
    blocks = text.split("```yaml\n")[1:]
    return [one for block in blocks for one in yaml.safe_load_all(block.partition("```")[0])]


async def test_every_manifest_of_the_guide_works(site: Any, up: UpProcess, bitwarden: CompanionServer) -> None:
    bitwarden.put("db-password", "open-sesame-1")
    bitwarden.put("db-password", "of another project", project=OTHER)
    await site.namespace("team-a")

    await site.apply(*documents(bitwarden.url))

    await site.ready(SECRET_STORE.resource(), "bitwarden", "team-a")
    await site.secret("database", "team-a", lambda text: text == {"password": "open-sesame-1"})
    await site.ready(PUSH_SECRET.resource(), "to-bitwarden", "team-a")
    assert bitwarden.values("copy-of-password") == ["open-sesame-1"]
    await site.delete(PUSH_SECRET.resource(), "to-bitwarden", "team-a")

    async def gone() -> bool:
        return not bitwarden.values("copy-of-password")

    await site.until(gone, "the pushed value is still there")
    assert [word for word in ("open-sesame", "only-an-example") if word in up.output] == []
