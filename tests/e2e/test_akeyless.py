"""The whole product on Akeyless: the manifests of its guide, and a push."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from eso_api.pushsecret import PUSH_SECRET
from eso_api.secretstore import SECRET_STORE
from eso_cli.testing.upprocess import UpProcess, up_running
from eso_provider_akeyless.testing.server import AkeylessServer, Identity
from kubebase.meta import JsonObject

pytestmark = pytest.mark.slow

GUIDE = Path(__file__).resolve().parents[2] / "docs/guides/providers/akeyless.md"


@pytest.fixture(scope="module")
def akeyless() -> Iterator[AkeylessServer]:
    with AkeylessServer.started(identities={"p-only-an-example": Identity("only-an-example")}) as running:
        yield running


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory, manifests: Path) -> Iterator[UpProcess]:
    """`eso up` with no other flag: the provider starts with the first store, and has the environment of `eso up`."""
    environment = {"ESO_PROVIDER_ALLOW_ADDRESS": "loopback", "NO_PROXY": "127.0.0.1"}
    folder = tmp_path_factory.mktemp("up-akeyless")
    with up_running(folder, "--file", str(manifests), environment=environment) as running:
        yield running


def documents(url: str) -> list[JsonObject]:
    """Return the manifests of the guide, with the address of the server that stands in."""
    blocks = GUIDE.read_text(encoding="utf-8").replace("https://api.akeyless.io", url).split("```yaml\n")[1:]
    return [one for block in blocks for one in yaml.safe_load_all(block.partition("```")[0])]


async def test_every_manifest_of_the_guide_works(site: Any, akeyless: AkeylessServer) -> None:
    akeyless.put("/shop/db-password", "first")
    akeyless.put("/shop/db-login", '{"user":"anna"}')
    await site.namespace("team-a")

    await site.apply(*documents(akeyless.url))

    await site.ready(SECRET_STORE.resource(), "akeyless", "team-a")
    await site.secret("database", "team-a", lambda text: text == {"password": "first", "user": "anna"})
    await site.ready(PUSH_SECRET.resource(), "to-akeyless", "team-a")
    copy = akeyless.items["/shop/copy-of-password"]
    assert (copy.versions, copy.tags) == (["first"], ["k8s-external-secrets"])
    await site.delete(PUSH_SECRET.resource(), "to-akeyless", "team-a")

    async def gone() -> bool:
        return "/shop/copy-of-password" not in akeyless.items

    await site.until(gone, "the pushed value is still there")
    assert len(akeyless.commands("auth")) == 1
