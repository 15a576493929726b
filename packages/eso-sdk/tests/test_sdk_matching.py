"""The keys that a find matches; and a search lets other calls run."""

import asyncio

import pytest

from eso_sdk.matching import Matcher
from eso_sdk.testing import ProviderServer, call_context
from eso_sdk.testing.scripted import SCRIPTED, Script, Scripted
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Context, FindQuery, GetItem, RemoteRef
from kubebase.clock import SystemClock

SLOW = "(a?){900}[ab]{100}c"
"""Allowed, and some 20 ms of work for a key of SLOW_KEY's length."""
SLOW_KEY = "a" * 500


@pytest.mark.parametrize(
    ("query", "key", "expected"),
    [
        pytest.param(FindQuery(), "any", True, id="an empty query matches all"),
        pytest.param(FindQuery(name_regexp="b"), "abc", True, id="a pattern is found anywhere"),
        pytest.param(FindQuery(name_regexp="^b"), "abc", False, id="unless it is anchored"),
        pytest.param(FindQuery(path="team/"), "team/a", True, id="a path is a prefix"),
        pytest.param(FindQuery(path="team/"), "my/team/a", False, id="and only that"),
        pytest.param(FindQuery(tags={"env": "prod"}), "a", True, id="all tags"),
        pytest.param(FindQuery(tags={"env": "prod", "tier": "1"}), "a", False, id="a tag that is not there"),
        pytest.param(FindQuery(name_regexp="(a+)+$"), "a" * 5000 + "b", False, id="no catastrophic pattern"),
    ],
)
def test_matching(query: FindQuery, key: str, expected: bool) -> None:
    assert Matcher(query).matches(key, {"env": "prod"}) is expected


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        pytest.param("|".join([SLOW] * 100), "too large", id="a pattern that would take minutes a key"),
        pytest.param("(?=x)", r"\(RE2\): invalid perl operator: \(\?=", id="syntax that RE2 does not have"),
    ],
)
def test_a_pattern_that_cannot_be_run_is_refused_with_the_reason(pattern: str, words: str) -> None:
    with pytest.raises(ProviderError, match=words) as caught:
        Matcher(FindQuery(name_regexp=pattern))

    assert caught.value.reason is ErrorReason.INVALID_REQUEST


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param("|".join(f"team-{number}/" for number in range(400)), id="as long as one may be"),
        pytest.param(r"^(dev|prod)/[a-z0-9-]{1,63}/(db|api)\.(password|user)$", id="with repetitions"),
        pytest.param(r"^[^/]{1,253}$", id="any name of Kubernetes"),
        pytest.param(r"^\pL+/\pN+$", id="letters of all languages"),
    ],
)
def test_patterns_that_people_write_are_within_the_bound(pattern: str) -> None:
    assert len(pattern) <= 4096
    Matcher(FindQuery(name_regexp=pattern))


async def test_a_neighbours_read_is_answered_while_a_slow_search_runs() -> None:
    keys = {f"{number}{SLOW_KEY}": b"1" for number in range(60)}
    async with ProviderServer(SCRIPTED) as server:
        finding = asyncio.create_task(server.client.find(using(Script.new(values=keys)), FindQuery(name_regexp=SLOW)))
        while not server.server.metrics.in_flight._value.get() and not finding.done():
            await SystemClock().sleep(0.001)

        (result,) = await server.client.get(using(Script.new(values={"mine": b"1"})), [GetItem("a", RemoteRef("mine"))])

        assert not isinstance(result.outcome, ProviderError)
        assert not finding.done()
        assert await finding == ()


def using(script: Script) -> Context:
    return call_context(Scripted, {"script": script.name})
