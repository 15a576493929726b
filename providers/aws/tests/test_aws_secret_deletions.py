"""Deletions of secrets and of single properties."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from eso_provider_aws.provider import SecretsManager
from eso_provider_aws.testing.front import Front, refused
from eso_provider_aws.testing.sessions import admin, context, outcome
from eso_sdk.testing import InMemory
from eso_sdk.testing.server import delete_parts, item
from eso_wire.errors import ErrorReason
from eso_wire.values import DeleteBatch, DeleteItem, PushOutcome, RemoteRef, ValidationMode

OURS = [{"Key": "managed-by", "Value": "external-secrets"}]


@pytest.fixture
def name() -> str:
    return f"delete/{uuid.uuid4().hex}"


@pytest.fixture
def client(server: str) -> Any:
    return admin("secretsmanager", server)


@pytest.mark.parametrize(
    ("spec", "sent"),
    [
        pytest.param({}, {}, id="with the recovery window of AWS"),
        pytest.param(
            {"deletion": {"forceDeleteWithoutRecovery": True}}, {"ForceDeleteWithoutRecovery": True}, id="at once"
        ),
        pytest.param({"deletion": {"recoveryWindowInDays": 7}}, {"RecoveryWindowInDays": 7}, id="after seven days"),
        pytest.param(
            {"secretsManager": {"recoveryWindowInDays": 9}}, {"RecoveryWindowInDays": 9}, id="as a v1 block says it"
        ),
    ],
)
async def test_a_secret_of_ours_is_deleted_by_its_arn(
    either: Front, provider: InMemory, name: str, spec: dict[str, Any], sent: dict[str, Any]
) -> None:
    arn = admin("secretsmanager", either.behind).create_secret(Name=name, SecretBinary=b"x", Tags=OURS)["ARN"]

    assert await delete_parts(provider, context(SecretsManager, **spec), name) == [True]

    assert either.counts == {"DescribeSecret": 1, "DeleteSecret": 1}
    assert either.requests[-1].body == {"SecretId": arn, **sent}


async def test_replicas_are_removed_first(front: Front, provider: InMemory, secrets_manager: Any, name: str) -> None:
    replicas = [{"Region": "us-east-1"}, {"Region": "eu-west-3"}]
    secrets_manager.create_secret(Name=name, SecretBinary=b"x", Tags=OURS, AddReplicaRegions=replicas)

    assert await delete_parts(provider, context(SecretsManager), name) == [True]

    assert [request.operation for request in front.requests] == [
        "DescribeSecret",
        "RemoveRegionsFromReplication",
        "DeleteSecret",
    ]
    assert "DeletedDate" in secrets_manager.describe_secret(SecretId=name)


@pytest.mark.parametrize("state", ["absent", "foreign", "marked"])
async def test_a_secret_that_is_foreign_deleted_or_absent_is_left_alone(
    either: Front, provider: InMemory, client: Any, name: str, state: str
) -> None:
    if state != "absent":
        client.create_secret(Name=name, SecretBinary=b"x", Tags=OURS if state == "marked" else [])
    if state == "marked":
        client.delete_secret(SecretId=name)

    assert await delete_parts(provider, context(SecretsManager), name) == [False]
    assert await delete_parts(provider, context(SecretsManager), name, "part") == [False]

    assert either.counts == {"DescribeSecret": 2}


async def test_a_property_is_removed_and_the_rest_stays_in_its_form(
    either: Front, provider: InMemory, client: Any, name: str
) -> None:
    client.create_secret(Name=name, SecretString='{"a.b":"1","b":null,"c":"3"}', Tags=OURS)

    assert await delete_parts(provider, context(SecretsManager), name, "a.b", "gone", "c") == [True, False, True]

    assert client.get_secret_value(SecretId=name)["SecretString"] == '{"b":null}'
    assert either.counts == {"DescribeSecret": 1, "GetSecretValue": 1, "PutSecretValue": 1}


async def test_the_last_property_takes_the_secret_with_it(
    either: Front, provider: InMemory, client: Any, name: str
) -> None:
    client.create_secret(Name=name, SecretString='{"deep":{"a":"1"},"b":"2"}', Tags=OURS)

    assert await delete_parts(provider, context(SecretsManager), name, "deep.a", "b") == [True, True]

    assert either.counts == {"DescribeSecret": 1, "GetSecretValue": 1, "DeleteSecret": 1}


@pytest.mark.parametrize("value", ["plain text", '{"b":"2"}'], ids=["no JSON", "no such property"])
async def test_a_property_that_is_not_there_changes_nothing(
    front: Front, provider: InMemory, secrets_manager: Any, name: str, value: str
) -> None:
    secrets_manager.create_secret(Name=name, SecretString=value, Tags=OURS)

    assert await delete_parts(provider, context(SecretsManager), name, "a") == [False]

    assert front.counts == {"DescribeSecret": 1, "GetSecretValue": 1}


async def test_a_push_that_is_deleted_and_made_again_works(
    either: Front, provider: InMemory, client: Any, name: str
) -> None:
    call = context(SecretsManager)

    outcomes = []
    for _ in range(2):
        outcomes.append(await outcome(provider, call, item(name, b"x")))
        assert await delete_parts(provider, call, name) == [True]
    outcomes.append(await outcome(provider, call, item(name, b"x")))

    assert outcomes == [PushOutcome.CREATED] * 3
    assert client.get_secret_value(SecretId=name)["SecretBinary"] == b"x"
    assert (either.count("RestoreSecret"), either.count("PutSecretValue")) == (2, 0)


async def test_a_denied_deletion_names_the_permission(
    front: Front, provider: InMemory, secrets_manager: Any, name: str
) -> None:
    secrets_manager.create_secret(Name=name, SecretBinary=b"x", Tags=OURS)
    front.respond("DeleteSecret", refused("AccessDeniedException"))
    items = (DeleteItem("only", RemoteRef(name), owner_token="external-secrets"),)

    (result,) = await provider.delete(context(SecretsManager), DeleteBatch(items, idempotency_key="once"))

    assert result.error is not None
    assert result.error.reason is ErrorReason.PERMISSION_DENIED
    assert "allow secretsmanager:DeleteSecret" in result.error.message


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        pytest.param({"deletion": {"recoveryWindowInDays": 3}}, "/deletion/recoveryWindowInDays", id="too short"),
        pytest.param(
            {"secretsManager": {"recoveryWindowInDays": 31}}, "/secretsManager/recoveryWindowInDays", id="too long"
        ),
        pytest.param(
            {"deletion": {"recoveryWindowInDays": 7, "forceDeleteWithoutRecovery": True}},
            "forceDeleteWithoutRecovery excludes recoveryWindowInDays",
            id="both ways at once",
        ),
    ],
)
async def test_a_store_that_reports_how_to_delete_in_no_valid_way_is_refused(
    provider: InMemory, spec: dict[str, Any], text: str
) -> None:
    report = await provider.validate(context(SecretsManager, **spec), ValidationMode.STATIC)

    assert report.error is not None
    assert report.error.reason is ErrorReason.CONFIG_INVALID
    assert text in report.error.message
