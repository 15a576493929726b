"""The whole product on Infisical: the manifests of its guide, and a push."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from eso_api.pushsecret import PUSH_SECRET
from eso_api.secretstore import SECRET_STORE
from eso_cli.testing.upprocess import UpProcess, up_running
from eso_provider_infisical.testing.model import Identity
from eso_provider_infisical.testing.server import MAIN, InfisicalServer
from kubebase.meta import JsonObject

pytestmark = pytest.mark.slow

GUIDE = Path(__file__).resolve().parents[2] / "docs/guides/providers/infisical.md"
CLIENT = "11111111-1111-4111-8111-111111111111:only-an-example"


@pytest.fixture(scope="module")
def infisical() -> Iterator[InfisicalServer]:
    with InfisicalServer.started() as running:
        running.logins[CLIENT] = Identity("guide", frozenset({MAIN}))
        yield running


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory, manifests: Path) -> Iterator[UpProcess]:
    """`eso up` with no other flag: the provider starts with the first store, and has the environment of `eso up`."""
    environment = {"ESO_PROVIDER_ALLOW_ADDRESS": "loopback", "NO_PROXY": "127.0.0.1"}
    folder = tmp_path_factory.mktemp("up-infisical")
    with up_running(folder, "--file", str(manifests), environment=environment) as running:
        yield running


def documents(url: str) -> list[JsonObject]:
    """Return the manifests of the guide, with the address of the server that stands in."""
    text = GUIDE.read_text(encoding="utf-8").replace("https://app.infisical.com", url)
    blocks = text.split("```yaml\n")[1:]
    return [one for block in blocks for one in yaml.safe_load_all(block.partition("```")[0])]


async def test_every_manifest_of_the_guide_works(site: Any, up: UpProcess, infisical: InfisicalServer) -> None:
    project = infisical.project()
    project.put("/app/DB_PASSWORD", "open-sesame-1")
    project.put("/shared/DB", '{"port":5432}')
    await site.namespace("team-a")

    await site.apply(*documents(infisical.url))

    await site.ready(SECRET_STORE.resource(), "infisical", "team-a")
    await site.secret("database", "team-a", lambda text: text == {"password": "open-sesame-1", "port": "5432"})
    await site.ready(PUSH_SECRET.resource(), "to-infisical", "team-a")
    assert project.find("/app/COPY_OF_PASSWORD") == "open-sesame-1"
    await site.delete(PUSH_SECRET.resource(), "to-infisical", "team-a")

    async def gone() -> bool:
        return project.find("/app/COPY_OF_PASSWORD") is None

    await site.until(gone, "the pushed value is still there")
    assert len(infisical.asked("POST /api/v1/auth/*/login")) == 1
    said = ("open-sesame", "only-an-example", *infisical.tokens)
    assert [word for word in said if word in up.output] == []
