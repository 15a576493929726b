"""The whole product on Akeyless: the manifests of its guide, and a push."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from eso_api.pushsecret import PUSH_SECRET
from eso_api.secretstore import SECRET_STORE
from eso_provider_akeyless.testing.server import AkeylessServer, Identity

pytestmark = pytest.mark.slow

TEAM = "team-akeyless"


@pytest.fixture(scope="module")
def akeyless() -> Iterator[AkeylessServer]:
    with AkeylessServer.started(identities={"p-only-an-example": Identity("only-an-example")}) as running:
        yield running


async def test_every_manifest_of_the_guide_works(site: Any, akeyless: AkeylessServer) -> None:
    akeyless.put("/shop/db-password", "first")
    akeyless.put("/shop/db-login", '{"user":"anna"}')
    await site.namespace(TEAM)

    await site.apply(*site.guide("akeyless", TEAM, {"https://api.akeyless.io": akeyless.url}))

    await site.ready(SECRET_STORE.resource(), "akeyless", TEAM)
    await site.secret("database", TEAM, lambda text: text == {"password": "first", "user": "anna"})
    await site.ready(PUSH_SECRET.resource(), "to-akeyless", TEAM)
    copy = akeyless.items["/shop/copy-of-password"]
    assert (copy.versions, copy.tags) == (["first"], ["k8s-external-secrets"])
    await site.delete(PUSH_SECRET.resource(), "to-akeyless", TEAM)

    async def gone() -> bool:
        return "/shop/copy-of-password" not in akeyless.items

    await site.until(gone, "the pushed value is still there")
    assert len(akeyless.commands("auth")) == 1
