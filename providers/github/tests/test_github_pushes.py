"""Pushes: sealed for their place, with the visibility kept; versions, checks, deletions, refusals and call counts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from eso_provider_github.store import MAX_VALUE
from eso_provider_github.testing.server import (
    APP,
    ENVIRONMENT,
    INSTALLATION,
    ORGANIZATION,
    REPOSITORY,
    GitHubServer,
    Shelf,
)
from eso_provider_github.testing.sessions import check, delete, push, store
from eso_sdk.testing import InMemory
from eso_sdk.testing.standin import StandinResponse
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import PushOutcome, ValidationState
from kubebase.testing.clock import START, VirtualClock

TOKENS = f"POST /api/v3/app/installations/{INSTALLATION}/access_tokens"
PUTS = "PUT *"
OF_REPOSITORY: dict[str, Any] = {"repository": REPOSITORY}
OF_ENVIRONMENT: dict[str, Any] = {"repository": REPOSITORY, "environment": ENVIRONMENT}


@pytest.mark.parametrize(
    ("spec", "place", "path"),
    [
        pytest.param({}, (), f"/api/v3/orgs/{ORGANIZATION}/actions/secrets/DB_PASSWORD", id="an organization"),
        pytest.param(
            OF_REPOSITORY,
            (REPOSITORY,),
            f"/api/v3/repos/{ORGANIZATION}/{REPOSITORY}/actions/secrets/DB_PASSWORD",
            id="a repository",
        ),
        pytest.param(
            OF_ENVIRONMENT,
            (REPOSITORY, ENVIRONMENT),
            f"/api/v3/repos/{ORGANIZATION}/{REPOSITORY}/environments/production%2Feu/secrets/DB_PASSWORD",
            id="an environment",
        ),
    ],
)
async def test_a_value_is_sealed_for_its_place(
    spec: Any, place: tuple[str, ...], path: str, provider: InMemory, github: GitHubServer
) -> None:
    call = store(github.url, **spec)

    first = await push(provider, call, "DB_PASSWORD", b"open sesame")
    second = await push(provider, call, "DB_PASSWORD", bytes(range(256)))

    assert (first.outcome, second.outcome) == (PushOutcome.CREATED, PushOutcome.UPDATED)
    assert github.values(*place) == {"DB_PASSWORD": bytes(range(256))}
    asked = github.requests(PUTS)[0]
    assert asked.raw_path == path
    assert asked.headers["authorization"] == f"Bearer {next(iter(github.tokens))}"
    assert asked.headers["x-github-api-version"] == "2022-11-28"
    assert b"open sesame" not in asked.body


async def test_a_whole_secret_is_json_with_values_in_base64(provider: InMemory, github: GitHubServer) -> None:
    await push(provider, store(github.url, **OF_REPOSITORY), "LOGIN", {"user": b"anna", "binary": b"\xff"})

    assert github.values(REPOSITORY) == {"LOGIN": b'{"binary":"/w==","user":"YW5uYQ=="}'}


# --- visibility -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("existing", "configured", "expected"),
    [
        pytest.param("", "", "all", id="a new secret is for all"),
        pytest.param("", "private", "private", id="a new secret is as configured"),
        pytest.param("private", "", "private", id="an existing one stays private"),
        pytest.param("private", "all", "all", id="the configuration wins"),
    ],
)
async def test_the_visibility_of_an_organization_secret(
    existing: str, configured: str, expected: str, provider: InMemory, github: GitHubServer
) -> None:
    if existing:
        await push(provider, store(github.url, orgSecretVisibility=existing), "DB", b"first")

    await push(provider, store(github.url, orgSecretVisibility=configured), "DB", b"second")

    assert github.shelves[()].entries["DB"].visibility == expected


async def test_selected_repositories_are_sent_again_from_every_page(provider: InMemory, github: GitHubServer) -> None:
    call = store(github.url)
    await push(provider, call, "DB", b"first")
    entry = github.shelves[()].entries["DB"]
    entry.visibility, entry.selected = "selected", list(range(1000, 1250))

    await push(provider, call, "DB", b"second")

    entry = github.shelves[()].entries["DB"]
    assert (entry.value, entry.visibility, entry.selected) == (b"second", "selected", list(range(1000, 1250)))
    assert len(github.requests("GET */repositories")) == 3


async def test_a_list_of_repositories_with_a_gap_is_not_sent(provider: InMemory, github: GitHubServer) -> None:
    call = store(github.url)
    await push(provider, call, "DB", b"first")
    github.shelves[()].entries["DB"].visibility = "selected"
    github.script("GET */repositories", StandinResponse(200, {"total_count": 2, "repositories": [{"id": 7}]}))

    with pytest.raises(ProviderError, match="changed while they were listed"):
        await push(provider, call, "DB", b"second")

    assert github.values() == {"DB": b"first"}


# --- what is there ----------------------------------------------------------------------------------------------------


async def test_the_version_of_a_push_is_the_time_of_the_update(
    provider: InMemory, github: GitHubServer, clock: VirtualClock
) -> None:
    """So the operator writes an unchanged value only if another client has replaced it."""
    call = store(github.url)
    pushed = await push(provider, call, "DB", b"ours")
    same = await check(provider, call, "DB")
    await clock.advance(5)
    await push(provider, store(github.url, namespace="other"), "DB", b"of another client")

    other = await check(provider, call, "DB")

    assert (same.exists, other.exists) == (True, True)
    assert pushed.provider_version == same.provider_version != other.provider_version


async def test_a_push_whose_version_cannot_be_read_has_succeeded(provider: InMemory, github: GitHubServer) -> None:
    github.script("GET */actions/secrets/DB", StandinResponse(502))

    pushed = await push(provider, store(github.url, **OF_REPOSITORY), "DB", b"value")

    assert (pushed.outcome, pushed.provider_version) == (PushOutcome.CREATED, "")


async def test_a_missing_secret_does_not_exist_and_is_asked_for_each_time(
    provider: InMemory, github: GitHubServer
) -> None:
    call = store(github.url, **OF_REPOSITORY)

    assert not (await check(provider, call, "DB")).exists
    await push(provider, store(github.url, namespace="other", **OF_REPOSITORY), "DB", b"meanwhile")
    assert (await check(provider, call, "DB")).exists


async def test_a_secret_is_deleted_once(provider: InMemory, github: GitHubServer) -> None:
    call = store(github.url, **OF_ENVIRONMENT)
    await push(provider, call, "DB", b"value")

    first, second = [(await delete(provider, call, "DB")).existed for _ in range(2)]

    assert (first, second) == (True, False)
    assert github.values(REPOSITORY, ENVIRONMENT) == {}


@pytest.mark.parametrize("act", [check, delete], ids=["check", "delete"])
async def test_a_missing_repository_is_no_proof_that_a_secret_is_gone(
    act: Any, provider: InMemory, github: GitHubServer
) -> None:
    call = store(github.url, **OF_REPOSITORY)
    await push(provider, call, "DB", b"value")
    github.repositories.clear()
    if act is check:
        call = store(github.url, namespace="other", **OF_REPOSITORY)  # has not read the public key yet

    with pytest.raises(ProviderError) as failed:
        await act(provider, call, "DB")

    assert failed.value.reason is ErrorReason.PERMISSION_DENIED
    assert f'repository "{ORGANIZATION}/{REPOSITORY}" does not exist' in failed.value.message


async def test_a_replaced_public_key_is_read_again(provider: InMemory, github: GitHubServer) -> None:
    call = store(github.url, **OF_REPOSITORY)
    await push(provider, call, "DB", b"first")
    kept = github.shelves[REPOSITORY,].entries
    github.shelves[REPOSITORY,] = Shelf("another", entries=kept)

    await push(provider, call, "DB", b"second")

    assert github.values(REPOSITORY) == {"DB": b"second"}


# --- calls ------------------------------------------------------------------------------------------------------------


async def test_a_push_takes_few_calls(provider: InMemory, github: GitHubServer) -> None:
    call = store(github.url, **OF_REPOSITORY)
    await push(provider, call, "FIRST", b"value")
    github.calls.clear()

    await push(provider, call, "DB", b"value")

    assert [asked.method for asked in github.calls] == ["PUT", "GET"]


async def test_all_stores_of_an_identity_share_one_token_which_is_renewed_before_it_expires(
    provider: InMemory, github: GitHubServer, clock: VirtualClock
) -> None:
    calls = [store(github.url, namespace=f"team-{number}", **OF_REPOSITORY) for number in range(10)]
    for call in calls:
        await check(provider, call, "DB")
    assert len(github.requests(TOKENS)) == 1

    for _ in range(12):
        await clock.advance(300)
        await check(provider, calls[0], "DB")

    assert len(github.requests(TOKENS)) == 2
    assert len(github.requests("GET */secrets/DB")) == 22, "a request was repeated after its token had expired"


async def test_a_token_that_github_revoked_is_replaced(provider: InMemory, github: GitHubServer) -> None:
    call = store(github.url, **OF_REPOSITORY)
    await push(provider, call, "DB", b"value")
    github.tokens.clear()

    assert (await check(provider, call, "DB")).exists
    assert len(github.requests(TOKENS)) == 2


async def test_a_wrong_key_costs_one_call_a_minute(
    provider: InMemory, github: GitHubServer, clock: VirtualClock
) -> None:
    call = store(github.url, appID=APP + 1)
    for _ in range(10):
        with pytest.raises(ProviderError) as failed:
            await check(provider, call, "DB")
        await clock.advance(5)
    assert failed.value.reason is ErrorReason.CREDENTIALS_REJECTED
    assert f'App "{APP + 1}"' in failed.value.message
    assert len(github.calls) == 1

    await clock.advance(15)
    with pytest.raises(ProviderError):
        await check(provider, call, "DB")

    assert len(github.calls) == 2


RESET = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(START.timestamp()) + 90)}


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        pytest.param(StandinResponse(429, headers={"Retry-After": "30"}), 30, id="429 with a time"),
        pytest.param(StandinResponse(403, headers={"Retry-After": "40"}), 40, id="403 with a time"),
        pytest.param(StandinResponse(403, headers=RESET), 90, id="403 with the time of a reset"),
        pytest.param(
            StandinResponse(403, {"message": "You have exceeded a secondary rate limit."}), 60, id="403 without a time"
        ),
    ],
)
async def test_a_limit_pauses_all_calls_of_the_identity(
    said: StandinResponse, seconds: int, provider: InMemory, github: GitHubServer, clock: VirtualClock
) -> None:
    call = store(github.url, **OF_REPOSITORY)
    await push(provider, call, "DB", b"value")
    github.script("GET *", said)
    github.calls.clear()

    with pytest.raises(ProviderError) as first:
        await check(provider, call, "DB")
    with pytest.raises(ProviderError) as second:
        await check(provider, store(github.url, namespace="other", **OF_REPOSITORY), "DB")

    assert (first.value.reason, second.value.reason) == (ErrorReason.RATE_LIMITED,) * 2
    assert first.value.retry_after == pytest.approx(seconds, abs=1)
    assert len(github.calls) == 1
    await clock.advance(seconds + 1)
    assert (await check(provider, call, "DB")).exists


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        pytest.param({}, 'the organization permission "Secrets: write"', id="an organization"),
        pytest.param(OF_REPOSITORY, 'the repository permission "Secrets: write"', id="a repository"),
        pytest.param(OF_ENVIRONMENT, 'the repository permission "Environments: write"', id="an environment"),
    ],
)
async def test_a_denial_names_the_place_and_the_permission(
    spec: Any, says: str, provider: InMemory, github: GitHubServer
) -> None:
    github.rights = {"contents": "read"}

    with pytest.raises(ProviderError) as failed:
        await push(provider, store(github.url, **spec), "DB", b"CANARY")

    assert failed.value.reason is ErrorReason.PERMISSION_DENIED
    assert says in failed.value.message
    assert "CANARY" not in failed.value.message


@pytest.mark.parametrize(
    ("name", "value", "more", "reason"),
    [
        pytest.param("db-password", b"v", {}, ErrorReason.INVALID_REQUEST, id="a name with a dash"),
        pytest.param("1DB", b"v", {}, ErrorReason.INVALID_REQUEST, id="a name with a digit first"),
        pytest.param("github_token", b"v", {}, ErrorReason.INVALID_REQUEST, id="a reserved name"),
        pytest.param("../x", b"v", {}, ErrorReason.INVALID_REQUEST, id="a name that leads elsewhere"),
        pytest.param("DB", b"v", {"property": "a"}, ErrorReason.INVALID_REQUEST, id="a property"),
        pytest.param("DB", b"v" * (MAX_VALUE + 1), {}, ErrorReason.PAYLOAD_TOO_LARGE, id="a large value"),
    ],
)
async def test_what_github_cannot_hold_is_refused_without_a_call(
    *, name: str, value: bytes, more: Any, reason: ErrorReason, provider: InMemory, github: GitHubServer
) -> None:
    with pytest.raises(ProviderError) as failed:
        await push(provider, store(github.url), name, value, **more)

    assert failed.value.reason is reason
    assert github.calls == []


async def test_a_secret_that_github_refuses_is_explained(provider: InMemory, github: GitHubServer) -> None:
    github.script(PUTS, *[StandinResponse(422, {"message": "CANARY"})] * 2)

    with pytest.raises(ProviderError) as failed:
        await push(provider, store(github.url, **OF_REPOSITORY), "DB", b"CANARY")

    assert failed.value.reason is ErrorReason.INVALID_REQUEST
    assert "CANARY" not in failed.value.message


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        pytest.param({"environment": "x"}, "/environment: needs a repository", id="an environment of no repository"),
        pytest.param({"organization": ""}, "/organization: must be set", id="no organization"),
        pytest.param({"orgSecretVisibility": "selected"}, "/orgSecretVisibility: must be", id="a visibility"),
        pytest.param({"url": "github"}, "/url: must be a URL", id="no URL"),
        pytest.param({"url": "https://me:CANARY@github.example.com"}, "/url: must not contain", id="a password"),
    ],
)
async def test_a_wrong_configuration_is_refused(spec: Any, says: str, provider: InMemory, github: GitHubServer) -> None:
    with pytest.raises(ProviderError) as failed:
        await check(provider, store(**({"url": github.url} | spec)), "DB")

    assert failed.value.reason is ErrorReason.CONFIG_INVALID
    assert failed.value.message.startswith(says)
    assert "CANARY" not in failed.value.message


@pytest.mark.parametrize(
    "key", ["", "CANARY", "-----BEGIN RSA PRIVATE KEY-----\nCANARY\n-----END RSA PRIVATE KEY-----"]
)
async def test_a_key_that_is_none_is_refused(key: str, provider: InMemory, github: GitHubServer) -> None:
    with pytest.raises(ProviderError) as failed:
        await check(provider, store(github.url, key=key), "DB")

    assert failed.value.reason is ErrorReason.CONFIG_INVALID
    assert failed.value.message.startswith("/auth/privateKey: the Secret holds no RSA private key")
    assert "CANARY" not in failed.value.message


async def test_a_missing_installation_is_named(provider: InMemory, github: GitHubServer) -> None:
    with pytest.raises(ProviderError, match='no installation "1" at GitHub'):
        await check(provider, store(github.url, installationID=1), "DB")


async def test_validation_lists_secrets(provider: InMemory, github: GitHubServer) -> None:
    validation = await provider.validate(store(github.url, **OF_REPOSITORY))

    assert validation.state is ValidationState.READY
    assert github.calls[-1].line == f"GET /api/v3/repos/{ORGANIZATION}/{REPOSITORY}/actions/secrets"


async def test_two_namespaces_with_different_keys_share_nothing(provider: InMemory, github: GitHubServer) -> None:
    await push(provider, store(github.url, namespace="one", **OF_REPOSITORY), "DB", b"value")

    with pytest.raises(ProviderError) as failed:
        await push(provider, store(github.url, namespace="two", appID=APP + 1, **OF_REPOSITORY), "DB", b"other")

    assert failed.value.reason is ErrorReason.CREDENTIALS_REJECTED
    assert github.values(REPOSITORY) == {"DB": b"value"}


async def test_the_body_of_a_push_has_what_github_needs_and_no_more(provider: InMemory, github: GitHubServer) -> None:
    await push(provider, store(github.url, **OF_REPOSITORY), "DB", b"value")
    await push(provider, store(github.url), "DB", b"value")

    assert [set(json.loads(asked.body)) for asked in github.requests(PUTS)] == [
        {"encrypted_value", "key_id"},
        {"encrypted_value", "key_id", "visibility"},
    ]
