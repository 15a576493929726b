"""The whole product on GitHub: every manifest of the guide, unchanged values that are not written again, clean-up."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.pushsecret import PUSH_SECRET
from eso_api.secretstore import SECRET_STORE
from eso_provider_github.testing.server import KEY, REPOSITORY, GitHubServer
from eso_testkit.cli.upprocess import UpProcess

pytestmark = pytest.mark.slow

TEAM = "team-github"
EXTERNAL_SECRETS, PUSH_SECRETS, STORES = EXTERNAL_SECRET.resource(), PUSH_SECRET.resource(), SECRET_STORE.resource()


@pytest.fixture(scope="module")
def github() -> Iterator[GitHubServer]:
    with GitHubServer.started() as server:
        server.reset()
        yield server


async def test_every_manifest_of_the_guide_works(site: Any, github: GitHubServer) -> None:
    await site.namespace(TEAM)

    words = {"https://github.example.com": github.url, "only-an-example": json.dumps(KEY)}
    await site.apply(*site.guide("github", TEAM, words))

    await site.ready(STORES, "github", TEAM)
    for name in ("database", "everywhere"):
        await site.ready(PUSH_SECRETS, name, TEAM)
    await site.secret("clone", TEAM, lambda text: text.keys() == {"token"})
    assert github.values(REPOSITORY) == {"DB_PASSWORD": b"open-sesame"}
    assert github.values() == {"DATABASE": b'{"password":"b3Blbi1zZXNhbWU="}'}
    (limited,) = [asked.json() for asked in github.requests("POST *access_tokens") if asked.body]
    assert limited == {"repositories": ["shop"], "permissions": {"contents": "read"}}


async def test_a_value_is_written_again_only_if_it_is_not_ours_any_more(site: Any, github: GitHubServer) -> None:
    """Relies on the manifests of the guide. An edit of the PushSecret pushes once more; later refreshes only ask."""
    pushes, reads = "PUT *secrets/DB_PASSWORD", "GET *secrets/DB_PASSWORD"
    pushed_again = _more(github, pushes, 1)
    await site.patch(PUSH_SECRETS, "database", {"spec": {"refreshInterval": "1s"}}, TEAM)
    await site.until(pushed_again, "the edit did not push")
    pushed = len(github.requests(pushes))

    await site.until(_more(github, reads, 3), "GitHub is not asked")

    assert len(github.requests(pushes)) == pushed
    entry = github.shelves[REPOSITORY,].entries["DB_PASSWORD"]
    entry.value, entry.updated_at = b"of another client", "2020-01-01T00:00:00Z"

    async def restored() -> bool:
        return github.values(REPOSITORY) == {"DB_PASSWORD": b"open-sesame"}

    await site.until(restored, "the value of another client is still there")


async def test_what_is_no_longer_wanted_is_deleted_and_revoked(site: Any, up: UpProcess, github: GitHubServer) -> None:
    """Relies on the manifests of the guide."""
    revoked = len(github.requests("DELETE *installation/token"))

    await site.delete(PUSH_SECRETS, "database", TEAM)
    await site.delete(EXTERNAL_SECRETS, "clone", TEAM)

    async def gone() -> bool:
        return github.values(REPOSITORY) == {} and len(github.requests("DELETE *installation/token")) > revoked

    await site.until(gone, "the secret or the token is still there")
    assert [word for word in ("ghs_", "open-sesame", "PRIVATE KEY") if word in up.output] == []


def _more(github: GitHubServer, pattern: str, number: int) -> Callable[[], Awaitable[bool]]:
    """Return a look for more calls that fit a pattern than there are now."""
    before = len(github.requests(pattern))

    async def look() -> bool:
        return len(github.requests(pattern)) >= before + number

    return look
