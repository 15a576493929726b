"""The whole product on GitLab: every manifest of the guide, a denial in a condition, and the clean-up of a token."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.secretstore import SECRET_STORE
from eso_provider_gitlab.testing.server import GUEST, TOKEN, GitLabServer
from eso_testkit.cli.upprocess import UpProcess

pytestmark = pytest.mark.slow

TEAM = "team-gitlab"
EXTERNAL_SECRETS, STORES = EXTERNAL_SECRET.resource(), SECRET_STORE.resource()


@pytest.fixture(scope="module")
def gitlab() -> Iterator[GitLabServer]:
    with GitLabServer.started() as server:
        project = server.project("shop/app", "shop")
        project.put("DB_PASSWORD", "for all")
        project.put("DB_PASSWORD", "open sesame", "production")
        project.put("DB_LOGIN", '{"user":"anna"}')
        server.group("shop").put("REGION", "eu")
        server.access["guest"] = {"shop/app": GUEST}
        yield server


def words(gitlab: GitLabServer, token: str = TOKEN) -> dict[str, str]:
    """Return what replaces words of the guide: the server and a token of the test."""
    return {"https://gitlab.example.com": gitlab.url, "only-an-example": token}


async def test_every_manifest_of_the_guide_works(site: Any, up: UpProcess, gitlab: GitLabServer) -> None:
    await site.namespace(TEAM)

    await site.apply(*site.guide("gitlab", TEAM, words(gitlab)))

    await site.ready(STORES, "gitlab", TEAM)
    await site.secret("database", TEAM, lambda text: text == {"password": "open sesame", "user": "anna"})
    await site.secret("direct", TEAM, lambda text: text == {"region": "eu"})
    await site.secret("everything", TEAM, lambda text: text.keys() == {"DB_PASSWORD", "DB_LOGIN"})
    await site.secret("pull", TEAM, lambda text: text.keys() == {"username", "token"})
    assert [made["name"] for made in gitlab.project().tokens.values()] == ["pulled-by-the-cluster"]

    await site.delete(EXTERNAL_SECRETS, "pull", TEAM)

    async def deleted() -> bool:
        return not gitlab.project().tokens

    await site.until(deleted, "the deploy token is still there")
    assert [word for word in (TOKEN, "open sesame", "gldt-") if word in up.output] == []


async def test_a_condition_names_project_and_role_and_no_token(site: Any, gitlab: GitLabServer) -> None:
    team = await site.namespace("team-guest")
    secret, store, external = site.guide("gitlab", team, words(gitlab, "guest"))[:3]
    await site.apply(secret, store, external)

    async def look() -> str | None:
        found = await site.find(STORES, "gitlab", team) or {}
        messages = [one["message"] for one in found.get("status", {}).get("conditions", ()) if one["status"] == "False"]
        return next((message for message in messages if "denies access" in message), None)

    message = await site.until(look, "no condition reports the denial")
    assert 'project "shop/app" denies access; the access token needs the scope read_api' in message
