"""Finds: groups first, the project over them, an exact environment scope over *."""

from __future__ import annotations

from typing import Any

import pytest

from eso_provider_gitlab.testing.server import GitLabServer
from eso_provider_gitlab.testing.sessions import find, store
from eso_sdk.testing import InMemory
from eso_wire.errors import ErrorReason, ProviderError


async def test_every_page_is_searched(provider: InMemory, gitlab: GitLabServer) -> None:
    for number in range(250):
        gitlab.project().put(f"KEY_{number}", str(number))

    found = await find(provider, store(gitlab.url), "^KEY_1")

    assert len(found) == 111
    assert len(gitlab.calls) == 3


async def test_nothing_is_found_with_one_call(provider: InMemory, gitlab: GitLabServer) -> None:
    gitlab.project().put("DB", "value")

    assert await find(provider, store(gitlab.url), "^nothing$") == {}
    assert len(gitlab.calls) == 1


ENVIRONMENT = {"environment": "prod"}


@pytest.mark.parametrize(
    ("spec", "tags", "variables", "expected"),
    [
        pytest.param(ENVIRONMENT, {}, {"project *": "a", "project prod": "b"}, b"b", id="exact over wildcard"),
        pytest.param(ENVIRONMENT, {}, {"project prod": "b", "project *": "a"}, b"b", id="in any order"),
        pytest.param(ENVIRONMENT, {}, {"project *": "a", "two prod": "b"}, b"a", id="the project over groups"),
        pytest.param(ENVIRONMENT, {}, {"one prod": "a", "two *": "b"}, b"a", id="exact over wildcard of a later group"),
        pytest.param(ENVIRONMENT, {}, {"one prod": "a", "two prod": "b"}, b"b", id="the later group"),
        pytest.param(ENVIRONMENT, {}, {"project dev": "a"}, None, id="no other scope"),
        pytest.param({}, {}, {"project dev": "a"}, b"a", id="every scope without an environment"),
        pytest.param({}, {"environment_scope": "dev"}, {"project dev": "a", "project *": "b"}, b"a", id="scope as tag"),
        pytest.param({}, {"environment_scope": "dev"}, {"project prod": "a"}, None, id="no other scope than the tag"),
    ],
)
async def test_one_variable_is_chosen_for_each_key(
    *,
    spec: Any,
    tags: dict[str, str],
    variables: dict[str, str],
    expected: bytes | None,
    gitlab: GitLabServer,
    provider: InMemory,
) -> None:
    for group in ("one", "two"):
        gitlab.group(group)
    for place, value in variables.items():
        owner, _, scope = place.partition(" ")
        (gitlab.project() if owner == "project" else gitlab.group(owner)).put("DB", value, scope)
    call = store(gitlab.url, projectID="shop/app", groupIDs=["one", "two"], **spec)

    assert await find(provider, call, "^DB$", tags=tags) == ({} if expected is None else {"DB": expected})


async def test_hidden_variables_are_left_out_and_empty_ones_are_not(provider: InMemory, gitlab: GitLabServer) -> None:
    gitlab.project().put("HIDDEN", None)
    gitlab.project().put("EMPTY", "")

    assert await find(provider, store(gitlab.url)) == {"EMPTY": b""}


@pytest.mark.parametrize(
    ("spec", "query", "says"),
    [
        pytest.param({}, {"name": ""}, "needs name.regexp", id="no name"),
        pytest.param({}, {"tags": {"team": "a"}}, 'not "team"', id="another tag"),
        pytest.param(ENVIRONMENT, {"tags": {"environment_scope": "dev"}}, "only if the store has no", id="both scopes"),
        pytest.param({}, {"path": "a/"}, "", id="a path"),
    ],
)
async def test_a_query_that_gitlab_cannot_answer_is_refused(
    spec: Any, query: Any, says: str, provider: InMemory, gitlab: GitLabServer
) -> None:
    with pytest.raises(ProviderError) as failed:
        await find(provider, store(gitlab.url, **spec), **query)

    assert failed.value.reason in (ErrorReason.INVALID_REQUEST, ErrorReason.UNSUPPORTED_OPERATION)
    assert says in failed.value.message
