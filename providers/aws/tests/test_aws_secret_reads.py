"""Reading secrets: how many calls a batch costs, and what becomes of each item."""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import Any

import pytest

from eso_provider_aws.provider import SecretsManager
from eso_provider_aws.testing.front import Front, RecordedRequest, StubResponse, refused
from eso_provider_aws.testing.sessions import admin, context, read
from eso_sdk.testing import InMemory
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import MetadataPolicy, RemoteRef


def _names(count: int) -> list[str]:
    stem = uuid.uuid4().hex
    return [f"{stem}/{number}" for number in range(count)]


async def test_45_secrets_due_together_cost_three_calls(either: Front, provider: InMemory, server: str) -> None:
    names = _names(45)
    client = admin("secretsmanager", server)
    for name in names:
        client.create_secret(Name=name, SecretString=f"value of {name}")
    values = await read(provider, context(SecretsManager), *names)
    assert values == [f"value of {name}".encode() for name in names]
    assert either.counts == {"BatchGetSecretValue": 3}


@pytest.mark.usefixtures("either")
async def test_a_secret_that_is_missing_fails_alone(provider: InMemory, server: str) -> None:
    there, absent = _names(2)
    admin("secretsmanager", server).create_secret(Name=there, SecretString="here")
    value, missing = await read(provider, context(SecretsManager), there, absent)
    assert value == b"here"
    assert isinstance(missing, ProviderError)
    assert missing.reason is ErrorReason.SECRET_NOT_FOUND
    assert missing.message == f'secret "{absent}" in eu-west-1 does not exist'


async def test_properties_of_one_secret_share_a_read(front: Front, provider: InMemory, secrets_manager: Any) -> None:
    (name,) = _names(1)
    secrets_manager.create_secret(Name=name, SecretString=json.dumps({"user": "ann", "a.b": "literal", "n": [1, 2]}))
    refs = [RemoteRef(name, property=part) for part in ("user", "a.b", "n.1", "")]
    user, literal, number, _whole = await read(provider, context(SecretsManager), *refs)
    assert (user, literal, number) == (b"ann", b"literal", b"2")
    assert front.counts == {"GetSecretValue": 1}


async def test_without_the_permission_for_batches_secrets_are_read_one_by_one_and_the_store_reports_so(
    front: Front, provider: InMemory, secrets_manager: Any
) -> None:
    names = _names(3)
    for name in names:
        secrets_manager.create_secret(Name=name, SecretString=name)
    front.respond("BatchGetSecretValue", refused("AccessDeniedException"))
    call = context(SecretsManager)
    assert await read(provider, call, *names) == [name.encode() for name in names]
    assert await read(provider, call, *names) == [name.encode() for name in names]
    assert front.counts == {"BatchGetSecretValue": 1, "GetSecretValue": 6}
    (condition,) = (await provider.validate(call)).conditions
    assert (condition.type, condition.status) == ("BatchReads", "False")
    assert "secretsmanager:BatchGetSecretValue" in condition.message


async def test_without_the_permission_for_batches_single_reads_run_side_by_side(
    front: Front, provider: InMemory, secrets_manager: Any
) -> None:
    names = _names(8)
    for name in names:
        secrets_manager.create_secret(Name=name, SecretString=name)
    front.respond("BatchGetSecretValue", refused("AccessDeniedException"))
    together = asyncio.Barrier(len(names))

    async def wait(_asked: RecordedRequest) -> StubResponse | None:
        await together.wait()
        return None

    front.respond("GetSecretValue", wait)
    assert await read(provider, context(SecretsManager), *names) == [name.encode() for name in names]


async def test_a_batch_that_one_secret_spoils_is_read_one_by_one_and_nothing_else_is_missing(
    front: Front, provider: InMemory, secrets_manager: Any
) -> None:
    """A batch answered as a whole with "not found" says nothing about the single secret."""
    there, absent = _names(2)
    secrets_manager.create_secret(Name=there, SecretString="here")
    front.respond("BatchGetSecretValue", refused("ResourceNotFoundException"))
    call = context(SecretsManager)
    value, missing = await read(provider, call, there, absent)
    assert value == b"here"
    assert isinstance(missing, ProviderError)
    assert missing.reason is ErrorReason.SECRET_NOT_FOUND
    await read(provider, call, there, absent)
    assert front.count("BatchGetSecretValue") == 2, "batches are still tried"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        pytest.param("ThrottlingException", ErrorReason.RATE_LIMITED, id="limited"),
        pytest.param("InternalServiceError", ErrorReason.BACKEND_UNAVAILABLE, id="down"),
    ],
)
async def test_a_batch_that_the_service_cannot_serve_is_not_read_one_by_one(
    front: Front, provider: InMemory, code: str, reason: ErrorReason
) -> None:
    front.respond("BatchGetSecretValue", refused(code, status=500 if code.startswith("Internal") else 400))
    failures = await read(provider, context(SecretsManager), *_names(3))
    assert {failure.reason for failure in failures if isinstance(failure, ProviderError)} == {reason}
    assert front.counts == {"BatchGetSecretValue": 1}


