"""GitlabDeployToken: what is sent, what comes back, and that unused tokens are deleted."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from eso_api.values import SecretBytes
from eso_provider_gitlab.testing.server import GUEST, READER, GitLabServer
from eso_provider_gitlab.testing.sessions import generator
from eso_sdk.testing import InMemory
from eso_sdk.testing.standin import StandinResponse
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import CleanupOutcome, CleanupRequest, Context, Generated, GenerateRequest, KindRole

CREATE = "POST *deploy_tokens"


async def generate(provider: InMemory, call: Context, key: str = "one") -> Generated:
    return await provider.generate(call, GenerateRequest(key))


async def clean(
    provider: InMemory, call: Context, state: dict[str, Any] | None = None, key: str = ""
) -> CleanupOutcome:
    raw = json.dumps(state).encode() if state is not None else b""
    return await provider.cleanup(call, CleanupRequest(SecretBytes(raw), key))


@pytest.mark.parametrize(
    ("place", "path"),
    [
        pytest.param({"projectID": "shop/app"}, "/api/v4/projects/shop%2Fapp/deploy_tokens", id="a project"),
        pytest.param({"groupID": "shop"}, "/api/v4/groups/shop/deploy_tokens", id="a group"),
    ],
)
async def test_a_token_is_created_with_the_fields_of_the_spec(
    place: Any, path: str, provider: InMemory, gitlab: GitLabServer
) -> None:
    gitlab.group("shop")
    call = generator(gitlab.url, username="puller", expiresAt="2027-01-31T13:00:00+01:00", **place)

    made = await generate(provider, call)

    (asked,) = gitlab.calls
    assert (asked.method, asked.raw_path) == ("POST", path)
    assert asked.json() == {
        "name": "pull",
        "scopes": ["read_registry"],
        "username": "puller",
        "expires_at": "2027-01-31T12:00:00Z",
    }
    assert made.data["username"].reveal() == b"puller"
    assert made.data["token"].reveal().startswith(b"gldt-")
    assert made.metadata.expires_at == datetime(2027, 1, 31, 12, tzinfo=UTC)


async def test_the_expiry_is_the_one_that_gitlab_tells(provider: InMemory, gitlab: GitLabServer) -> None:
    answer = {"id": 7, "username": "u", "token": "t", "expires_at": "2026-12-24T00:00:00.000Z"}
    gitlab.script(CREATE, StandinResponse(201, answer))

    made = await generate(provider, generator(gitlab.url, expiresAt="2027-01-31T12:00:00Z"))

    assert made.metadata.expires_at == datetime(2026, 12, 24, tzinfo=UTC)


async def test_gitlab_chooses_what_the_spec_leaves_out(provider: InMemory, gitlab: GitLabServer) -> None:
    made = await generate(provider, generator(gitlab.url))

    assert gitlab.calls[0].json() == {"name": "pull", "scopes": ["read_registry"]}
    assert made.data["username"].reveal().startswith(b"gitlab+deploy-token-")
    assert made.metadata.expires_at is None


async def test_the_state_deletes_the_token_and_holds_no_secret(provider: InMemory, gitlab: GitLabServer) -> None:
    call = generator(gitlab.url)
    made = await generate(provider, call)
    assert made.state is not None
    state = json.loads(made.state.reveal())
    (number,) = gitlab.project().tokens

    first, again = await clean(provider, call, state), await clean(provider, call, state)

    assert state == {"url": gitlab.url, "projectID": "shop/app", "tokenID": number}
    assert (first, again) == (CleanupOutcome.CLEANED, CleanupOutcome.ALREADY_GONE)
    assert gitlab.project().tokens == {}


@pytest.mark.parametrize(
    "state",
    [
        pytest.param({"url": "", "projectID": "shop/app", "groupID": "", "tokenID": 0}, id="no token"),
        pytest.param({}, id="nothing"),
    ],
)
async def test_a_state_without_a_token_needs_no_call(state: Any, provider: InMemory, gitlab: GitLabServer) -> None:
    assert await clean(provider, generator(gitlab.url), state) is CleanupOutcome.ALREADY_GONE
    assert gitlab.calls == []


async def test_the_access_token_is_never_sent_to_an_address_of_the_state(
    provider: InMemory, gitlab: GitLabServer
) -> None:
    with GitLabServer.started() as other:
        state = {"url": other.url, "projectID": "shop/app", "tokenID": 7}

        with pytest.raises(ProviderError, match="another GitLab"):
            await clean(provider, generator(gitlab.url), state)

        assert other.calls == []


async def test_a_repeated_call_leaves_one_token(provider: InMemory, gitlab: GitLabServer) -> None:
    call = generator(gitlab.url)

    await generate(provider, call, "same")
    second = await generate(provider, call, "same")

    (left,) = gitlab.project().tokens.values()
    assert left["token"].encode() == second.data["token"].reveal()


async def test_a_call_whose_answer_was_lost_is_cleaned_up(provider: InMemory, gitlab: GitLabServer) -> None:
    call = generator(gitlab.url)
    await generate(provider, call, "lost")

    assert await clean(provider, call, key="lost") is CleanupOutcome.CLEANED
    assert gitlab.project().tokens == {}
    with pytest.raises(ProviderError) as unknown:
        await clean(provider, call, key="never made")
    assert unknown.value.reason is ErrorReason.UNSUPPORTED_OPERATION


async def test_an_answer_without_a_token_leaves_none_behind(provider: InMemory, gitlab: GitLabServer) -> None:
    gitlab.script(CREATE, StandinResponse(201, {"id": 7, "username": "u", "token": ""}))

    with pytest.raises(ProviderError, match="answered without a deploy token"):
        await generate(provider, generator(gitlab.url))

    assert len(gitlab.requests("DELETE */deploy_tokens/7")) == 1


@pytest.mark.parametrize(
    ("token", "said", "reason", "says"),
    [
        pytest.param("wrong", None, ErrorReason.CREDENTIALS_REJECTED, "credentials", id="401"),
        pytest.param("guest", None, ErrorReason.PERMISSION_DENIED, "needs the scope api", id="a guest"),
        pytest.param("reader", None, ErrorReason.PERMISSION_DENIED, "needs the scope api", id="a reader"),
        pytest.param("stranger", None, ErrorReason.PERMISSION_DENIED, "does not exist, or", id="a stranger"),
        pytest.param(
            "reader",
            StandinResponse(400, {"message": "CANARY"}),
            ErrorReason.BACKEND_ERROR,
            "check name, username",
            id="400",
        ),
    ],
)
async def test_a_refusal_names_the_place_and_what_to_do(
    *,
    token: str,
    said: StandinResponse | None,
    reason: ErrorReason,
    says: str,
    provider: InMemory,
    gitlab: GitLabServer,
) -> None:
    gitlab.access = {"guest": {"shop/app": GUEST}, "reader": {"shop/app": READER}, "stranger": {}}
    if said is not None:
        gitlab.script(CREATE, said)

    with pytest.raises(ProviderError) as failed:
        await generate(provider, generator(gitlab.url, token=token))

    assert failed.value.reason is reason
    assert says in failed.value.message
    assert "CANARY" not in failed.value.message


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        pytest.param({"projectID": "a", "groupID": "b"}, "/projectID: exactly one", id="project and group"),
        pytest.param({"scopes": []}, "/scopes: needs", id="no scope"),
        pytest.param({"expiresAt": "soon"}, "/expiresAt: must be a time", id="no time"),
    ],
)
async def test_a_wrong_configuration_is_refused(spec: Any, says: str, provider: InMemory, gitlab: GitLabServer) -> None:
    with pytest.raises(ProviderError) as failed:
        await generate(provider, generator(gitlab.url, **spec))

    assert failed.value.reason is ErrorReason.CONFIG_INVALID
    assert failed.value.message.startswith(says)


async def test_validation_lists_tokens_and_creates_none(provider: InMemory, gitlab: GitLabServer) -> None:
    await provider.validate(generator(gitlab.url), role=KindRole.GENERATOR)

    assert [call.line for call in gitlab.calls] == ["GET /api/v4/projects/shop/app/deploy_tokens"]
