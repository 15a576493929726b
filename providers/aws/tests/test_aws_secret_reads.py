"""Reading secrets: how many calls a batch costs, and what becomes of each item."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from eso_provider_aws.provider import SecretsManager
from eso_provider_aws.testing.front import Front, refused
from eso_provider_aws.testing.sessions import admin, context, read
from eso_sdk.testing import InMemory
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import RemoteRef


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


async def test_without_the_permission_for_batches_secrets_are_read_one_by_one_and_the_store_says_so(
    front: Front, provider: InMemory, secrets_manager: Any
) -> None:
    names = _names(3)
    for name in names:
        secrets_manager.create_secret(Name=name, SecretString=name)
    front.answer("BatchGetSecretValue", refused("AccessDeniedException"))
    call = context(SecretsManager)
    assert await read(provider, call, *names) == [name.encode() for name in names]
    assert await read(provider, call, *names) == [name.encode() for name in names]
    assert front.counts == {"BatchGetSecretValue": 1, "GetSecretValue": 6}
    (condition,) = (await provider.validate(call)).conditions
    assert (condition.type, condition.status) == ("BatchReads", "False")
    assert "secretsmanager:BatchGetSecretValue" in condition.message