async def test_a_secret_that_a_batch_leaves_out_is_read_alone(
    front: Front, provider: InMemory, secrets_manager: Any
) -> None:
    names = _names(2)
    for name in names:
        secrets_manager.create_secret(Name=name, SecretString=name)
    front.respond("BatchGetSecretValue", StubResponse(200, b'{"SecretValues": [], "Errors": []}'))
    assert await read(provider, context(SecretsManager), *names) == [name.encode() for name in names]
    assert front.counts == {"BatchGetSecretValue": 1, "GetSecretValue": 2}


async def test_arns_and_partial_arns_are_found_in_a_batch(
    front: Front, provider: InMemory, secrets_manager: Any
) -> None:
    first, second = _names(2)
    arn = secrets_manager.create_secret(Name=first, SecretString="1")["ARN"]
    other = secrets_manager.create_secret(Name=second, SecretString="2")["ARN"]
    response = [{"ARN": arn, "Name": first, "SecretString": "1"}, {"ARN": other, "Name": second, "SecretString": "2"}]
    # moto knows no partial ARNs in batches
    front.respond("BatchGetSecretValue", StubResponse(200, json.dumps({"SecretValues": response}).encode()))
    assert await read(provider, context(SecretsManager), arn, other[:-7]) == [b"1", b"2"]
    assert front.counts == {"BatchGetSecretValue": 1}


async def test_bytes_are_read_as_they_are_alone_and_in_a_batch(either: Front, provider: InMemory, server: str) -> None:
    names = _names(2)
    for name in names:
        admin("secretsmanager", server).create_secret(Name=name, SecretBinary=b"\xff\x00\n")
    call = context(SecretsManager)
    assert await read(provider, call, *names) == [b"\xff\x00\n"] * 2
    assert await read(provider, call, names[0]) == [b"\xff\x00\n"]
    assert either.counts == {"BatchGetSecretValue": 1, "GetSecretValue": 1}


async def test_a_secret_without_a_value_is_an_error_and_does_not_count_as_missing(
    front: Front, provider: InMemory, secrets_manager: Any
) -> None:
    empty, full = _names(2)
    secrets_manager.create_secret(Name=empty)
    secrets_manager.create_secret(Name=full, SecretString="here")
    call = context(SecretsManager)
    for refs in ((empty,), (empty, full)):
        missing, *rest = await read(provider, call, *refs)
        assert isinstance(missing, ProviderError)
        assert missing.reason is ErrorReason.VERSION_NOT_FOUND
        assert rest in ([], [b"here"])
    assert front.count("BatchGetSecretValue") == 1


async def test_a_text_without_characters_is_an_empty_value(front: Front, provider: InMemory) -> None:
    front.respond("GetSecretValue", StubResponse(200, b'{"Name": "x", "ARN": "arn:x", "SecretString": ""}'))
    assert await read(provider, context(SecretsManager), "x") == [b""]


async def test_a_response_without_text_and_bytes_is_an_error(front: Front, provider: InMemory) -> None:
    front.respond("GetSecretValue", StubResponse(200, b'{"Name": "x", "ARN": "arn:x"}'))
    (failed,) = await read(provider, context(SecretsManager), "x")
    assert isinstance(failed, ProviderError)
    assert failed.reason is ErrorReason.BACKEND_ERROR


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param(MetadataPolicy.NONE, id="its value"),
        pytest.param(MetadataPolicy.FETCH, id="its tags"),
    ],
)
async def test_a_secret_that_is_marked_for_deletion_does_not_exist(
    either: Front, provider: InMemory, server: str, policy: MetadataPolicy
) -> None:
    (name,) = _names(1)
    client = admin("secretsmanager", server)
    client.create_secret(Name=name, SecretString="here", Tags=[{"Key": "team", "Value": "red"}])
    client.delete_secret(SecretId=name)
    text = "You can't perform this operation on the secret because it was marked for deletion."
    either.respond("GetSecretValue", refused("InvalidRequestException", text))  # moto has words of its own
    (missing,) = await read(provider, context(SecretsManager), RemoteRef(name, metadata_policy=policy))
    assert isinstance(missing, ProviderError)
    assert missing.reason is ErrorReason.SECRET_NOT_FOUND
    assert missing.message == f'secret "{name}" in eu-west-1 is marked for deletion'


@pytest.mark.usefixtures("front")
async def test_versions_stages_and_tags_are_read(provider: InMemory, secrets_manager: Any) -> None:
    (name,) = _names(1)
    first = secrets_manager.create_secret(Name=name, SecretString="old", Tags=[{"Key": "a.b", "Value": "red"}])
    secrets_manager.put_secret_value(SecretId=name, SecretString="new")
    refs = [
        RemoteRef(name),
        RemoteRef(name, version="AWSPREVIOUS"),
        RemoteRef(name, version=f"uuid/{first['VersionId']}"),
        RemoteRef(name, metadata_policy=MetadataPolicy.FETCH),
        RemoteRef(name, property="a.b", metadata_policy=MetadataPolicy.FETCH),
    ]
    assert await read(provider, context(SecretsManager), *refs) == [b"new", b"old", b"old", b'{"a.b":"red"}', b"red"]


async def test_a_prefix_is_put_before_every_key(front: Front, provider: InMemory, secrets_manager: Any) -> None:
    (name,) = _names(1)
    secrets_manager.create_secret(Name=f"team/{name}", SecretString="here")
    assert await read(provider, context(SecretsManager, prefix="team/"), name) == [b"here"]
    assert front.requests[0].body["SecretId"] == f"team/{name}"
