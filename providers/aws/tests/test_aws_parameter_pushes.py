"""Pushes of parameters: the values that are written or unchanged, and the number of calls."""

from __future__ import annotations

import asyncio
import base64
import json
import uuid
from typing import Any

import pytest

from eso_provider_aws.testing.front import Front, RecordedRequest, StubResponse, refused
from eso_provider_aws.testing.sessions import (
    MARK,
    OURS,
    admin,
    delete_parameter,
    described,
    parameter_exists,
    parameter_outcome,
    parameter_refusal,
    push_parameters,
    tags_at,
    value_of,
)
from eso_sdk.testing import InMemory
from eso_sdk.testing.server import envelope, item
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import PushOutcome, PushPrecondition

pytestmark = pytest.mark.usefixtures("parameters_ready")
CREATED, UPDATED, UNCHANGED = PushOutcome.CREATED, PushOutcome.UPDATED, PushOutcome.UNCHANGED
SKIPPED = PushOutcome.SKIPPED_EXISTS
IF_ABSENT = PushPrecondition.IF_ABSENT


@pytest.fixture
def key() -> str:
    return f"/{uuid.uuid4().hex}/db"


# --- values ----------------------------------------------------------------------------------------------------------


async def test_a_new_parameter_is_created_with_our_mark(
    either: Front, provider: InMemory, server: str, key: str
) -> None:
    (result,) = await push_parameters(provider, item(key, b"hunter2"))

    client = admin("ssm", server)
    assert (result.outcome, result.provider_version) == (CREATED, "1")
    assert value_of(client, key) == "hunter2"
    assert tags_at(client, key) == MARK
    assert described(client, key)["Type"] == "String"
    assert described(client, key)["Description"] == "secret 'managed-by:external-secrets'"
    assert either.counts == {"GetParameter": 1, "PutParameter": 1}


async def test_a_parameter_of_ours_is_overwritten_once_and_then_left_alone(
    either: Front, provider: InMemory, server: str, key: str
) -> None:
    await push_parameters(provider, item(key, b"old"))

    (result,) = await push_parameters(provider, item(key, b"new"))
    either.forget()

    assert (result.outcome, result.provider_version) == (UPDATED, "2")
    assert value_of(admin("ssm", server), key) == "new"
    assert await parameter_outcome(provider, item(key, b"new")) is UNCHANGED
    assert either.counts == {"GetParameter": 1, "ListTagsForResource": 1}


@pytest.mark.parametrize(
    "marked",
    [pytest.param([], id="without tags"), pytest.param([{"Key": "managed-by", "Value": "terraform"}], id="of another")],
)
async def test_a_parameter_that_is_not_ours_is_neither_written_nor_deleted(
    front: Front, provider: InMemory, ssm: Any, key: str, marked: list[dict[str, str]]
) -> None:
    ssm.put_parameter(Name=key, Value="theirs", Type="String", Tags=marked)

    refused_push = await parameter_refusal(provider, item(key, b"canary"))

    assert refused_push.reason is ErrorReason.OWNERSHIP_CONFLICT
    assert f'parameter "{key}" in eu-west-1' in refused_push.message
    assert "canary" not in refused_push.message
    assert await delete_parameter(provider, key) == [False]
    assert await delete_parameter(provider, key, "part") == [False]
    assert value_of(ssm, key) == "theirs"
    assert not {"PutParameter", "DeleteParameter", "AddTagsToResource"} & front.counts.keys()


@pytest.mark.usefixtures("front")
async def test_the_mark_may_have_another_value(provider: InMemory, ssm: Any, key: str) -> None:
    assert await parameter_outcome(provider, item(key, b"1", owner_token="other-cluster")) is CREATED

    assert tags_at(ssm, key) == {"managed-by": "other-cluster"}
    assert (await parameter_refusal(provider, item(key, b"2"))).reason is ErrorReason.OWNERSHIP_CONFLICT
    assert await delete_parameter(provider, key) == [False]
    assert await delete_parameter(provider, key, owner="other-cluster") == [True]


