"""The generators of the provider `tokens` in the whole product: a Grafana token lives as long as its user."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_cli.testing.upprocess import UpProcess, up_running
from eso_provider_tokens.testing.servers import GrafanaServer
from kubebase.meta import JsonObject

pytestmark = pytest.mark.slow

GUIDE = Path(__file__).resolve().parents[2] / "docs/guides/providers/tokens.md"


@pytest.fixture(scope="module")
def grafana() -> Iterator[GrafanaServer]:
    with GrafanaServer.started() as running:
        yield running


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory, manifests: Path) -> Iterator[UpProcess]:
    environment = {"ESO_PROVIDER_ALLOW_ADDRESS": "loopback", "NO_PROXY": "127.0.0.1"}
    with up_running(tmp_path_factory.mktemp("up-tokens"), "--file", str(manifests), environment=environment) as running:
        yield running


def documents(url: str) -> list[JsonObject]:
    """Return the manifests of the guide, with Grafana at this address."""
    blocks = GUIDE.read_text(encoding="utf-8").replace("https://grafana.example.com", url).split("```yaml\n")[1:]
    return [one for block in blocks for one in yaml.safe_load_all(block.partition("```")[0])]


async def test_every_manifest_of_the_guide_is_accepted_and_grafana_keeps_no_token_without_a_user(
    site: Any, grafana: GrafanaServer
) -> None:
    await site.namespace("team-a")

    await site.apply(*documents(grafana.url))

    made = await site.secret("dashboards", "team-a", lambda text: text.keys() == {"login", "token"})
    assert made["text"]["login"] == "sa-dashboards"
    assert [len(names) for names in grafana.tokens.values()] == [1]
    await site.delete(EXTERNAL_SECRET.resource(), "dashboards", "team-a")

    async def gone() -> bool:
        return not any(grafana.tokens.values())

    await site.until(gone, "the token of Grafana is still there")
