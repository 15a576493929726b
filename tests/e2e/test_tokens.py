"""The generators of the provider `tokens` in the whole product: a Grafana token lives as long as its user."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_provider_tokens.testing.servers import GrafanaServer

pytestmark = pytest.mark.slow

TEAM = "team-tokens"


@pytest.fixture(scope="module")
def grafana() -> Iterator[GrafanaServer]:
    with GrafanaServer.started() as running:
        yield running


async def test_every_manifest_of_the_guide_is_accepted_and_grafana_keeps_no_token_without_a_user(
    site: Any, grafana: GrafanaServer
) -> None:
    await site.namespace(TEAM)

    await site.apply(*site.guide("tokens", TEAM, {"https://grafana.example.com": grafana.url}))

    made = await site.secret("dashboards", TEAM, lambda text: text.keys() == {"login", "token"})
    assert made["text"]["login"] == "sa-dashboards"
    assert [len(names) for names in grafana.tokens.values()] == [1]
    await site.delete(EXTERNAL_SECRET.resource(), "dashboards", TEAM)

    async def gone() -> bool:
        return not any(grafana.tokens.values())

    await site.until(gone, "the token of Grafana is still there")
