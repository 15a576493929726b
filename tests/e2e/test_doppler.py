"""The whole product on Doppler: the manifests of its guide, and a push."""

from __future__ import annotations

from typing import Any

import pytest

from eso_api.pushsecret import PUSH_SECRET
from eso_api.secretstore import SECRET_STORE
from eso_provider_doppler.testing.server import DopplerServer

pytestmark = pytest.mark.slow

TEAM = "team-doppler"


async def test_every_manifest_of_the_guide_works(site: Any, doppler: DopplerServer) -> None:
    doppler.configs["shop", "prd"] = {"DB_PASSWORD": "first", "DB_LOGIN": '{"user":"anna"}'}
    await site.namespace(TEAM)

    await site.apply(*site.guide("doppler", TEAM, {}))

    await site.ready(SECRET_STORE.resource(), "doppler", TEAM)
    await site.secret("database", TEAM, lambda text: text == {"password": "first", "user": "anna"})
    await site.ready(PUSH_SECRET.resource(), "to-doppler", TEAM)
    assert doppler.configs["shop", "prd"]["COPY_OF_PASSWORD"] == "first"
    await site.delete(PUSH_SECRET.resource(), "to-doppler", TEAM)

    async def gone() -> bool:
        return "COPY_OF_PASSWORD" not in doppler.configs["shop", "prd"]

    await site.until(gone, "the pushed value is still there")
