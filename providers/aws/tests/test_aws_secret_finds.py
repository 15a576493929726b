"""Finding secrets by name, tags and path, and checking whether they exist."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from eso_provider_aws.provider import SecretsManager
from eso_provider_aws.testing.front import Front, RecordedRequest, StubResponse, refused
from eso_provider_aws.testing.sessions import admin, context
from eso_sdk.testing import InMemory
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import CheckResult, Context, FindQuery, GetItem, MetadataPolicy, RemoteRef


@pytest.fixture
def stem() -> str:
    return uuid.uuid4().hex


def _tags(**tags: str) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


async def _found(provider: InMemory, call: Context, query: FindQuery) -> dict[str, bytes]:
    return {found.key: found.value.reveal() for found in await provider.find(call, query)}


async def _check(provider: InMemory, call: Context, ref: RemoteRef) -> CheckResult:
    (result,) = await provider.check(call, [GetItem("only", ref)])
    return result


# --- find ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        pytest.param({"path": "{}/"}, {"app/db", "app/web", "other"}, id="path is a prefix of the name"),
        pytest.param({"path": "{}/", "name_regexp": "db$"}, {"app/db"}, id="name is searched for in the whole name"),
        pytest.param({"name_regexp": "{}/app/(db|web)"}, {"app/db", "app/web"}, id="name without path"),
        pytest.param({"path": "{}/", "tags": {"team": "red"}}, {"app/db"}, id="tags are compared exactly"),
        pytest.param({"path": "{}/", "tags": {"team": "red", "tier": "1"}}, {"app/db"}, id="all tags must fit"),
        pytest.param({"path": "{}/", "tags": {"team": "red", "tier": "2"}}, set(), id="one tag does not fit"),
        pytest.param({"path": "{}/", "tags": {"team": "redder"}}, {"app/web"}, id="tags are no prefixes"),
        pytest.param({"path": "{}/", "tags": {"team": "1"}}, set(), id="keys and values belong together"),
        pytest.param({"path": "{}/", "name_regexp": "web", "tags": {"team": "red"}}, set(), id="name and tags both"),
        pytest.param({"path": "{}/missing"}, set(), id="nothing matches"),
    ],
)
@pytest.mark.usefixtures("either")
async def test_a_query_finds_the_secrets_that_match_its_path_name_and_tags(
    provider: InMemory, server: str, stem: str, query: dict[str, Any], expected: set[str]
) -> None:
    client = admin("secretsmanager", server)
    client.create_secret(Name=f"{stem}/app/db", SecretString="db", Tags=_tags(team="red", tier="1"))
    client.create_secret(Name=f"{stem}/app/web", SecretString="web", Tags=_tags(team="redder"))
    client.create_secret(Name=f"{stem}/other", SecretString="other")
    client.create_secret(Name=f"x{stem}/app", SecretString="elsewhere", Tags=_tags(team="red"))
    request: dict[str, Any] = {
        name: part.format(stem) if isinstance(part, str) else part for name, part in query.items()
    }

    found = await _found(provider, context(SecretsManager), FindQuery(**request))

    assert set(found) == {f"{stem}/{name}" for name in expected}
    assert all(value == key.rpartition("/")[2].encode() for key, value in found.items())


async def test_45_matches_cost_one_list_and_three_batches(
    front: Front, provider: InMemory, secrets_manager: Any, stem: str
) -> None:
    for number in range(45):
        secrets_manager.create_secret(Name=f"{stem}/{number}", SecretString="x")

    found = await _found(provider, context(SecretsManager), FindQuery(path=f"{stem}/"))

    assert len(found) == 45
    assert front.counts == {"ListSecrets": 1, "BatchGetSecretValue": 3}


async def test_a_list_is_followed_to_its_last_page(
    front: Front, provider: InMemory, secrets_manager: Any, stem: str
) -> None:
    for number in range(103):
        secrets_manager.create_secret(Name=f"{stem}/{number}", SecretString="x")

    found = await _found(provider, context(SecretsManager), FindQuery(path=f"{stem}/"))

    assert len(found) == 103
    assert front.counts == {"ListSecrets": 2, "BatchGetSecretValue": 6}


@pytest.mark.usefixtures("either")
async def test_the_prefix_of_the_store_is_not_put_before_full_names(provider: InMemory, server: str, stem: str) -> None:
    admin("secretsmanager", server).create_secret(Name=f"{stem}/app", SecretString="here")

    found = await _found(provider, context(SecretsManager, prefix=f"{stem}/"), FindQuery(name_regexp=f"^{stem}/app$"))

    assert found == {f"{stem}/app": b"here"}


async def test_secrets_that_vanish_after_the_list_and_secrets_without_a_value_are_left_out(
    front: Front, provider: InMemory, secrets_manager: Any, stem: str
) -> None:
    for name in ("stays", "vanishes", "doomed"):
        secrets_manager.create_secret(Name=f"{stem}/{name}", SecretString=name)
    secrets_manager.create_secret(Name=f"{stem}/empty")
    text = "You can't perform this operation on the secret because it was marked for deletion."

    def gone(request: RecordedRequest) -> StubResponse | None:
        if request.body["SecretId"].endswith("vanishes"):
            return refused("ResourceNotFoundException", "Secrets Manager can't find the specified secret.")
        return refused("InvalidRequestException", text) if request.body["SecretId"].endswith("doomed") else None

    front.respond("BatchGetSecretValue", refused("AccessDeniedException"))
    front.respond("GetSecretValue", gone)

    found = await _found(provider, context(SecretsManager), FindQuery(path=f"{stem}/"))

    assert found == {f"{stem}/stays": b"stays"}


async def test_a_match_that_may_not_be_read_fails_the_find(
    front: Front, provider: InMemory, secrets_manager: Any, stem: str
) -> None:
    """A key that silently disappears would be removed from the target."""
    names = [f"{stem}/1", f"{stem}/2"]
    for name in names:
        secrets_manager.create_secret(Name=name, SecretString="x")
    denied = {"SecretId": names[0], "ErrorCode": "AccessDeniedException", "Message": "x"}
    value = {"ARN": "arn:x", "Name": names[1], "SecretString": "x"}
    front.respond(
        "BatchGetSecretValue", StubResponse(200, json.dumps({"SecretValues": [value], "Errors": [denied]}).encode())
    )

    with pytest.raises(ProviderError, match="allow secretsmanager:GetSecretValue") as caught:
        await _found(provider, context(SecretsManager), FindQuery(path=f"{stem}/"))

    assert caught.value.reason is ErrorReason.PERMISSION_DENIED
    assert names[0] in caught.value.message


async def test_a_denied_list_names_the_permission(front: Front, provider: InMemory) -> None:
    front.respond("ListSecrets", refused("AccessDeniedException"))

    with pytest.raises(ProviderError, match="allow secretsmanager:ListSecrets") as caught:
        await _found(provider, context(SecretsManager), FindQuery(name_regexp="x"))

    assert caught.value.reason is ErrorReason.PERMISSION_DENIED


async def test_an_invalid_pattern_is_refused_before_any_call(front: Front, provider: InMemory) -> None:
    with pytest.raises(ProviderError, match=r"not a regular expression \(RE2\): ") as caught:
        await _found(provider, context(SecretsManager), FindQuery(name_regexp="(?=x)"))

    assert caught.value.reason is ErrorReason.INVALID_REQUEST
    assert front.counts == {}


# --- check -----------------------------------------------------------------------------------------------------------


async def test_a_check_needs_no_right_to_read_the_value(either: Front, provider: InMemory, server: str) -> None:
    name = uuid.uuid4().hex
    made = admin("secretsmanager", server).create_secret(Name=name, SecretString="x")
    call = context(SecretsManager)

    there, absent = [await _check(provider, call, RemoteRef(key)) for key in (name, f"{name}x")]

    assert (there.exists, there.provider_version) == (True, made["VersionId"])
    assert (absent.exists, absent.error) == (False, None)
    assert either.counts == {"DescribeSecret": 2}


@pytest.mark.parametrize(
    ("ref", "exists", "call"),
    [
        pytest.param({"property": "user"}, True, "GetSecretValue", id="property that is there"),
        pytest.param({"property": "port"}, False, "GetSecretValue", id="property that is missing"),
        pytest.param({"version": "AWSCURRENT"}, True, "GetSecretValue", id="stage that is there"),
        pytest.param({"property": "team", "metadata_policy": MetadataPolicy.FETCH}, True, "DescribeSecret", id="tag"),
        pytest.param(
            {"property": "tier", "metadata_policy": MetadataPolicy.FETCH}, False, "DescribeSecret", id="no tag"
        ),
    ],
)
async def test_a_check_of_a_part_reads_it(
    front: Front, provider: InMemory, ref: dict[str, Any], exists: bool, call: str
) -> None:
    name = uuid.uuid4().hex
    tags = _tags(team="red")
    admin("secretsmanager", front.behind).create_secret(Name=name, SecretString='{"user":"ann"}', Tags=tags)

    result = await _check(provider, context(SecretsManager), RemoteRef(name, **ref))

    assert (result.exists, result.error) == (exists, None)
    assert front.counts == {call: 1}


@pytest.mark.usefixtures("either")
async def test_a_secret_that_is_marked_for_deletion_does_not_exist(provider: InMemory, server: str) -> None:
    name = uuid.uuid4().hex
    client = admin("secretsmanager", server)
    client.create_secret(Name=name, SecretString="x")
    client.delete_secret(SecretId=name)

    result = await _check(provider, context(SecretsManager), RemoteRef(name))

    assert (result.exists, result.error) == (False, None)


@pytest.mark.usefixtures("front")
async def test_a_secret_without_a_value_does_not_exist(provider: InMemory, secrets_manager: Any) -> None:
    name = uuid.uuid4().hex
    secrets_manager.create_secret(Name=name)

    result = await _check(provider, context(SecretsManager), RemoteRef(name))

    assert (result.exists, result.error) == (False, None)


async def test_a_check_that_is_denied_reports_neither_yes_nor_no(front: Front, provider: InMemory) -> None:
    front.respond("DescribeSecret", refused("AccessDeniedException"))

    result = await _check(provider, context(SecretsManager), RemoteRef("x"))

    assert result.error is not None
    assert "allow secretsmanager:DescribeSecret" in result.error.message
