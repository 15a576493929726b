"""The GitLab and GitHub providers on their test servers: how many calls reads, failures and logins take."""

from __future__ import annotations

import asyncio
import math

import pytest
from report import Row

from eso_provider_github.provider import PROVIDER as GITHUB
from eso_provider_github.testing.server import INSTALLATION, REPOSITORY, GitHubServer
from eso_provider_github.testing.sessions import check, push
from eso_provider_github.testing.sessions import store as github_store
from eso_provider_gitlab.provider import PROVIDER as GITLAB
from eso_provider_gitlab.testing.server import TOKEN, GitLabServer
from eso_provider_gitlab.testing.sessions import store
from eso_sdk.addresses import AddressPolicy
from eso_sdk.testing import InMemory
from eso_sdk.testing.server import failure, read
from kubebase.testing.clock import VirtualClock

VARIABLES, STORES, MINUTE = 500, 50, 60
LOOPBACK = AddressPolicy.parse(["loopback"])


def measure() -> list[Row]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("NO_PROXY", "127.0.0.1")
        return asyncio.run(_measured())


async def _measured() -> list[Row]:
    with GitLabServer.started() as gitlab, GitHubServer.started() as github:
        return [*await _of_gitlab(gitlab), *await _of_github(github)]


async def _of_gitlab(gitlab: GitLabServer) -> list[Row]:
    for number in range(VARIABLES):
        gitlab.project().put(f"KEY_{number}", "value")
    clock = VirtualClock()
    async with InMemory(GITLAB, clock, addresses=LOOPBACK) as provider:
        call = store(gitlab.url)
        found = await read(provider, call, *(f"KEY_{number}" for number in range(VARIABLES)))
        assert found == [b"value"] * VARIABLES
        lists = len(gitlab.calls)
        gitlab.calls.clear()
        await read(provider, call, "KEY_7")
        single = len(gitlab.calls)
        gitlab.project("shop/small").put("KEY", "value")
        failing = {}
        for name, token in (("a missing key", TOKEN), ("a bad token", "bad")):
            gitlab.calls.clear()
            refused = store(gitlab.url, token=token, projectID="shop/small")
            for _ in range(MINUTE):
                await failure(provider, refused, "ABSENT")
                await clock.advance(0.99)
            failing[name] = len(gitlab.calls)
    wanted = math.ceil(VARIABLES / 100)
    return [
        Row(f"GitLab: calls for {VARIABLES:,} variables of a project", f"{lists}", f"{wanted}", lists == wanted),
        Row("GitLab: calls for one of them at a later time", f"{single}", "1", single == 1),
        *(
            Row(f"GitLab: calls for {name}, read every second for a minute", f"{calls}", "1", calls == 1)
            for name, calls in failing.items()
        ),
    ]


async def _of_github(github: GitHubServer) -> list[Row]:
    clock = VirtualClock()
    github.reset(clock)
    async with InMemory(GITHUB, clock, addresses=LOOPBACK) as provider:
        stores = [
            github_store(github.url, namespace=f"team-{number}", repository=REPOSITORY) for number in range(STORES)
        ]
        await asyncio.gather(*(push(provider, call, f"KEY_{at}", b"value") for at, call in enumerate(stores)))
        tokens = len(github.requests(f"POST *installations/{INSTALLATION}/access_tokens"))
        writes = len(github.requests("PUT *"))
        github.calls.clear()
        await check(provider, stores[0], "KEY_0")
        unchanged = len(github.calls)
    return [
        Row(f"GitHub: installation tokens for {STORES} stores of one App", f"{tokens}", "1", tokens == 1),
        Row(f"GitHub: writes of {STORES} values", f"{writes}", f"{STORES}", writes == STORES),
        Row("GitHub: calls of a refresh without a change", f"{unchanged}", "1", unchanged == 1),
    ]
