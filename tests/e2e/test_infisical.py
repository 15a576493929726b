"""The whole product on Infisical: the manifests of its guide, and a push."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from eso_api.pushsecret import PUSH_SECRET
from eso_api.secretstore import SECRET_STORE
from eso_provider_infisical.testing.server import MAIN, Identity, InfisicalServer
from eso_testkit.cli.upprocess import UpProcess

pytestmark = pytest.mark.slow

TEAM = "team-infisical"

CLIENT = "11111111-1111-4111-8111-111111111111:only-an-example"


@pytest.fixture(scope="module")
def infisical() -> Iterator[InfisicalServer]:
    with InfisicalServer.started() as running:
        running.logins[CLIENT] = Identity("guide", frozenset({MAIN}))
        yield running


async def test_every_manifest_of_the_guide_works(site: Any, up: UpProcess, infisical: InfisicalServer) -> None:
    project = infisical.project()
    project.put("/app/DB_PASSWORD", "open-sesame-1")
    project.put("/shared/DB", '{"port":5432}')
    await site.namespace(TEAM)

    await site.apply(*site.guide("infisical", TEAM, {"https://app.infisical.com": infisical.url}))

    await site.ready(SECRET_STORE.resource(), "infisical", TEAM)
    await site.secret("database", TEAM, lambda text: text == {"password": "open-sesame-1", "port": "5432"})
    await site.ready(PUSH_SECRET.resource(), "to-infisical", TEAM)
    assert project.find("/app/COPY_OF_PASSWORD") == "open-sesame-1"
    await site.delete(PUSH_SECRET.resource(), "to-infisical", TEAM)

    async def gone() -> bool:
        return project.find("/app/COPY_OF_PASSWORD") is None

    await site.until(gone, "the pushed value is still there")
    assert len(infisical.requests("POST /api/v1/auth/*/login")) == 1
    said = ("open-sesame", "only-an-example", *infisical.tokens)
    assert [word for word in said if word in up.output] == []
