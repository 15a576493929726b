"""The whole product on Bitwarden, behind a companion server: the manifests of its guide, and a push."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from eso_api.pushsecret import PUSH_SECRET
from eso_api.secretstore import SECRET_STORE
from eso_provider_bitwarden.testing.server import OTHER, PROJECT, CompanionServer
from eso_testkit.cli.upprocess import UpProcess

pytestmark = pytest.mark.slow

TEAM = "team-bitwarden"

TOKEN = "0.4bdb2ab9-5d0f-4d2a-9d0c-0b1a8b1fa8d9.only-an-example:c2lnbmVk"


@pytest.fixture(scope="module")
def bitwarden() -> Iterator[CompanionServer]:
    with CompanionServer.started(tokens={TOKEN: frozenset({PROJECT, OTHER})}) as running:
        yield running


async def test_every_manifest_of_the_guide_works(site: Any, up: UpProcess, bitwarden: CompanionServer) -> None:
    bitwarden.put("db-password", "open-sesame-1")
    bitwarden.put("db-password", "of another project", project=OTHER)
    await site.namespace(TEAM)

    words = {"https://bitwarden-sdk-server.bitwarden.svc:9998": bitwarden.url}
    await site.apply(*site.guide("bitwarden", TEAM, words))

    await site.ready(SECRET_STORE.resource(), "bitwarden", TEAM)
    await site.secret("database", TEAM, lambda text: text == {"password": "open-sesame-1"})
    await site.ready(PUSH_SECRET.resource(), "to-bitwarden", TEAM)
    assert bitwarden.values("copy-of-password") == ["open-sesame-1"]
    await site.delete(PUSH_SECRET.resource(), "to-bitwarden", TEAM)

    async def gone() -> bool:
        return not bitwarden.values("copy-of-password")

    await site.until(gone, "the pushed value is still there")
    assert [word for word in ("open-sesame", "only-an-example") if word in up.output] == []