@pytest.mark.usefixtures("front")
async def test_the_prefix_is_put_before_the_key(provider: InMemory, ssm: Any, key: str) -> None:
    await push_parameters(provider, item("db", b"value"), prefix=key.removesuffix("db"))

    assert value_of(ssm, key) == "value"


@pytest.mark.parametrize(
    ("spec", "stored"),
    [
        pytest.param({}, {"b": base64.b64encode(b"<2>").decode(), "a": "MQ=="}, id="in base64"),
        pytest.param({"encodeAsDecoded": True}, {"a": "1", "b": "<2>"}, id="as text if the metadata says so"),
    ],
)
@pytest.mark.usefixtures("front")
async def test_a_whole_secret_is_one_json_object(
    provider: InMemory, ssm: Any, key: str, spec: dict[str, Any], stored: dict[str, str]
) -> None:
    await push_parameters(provider, item(key, {"b": b"<2>", "a": b"1"}, provider_metadata=envelope(**spec)))

    assert value_of(ssm, key) == json.dumps(dict(sorted(stored.items())), separators=(",", ":"))


# --- properties ------------------------------------------------------------------------------------------------------


async def test_properties_of_one_parameter_become_one_version_and_keep_the_rest(
    either: Front, provider: InMemory, server: str, key: str
) -> None:
    client = admin("ssm", server)
    client.put_parameter(Name=key, Value='{"kept": 1, "a.b":"x"}', Type="String", Tags=OURS)

    results = await push_parameters(
        provider, item(key, b"ann", "user.name"), item(key, b"y", "a.b"), item(key, b"z", "new")
    )

    assert {(result.outcome, result.provider_version) for result in results} == {(UPDATED, "2")}
    expected = {"kept": 1, "a.b": "y", "user": {"name": "ann"}, "new": "z"}
    assert json.loads(value_of(client, key)) == expected
    assert either.count("PutParameter") == 1


@pytest.mark.usefixtures("front")
async def test_a_property_creates_the_parameter(provider: InMemory, ssm: Any, key: str) -> None:
    assert await parameter_outcome(provider, item(key, b"ann", "user")) is CREATED

    assert value_of(ssm, key) == '{"user":"ann"}'


@pytest.mark.usefixtures("front")
async def test_a_property_is_not_set_in_a_value_that_is_not_json(provider: InMemory, ssm: Any, key: str) -> None:
    ssm.put_parameter(Name=key, Value="canary", Type="String", Tags=OURS)

    refused_push = await parameter_refusal(provider, item(key, b"ann", "user"))

    assert refused_push.reason is ErrorReason.INVALID_REQUEST
    assert "canary" not in refused_push.message
    assert value_of(ssm, key) == "canary"


@pytest.mark.usefixtures("front")
async def test_a_bad_item_fails_alone(provider: InMemory, ssm: Any, key: str) -> None:
    results = await push_parameters(
        provider, item(key, b"ann", "user"), item(key, b"x", "a*"), item(key, b"\xff", "binary")
    )

    assert results[0].outcome is CREATED
    assert [isinstance(result.outcome, ProviderError) for result in results] == [False, True, True]
    assert value_of(ssm, key) == '{"user":"ann"}'


async def test_pushes_of_one_session_to_one_parameter_do_not_lose_each_other(
    front: Front, provider: InMemory, ssm: Any, key: str
) -> None:
    await asyncio.gather(*(push_parameters(provider, item(key, b"x", f"p{number}")) for number in range(8)))

    assert json.loads(value_of(ssm, key)) == {f"p{number}": "x" for number in range(8)}
    assert front.count("PutParameter") == 8


# --- only what is absent ---------------------------------------------------------------------------------------------


