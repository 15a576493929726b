"""Reads: which variable a key means, how many calls that takes, and what is said when it fails."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from eso_provider_gitlab.provider import PROVIDER
from eso_provider_gitlab.store import VariableStore
from eso_provider_gitlab.testing.server import GUEST, READER, TOKEN, GitLabServer
from eso_provider_gitlab.testing.sessions import AUTH, POINTER, store
from eso_sdk.addresses import AddressPolicy
from eso_sdk.testing import InMemory, call_context
from eso_sdk.testing.server import failure, read
from eso_sdk.testing.standin import StandinResponse
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import RemoteRef, Shape, ValidationState
from kubebase.testing.clock import VirtualClock

PROJECT_LISTS = "GET /api/v4/projects/*/variables"
GROUP_LISTS = "GET /api/v4/groups/*/variables"


async def test_a_value_is_read_with_the_token_of_the_store(provider: InMemory, gitlab: GitLabServer) -> None:
    gitlab.project().put("DB_PASSWORD", "open sesame")

    assert await read(provider, store(gitlab.url), "DB_PASSWORD") == [b"open sesame"]

    (asked,) = gitlab.calls
    assert asked.raw_path.startswith("/api/v4/projects/shop%2Fapp/variables?")
    assert asked.headers["private-token"] == TOKEN


async def test_dashes_of_a_key_are_underscores(provider: InMemory, gitlab: GitLabServer) -> None:
    gitlab.project().put("DB_PASSWORD", "open sesame")

    assert await read(provider, store(gitlab.url), "DB-PASSWORD") == [b"open sesame"]


async def test_one_list_answers_all_keys_of_a_project(provider: InMemory, gitlab: GitLabServer) -> None:
    for number in range(250):
        gitlab.project().put(f"KEY_{number}", str(number))

    found = await read(provider, store(gitlab.url), *(f"KEY_{number}" for number in range(250)))

    assert found == [str(number).encode() for number in range(250)]
    assert len(gitlab.calls) == 3


@pytest.mark.parametrize(
    ("environment", "variables", "expected"),
    [
        pytest.param("prod", {"*": "any", "prod": "exact"}, b"exact", id="the exact scope wins"),
        pytest.param("prod", {"*": "any", "dev": "other"}, b"any", id="scope * is used if there is no exact one"),
        pytest.param("*", {"*": "any", "prod": "exact"}, b"any", id="environment * means scope *"),
        pytest.param("", {"prod": "only"}, b"only", id="without an environment the only variable is used"),
        pytest.param("prod", {"dev": "other"}, ErrorReason.SECRET_NOT_FOUND, id="another scope is not used"),
        pytest.param("", {"*": "a", "prod": "b"}, ErrorReason.INVALID_REQUEST, id="several scopes need an environment"),
    ],
)
async def test_the_environment_chooses(
    environment: str, variables: dict[str, str], expected: Any, provider: InMemory, gitlab: GitLabServer
) -> None:
    for scope, value in variables.items():
        gitlab.project().put("DB", value, scope)

    (found,) = await read(provider, store(gitlab.url, environment=environment), "DB")

    assert (found.reason if isinstance(found, ProviderError) else found) == expected


async def test_groups_are_asked_from_last_to_first_and_only_for_keys_that_the_project_lacks(
    provider: InMemory, gitlab: GitLabServer
) -> None:
    gitlab.project().put("OWN", "of the project")
    gitlab.group("first").put("OWN", "of a group")
    for name in ("first", "last"):
        gitlab.group(name).put("SHARED", f"of {name}")
        gitlab.group(name).put("SCOPED", f"of {name}", "prod" if name == "first" else "*")
    call = store(gitlab.url, projectID="shop/app", groupIDs=["first", "last"], environment="prod")

    assert await read(provider, call, "OWN") == [b"of the project"]
    assert gitlab.requests(GROUP_LISTS) == []
    assert await read(provider, call, "OWN", "SHARED", "SCOPED") == [b"of the project", b"of last", b"of last"]
    assert len(gitlab.requests(GROUP_LISTS)) == 1


async def test_groups_above_the_project_are_found(provider: InMemory, gitlab: GitLabServer) -> None:
    gitlab.project("a/b/c/app", "a/b", "a", "a/b/c")
    for group in ("a", "a/b"):
        gitlab.group(group).put("REGION", f"of {group}")
    call = store(gitlab.url, projectID="a/b/c/app", inheritFromGroups=True)

    assert await read(provider, call, "REGION") == [b"of a/b"]
    assert len(gitlab.requests("GET */projects/a/b/c/app/groups")) == 1


async def test_a_store_may_have_groups_alone(provider: InMemory, gitlab: GitLabServer) -> None:
    gitlab.group("shop").put("REGION", "eu")

    assert await read(provider, store(gitlab.url, groupIDs=["shop"]), "REGION") == [b"eu"]
    assert gitlab.requests(PROJECT_LISTS) == []


async def test_properties_and_maps(provider: InMemory, gitlab: GitLabServer) -> None:
    gitlab.project().put("LOGIN", '{"user":"anna","port":5432,"tags":["a"],"none":null,"deep":{"er":"x"}}')
    call = store(gitlab.url)

    found = await read(provider, call, *(RemoteRef("LOGIN", property=name) for name in ("user", "port", "deep.er")))
    mapped = await provider.get_one(call, "LOGIN", shape=Shape.MAP)

    assert found == [b"anna", b"5432", b"x"]
    assert not isinstance(mapped.outcome, ProviderError)
    values: Any = mapped.outcome
    assert {name: value.reveal() for name, value in values.items()} == {
        "user": b"anna",
        "port": b"5432",
        "tags": b'["a"]',
        "none": b"",
        "deep": b'{"er":"x"}',
    }


@pytest.mark.parametrize(
    ("ref", "reason", "says"),
    [
        pytest.param("ABSENT", ErrorReason.SECRET_NOT_FOUND, '"ABSENT" does not exist', id="a missing variable"),
        pytest.param(
            RemoteRef("LOGIN", property="pass"), ErrorReason.PROPERTY_NOT_FOUND, "no property", id="a missing property"
        ),
        pytest.param("EMPTY", ErrorReason.BACKEND_ERROR, "is empty; set its value", id="an empty variable"),
        pytest.param("HIDDEN", ErrorReason.BACKEND_ERROR, "is hidden", id="a hidden variable"),
    ],
)
async def test_a_value_that_cannot_be_given_is_explained(
    ref: Any, reason: ErrorReason, says: str, provider: InMemory, gitlab: GitLabServer
) -> None:
    gitlab.project().put("LOGIN", '{"user":"CANARY"}')
    gitlab.project().put("EMPTY", "")
    gitlab.project().put("HIDDEN", None)

    failed = await failure(provider, store(gitlab.url), ref)

    assert failed.reason is reason
    assert says in failed.message
    assert "CANARY" not in failed.message


@pytest.mark.parametrize(
    ("token", "spec", "reason", "says"),
    [
        pytest.param("wrong", {}, ErrorReason.CREDENTIALS_REJECTED, "does not accept the credentials", id="401"),
        pytest.param("guest", {}, ErrorReason.PERMISSION_DENIED, "needs the scope read_api", id="403"),
        pytest.param("reader", {"projectID": "no/such"}, ErrorReason.PERMISSION_DENIED, "check its id", id="404"),
        pytest.param(
            "reader", {"groupIDs": ["hidden"]}, ErrorReason.PERMISSION_DENIED, 'group "hidden"', id="a hidden group"
        ),
    ],
)
async def test_a_refusal_names_the_place_and_what_to_do(
    *, token: str, spec: Any, reason: ErrorReason, says: str, provider: InMemory, gitlab: GitLabServer
) -> None:
    gitlab.access = {"guest": {"shop/app": GUEST}, "reader": {"shop/app": READER}}
    gitlab.group("hidden")

    failed = await failure(provider, store(gitlab.url, token=token, **spec), "DB")

    assert failed.reason is reason
    assert says in failed.message
    assert token not in failed.message.replace("the access token", "")


async def test_a_group_that_fails_fails_only_the_keys_that_need_it(provider: InMemory, gitlab: GitLabServer) -> None:
    gitlab.project().put("OWN", "value")
    call = store(gitlab.url, projectID="shop/app", groupIDs=["no-such"])

    own, other = await read(provider, call, "OWN", "OTHER")

    assert own == b"value"
    assert isinstance(other, ProviderError)
    assert other.reason is ErrorReason.PERMISSION_DENIED


async def test_a_list_that_changes_between_its_pages_is_read_again(provider: InMemory, gitlab: GitLabServer) -> None:
    for number in range(150):
        gitlab.project().put(f"KEY_{number}", "value")
    others = [{"key": f"KEY_{number}", "value": "value"} for number in range(100)]
    gitlab.script(PROJECT_LISTS, StandinResponse(200, others, {"X-Next-Page": "2", "X-Total": "151"}))

    assert await read(provider, store(gitlab.url), "KEY_149") == [b"value"]
    assert len(gitlab.requests(PROJECT_LISTS)) == 4


async def test_a_list_that_never_settles_is_no_proof_that_a_variable_is_gone(
    provider: InMemory, gitlab: GitLabServer
) -> None:
    for total in range(6):
        page = "2" if total % 2 == 0 else ""
        gitlab.script(PROJECT_LISTS, StandinResponse(200, [], {"X-Next-Page": page, "X-Total": str(total)}))

    failed = await failure(provider, store(gitlab.url), "DB")

    assert failed.reason is ErrorReason.BACKEND_UNAVAILABLE


# --- how often GitLab is asked ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", [pytest.param("wrong", id="a bad token"), pytest.param(TOKEN, id="a missing key")])
async def test_what_fails_costs_one_call_a_minute(
    token: str, provider: InMemory, gitlab: GitLabServer, clock: VirtualClock
) -> None:
    call = store(gitlab.url, token=token)
    for _ in range(10):
        await failure(provider, call, "ABSENT")
        await clock.advance(5)
    assert len(gitlab.calls) == 1

    await clock.advance(15)
    await failure(provider, call, "ABSENT")

    assert len(gitlab.calls) == 2


@pytest.mark.parametrize(
    ("environment", "key", "calls"),
    [
        pytest.param("", "KEY_7", 1, id="one key"),
        pytest.param("prod", "KEY_7", 2, id="one key of another scope"),
        pytest.param("", "ABSENT", 2, id="a missing key, and whether the project exists"),
        pytest.param("", "TWICE", 6, id="a key of several scopes, which are listed"),
    ],
)
async def test_a_few_keys_of_a_large_project_are_read_without_its_list(
    environment: str, key: str, calls: int, provider: InMemory, gitlab: GitLabServer
) -> None:
    for number in range(400):
        gitlab.project().put(f"KEY_{number}", str(number))
    for scope in ("*", "dev"):
        gitlab.project().put("TWICE", scope, scope)
    call = store(gitlab.url, environment=environment)
    await read(provider, call, "KEY_1")
    gitlab.calls.clear()

    (found,) = await read(provider, call, key)

    assert found == b"7" if key == "KEY_7" else isinstance(found, ProviderError)
    assert len(gitlab.calls) == calls


async def test_a_key_that_no_page_of_a_list_had_is_asked_for(provider: InMemory, gitlab: GitLabServer) -> None:
    """If one variable is deleted and another created between two pages, their number stays the same."""
    for number in range(150):
        gitlab.project().put(f"KEY_{number}", "value")
    variables = gitlab.project().variables
    gitlab.script(PROJECT_LISTS, StandinResponse(200, variables[:100], {"X-Next-Page": "2", "X-Total": "150"}))
    gitlab.script(PROJECT_LISTS, StandinResponse(200, variables[101:], {"X-Total": "150"}))

    assert await read(provider, store(gitlab.url), "KEY_100", "KEY_101", "KEY_102") == [b"value"] * 3
    assert len(gitlab.calls) == 3


async def test_a_project_that_vanishes_is_no_proof_that_a_variable_is_gone(
    provider: InMemory, gitlab: GitLabServer
) -> None:
    for number in range(150):
        gitlab.project().put(f"KEY_{number}", "value")
    call = store(gitlab.url)
    await read(provider, call, "KEY_1")
    gitlab.projects.clear()

    assert (await failure(provider, call, "KEY_1")).reason is ErrorReason.PERMISSION_DENIED


async def test_a_key_that_gitlab_does_not_allow_is_missing_without_a_call(
    provider: InMemory, gitlab: GitLabServer
) -> None:
    assert (await failure(provider, store(gitlab.url), "../x")).reason is ErrorReason.SECRET_NOT_FOUND
    assert gitlab.calls == []


async def test_a_missing_key_of_one_environment_says_nothing_about_another(
    provider: InMemory, gitlab: GitLabServer
) -> None:
    gitlab.project().put("DB", "of prod", "prod")

    assert (await failure(provider, store(gitlab.url, environment="dev"), "DB")).reason is ErrorReason.SECRET_NOT_FOUND
    assert await read(provider, store(gitlab.url, environment="prod"), "DB") == [b"of prod"]


async def test_a_missing_key_that_appears_is_found_with_the_next_list(provider: InMemory, gitlab: GitLabServer) -> None:
    gitlab.project().put("OTHER", "value")
    await failure(provider, store(gitlab.url), "LATE")
    gitlab.project().put("LATE", "here")

    assert await read(provider, store(gitlab.url), "LATE", "OTHER") == [b"here", b"value"]


async def test_a_limit_is_kept_for_as_long_as_gitlab_says(
    provider: InMemory, gitlab: GitLabServer, clock: VirtualClock
) -> None:
    gitlab.project().put("DB", "value")
    gitlab.script(PROJECT_LISTS, StandinResponse(429, b"Retry later", {"Retry-After": "30"}))
    call = store(gitlab.url)

    first, second = [await failure(provider, call, "DB") for _ in range(2)]

    assert (first.reason, second.reason) == (ErrorReason.RATE_LIMITED,) * 2
    assert first.retry_after == pytest.approx(30)
    assert len(gitlab.calls) == 1
    await clock.advance(31)
    assert await read(provider, call, "DB") == [b"value"]


async def test_two_namespaces_with_different_tokens_never_see_each_others_values(
    provider: InMemory, gitlab: GitLabServer
) -> None:
    gitlab.access = {"of-one": {"one/app": READER}, "of-two": {"two/app": READER}}
    for team in ("one", "two"):
        gitlab.project(f"{team}/app").put("DB", f"value of {team}")

    def call(team: str, project: str) -> Any:
        return store(gitlab.url, token=f"of-{team}", namespace=team, projectID=project)

    assert await read(provider, call("one", "one/app"), "DB") == [b"value of one"]
    assert await read(provider, call("two", "two/app"), "DB") == [b"value of two"]
    assert (await failure(provider, call("two", "one/app"), "DB")).reason is ErrorReason.PERMISSION_DENIED


# --- configuration ----------------------------------------------------------------------------------------------------


async def test_a_store_is_valid_if_every_place_can_be_listed(provider: InMemory, gitlab: GitLabServer) -> None:
    gitlab.group("shop")

    valid = await provider.validate(store(gitlab.url, projectID="shop/app", groupIDs=["shop"]))
    invalid = provider.validate(store(gitlab.url, projectID="shop/app", groupIDs=["shop", "no-such"]))

    assert valid.state is ValidationState.READY
    try:
        problem = (await invalid).error
    except ProviderError as failed:
        problem = failed
    assert problem is not None
    assert 'group "no-such"' in problem.message


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        pytest.param({"projectID": ""}, "/projectID: is empty, and so is groupIDs", id="neither project nor group"),
        pytest.param({"inheritFromGroups": True, "groupIDs": ["a"]}, "/groupIDs: must not be set", id="both groups"),
        pytest.param({"auth": {"SecretRef": {}}}, "/auth/SecretRef/accessToken: needs", id="no token"),
        pytest.param({"url": "ftp://gitlab"}, "/url: must be a URL", id="another protocol"),
        pytest.param({"url": "https://me:CANARY@gitlab"}, "/url: must not contain a user", id="credentials in the URL"),
    ],
)
async def test_a_wrong_configuration_is_refused(spec: Any, says: str, provider: InMemory, gitlab: GitLabServer) -> None:
    config = {"url": gitlab.url, "projectID": "shop/app", "auth": AUTH} | spec

    failed = await failure(provider, call_context(VariableStore, config, {POINTER: TOKEN}), "DB")

    assert failed.reason is ErrorReason.CONFIG_INVALID
    assert failed.message.startswith(says)
    assert "CANARY" not in failed.message


async def test_a_cluster_scoped_store_must_name_the_namespace_of_its_token(
    provider: InMemory, gitlab: GitLabServer
) -> None:
    config = {"url": gitlab.url, "projectID": "shop/app", "auth": AUTH}
    call = call_context(VariableStore, config, {POINTER: TOKEN}, namespace="")

    failed = await failure(provider, call, "DB")

    assert failed.reason is ErrorReason.CONFIG_INVALID
    assert failed.message.startswith("/auth/SecretRef/accessToken/namespace: must be set")


@pytest.mark.parametrize(
    "url", [pytest.param("{}/", id="a slash"), pytest.param("{}/api/v4/", id="with the path of the API")]
)
async def test_every_spelling_of_the_address_works(url: str, provider: InMemory, gitlab: GitLabServer) -> None:
    gitlab.project().put("DB", "value")

    assert await read(provider, store(url.format(gitlab.url)), "DB") == [b"value"]


@pytest.mark.parametrize("form", ["caBundle", "caProvider", "neither"])
async def test_the_authority_of_the_store_is_trusted(form: str, tmp_path: Path, clock: VirtualClock) -> None:
    with GitLabServer.started(tls_folder=tmp_path) as server:
        server.project().put("DB", "value")
        spec: dict[str, Any] = {"url": server.url, "projectID": "shop/app", "auth": AUTH}
        credentials = {POINTER: TOKEN}
        if form == "caBundle":
            spec["caBundle"] = base64.b64encode(server.ca).decode()
        elif form == "caProvider":
            spec["caProvider"] = {"type": "ConfigMap", "name": "ca", "key": "ca.crt"}
            credentials["/caProvider"] = server.ca.decode()
        async with InMemory(PROVIDER, clock, addresses=AddressPolicy.parse(["loopback"])) as provider:
            call = call_context(VariableStore, spec, credentials)
            if form == "neither":
                assert "unknown certificate authority" in (await failure(provider, call, "DB")).message
            else:
                assert await read(provider, call, "DB") == [b"value"]