async def test_only_what_is_absent_is_created(front: Front, provider: InMemory, ssm: Any, key: str) -> None:
    ssm.put_parameter(Name=key, Value='{"user":"ann"}', Type="String", Tags=OURS)

    results = await push_parameters(
        provider,
        item(key, b"bob", "user", precondition=IF_ABSENT),
        item(key, b"hunter2", "password", precondition=IF_ABSENT),
    )

    assert [result.outcome for result in results] == [SKIPPED, UPDATED]
    assert value_of(ssm, key) == '{"user":"ann","password":"hunter2"}'
    front.forget()
    assert await parameter_outcome(provider, item(key, b"x", precondition=IF_ABSENT)) is SKIPPED
    assert front.count("PutParameter") == 0


@pytest.mark.parametrize(
    ("precondition", "expected"),
    [
        pytest.param(IF_ABSENT, (SKIPPED, "theirs"), id="what must be absent is skipped"),
        pytest.param(PushPrecondition.NONE, (UPDATED, "ours"), id="what is ours is overwritten"),
    ],
)
async def test_a_parameter_that_appears_while_it_is_created_is_not_overwritten_blindly(
    front: Front, provider: InMemory, ssm: Any, precondition: PushPrecondition, expected: tuple[PushOutcome, str]
) -> None:
    key = f"/{uuid.uuid4().hex}/db"

    def meanwhile(request: RecordedRequest) -> StubResponse | None:
        if not request.body["Overwrite"]:
            ssm.put_parameter(Name=key, Value="theirs", Type="String", Tags=OURS)
        return None

    front.respond("PutParameter", meanwhile)

    done = await parameter_outcome(provider, item(key, b"ours", precondition=precondition))

    assert (done, value_of(ssm, key)) == expected


async def test_a_parameter_that_is_never_there_but_always_exists_is_given_up(
    front: Front, provider: InMemory, key: str
) -> None:
    front.respond("PutParameter", refused("ParameterAlreadyExists"))

    assert (await parameter_refusal(provider, item(key, b"x"))).reason is ErrorReason.PRECONDITION_FAILED
    assert front.count("PutParameter") == 3


# --- deletions -------------------------------------------------------------------------------------------------------


async def test_a_parameter_of_ours_is_deleted_without_reading_its_value(
    front: Front, provider: InMemory, ssm: Any, key: str
) -> None:
    await push_parameters(provider, item(key, b"value"))
    front.forget()

    assert await delete_parameter(provider, key) == [True]
    assert not parameter_exists(ssm, key)
    assert front.counts == {"ListTagsForResource": 1, "DeleteParameter": 1}
    assert await delete_parameter(provider, key) == [False]


@pytest.mark.usefixtures("either")
async def test_properties_are_removed_and_the_rest_stays_until_nothing_is_left(
    provider: InMemory, server: str, key: str
) -> None:
    client = admin("ssm", server)
    client.put_parameter(Name=key, Value='{"a":{"b":"1"},"c":"2","d":"3"}', Type="SecureString", Tags=OURS)

    assert await delete_parameter(provider, key, "a.b", "c", "absent") == [True, True, False]
    assert value_of(client, key) == '{"a":{},"d":"3"}'
    assert described(client, key)["Type"] == "SecureString"
    assert await delete_parameter(provider, key, "d") == [True]
    assert not parameter_exists(client, key)


async def test_a_parameter_that_vanishes_while_it_is_deleted_was_not_there(
    front: Front, provider: InMemory, ssm: Any, key: str
) -> None:
    ssm.put_parameter(Name=key, Value="x", Type="String", Tags=OURS)
    front.respond("DeleteParameter", refused("ParameterNotFound"))

    assert await delete_parameter(provider, key) == [False]


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param("arn:aws:ssm:eu-west-1:123456789012:parameter/db", id="an ARN"),
        pytest.param("/db:3", id="a version"),
    ],
)
async def test_only_names_can_be_written(front: Front, provider: InMemory, wrong: str) -> None:
    assert (await parameter_refusal(provider, item(wrong, b"x"))).reason is ErrorReason.INVALID_REQUEST
    assert await delete_parameter(provider, wrong) == [False]
    assert front.counts == {}
