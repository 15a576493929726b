"""Pushes to Secrets Manager: the values that are written or unchanged, and the number of calls."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

from eso_provider_aws.provider import SecretsManager
from eso_provider_aws.testing.front import Front, RecordedRequest, StubResponse, refused
from eso_provider_aws.testing.sessions import admin, context, outcome, refusal, tags
from eso_sdk.testing import InMemory
from eso_sdk.testing.server import item, push_items
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import PushOutcome, PushPrecondition

CREATED, UPDATED, UNCHANGED = PushOutcome.CREATED, PushOutcome.UPDATED, PushOutcome.UNCHANGED
SKIPPED = PushOutcome.SKIPPED_EXISTS
IF_ABSENT = PushPrecondition.IF_ABSENT
MARK = {"managed-by": "external-secrets"}
OURS = [{"Key": "managed-by", "Value": "external-secrets"}]


@pytest.fixture
def name() -> str:
    return f"push/{uuid.uuid4().hex}"


@pytest.fixture
def client(server: str) -> Any:
    return admin("secretsmanager", server)


# --- what is written -------------------------------------------------------------------------------------------------


async def test_a_new_secret_is_marked_and_an_unchanged_push_costs_two_reads(
    either: Front, provider: InMemory, client: Any, name: str
) -> None:
    call = context(SecretsManager)

    first = await outcome(provider, call, item(name, b"\xffvalue"))
    assert either.counts == {"DescribeSecret": 1, "CreateSecret": 1}
    either.forget()
    second = await outcome(provider, call, item(name, b"\xffvalue"))

    assert (first, second) == (CREATED, UNCHANGED)
    assert either.counts == {"DescribeSecret": 1, "GetSecretValue": 1}
    assert client.get_secret_value(SecretId=name)["SecretBinary"] == b"\xffvalue"
    described = client.describe_secret(SecretId=name)
    assert tags(described["Tags"]) == MARK
    assert described["Description"] == "secret 'managed-by:external-secrets'"


async def test_a_changed_value_returns_its_new_version(
    either: Front, provider: InMemory, client: Any, name: str
) -> None:
    call = context(SecretsManager)
    await push_items(provider, call, item(name, b"old"))
    either.forget()

    (result,) = await push_items(provider, call, item(name, b"new"))

    assert result.outcome is UPDATED
    read = client.get_secret_value(SecretId=name)
    assert (read["SecretBinary"], read["VersionId"]) == (b"new", result.provider_version)
    assert either.counts == {"DescribeSecret": 1, "GetSecretValue": 1, "PutSecretValue": 1}


async def test_twelve_properties_of_one_secret_make_one_version(
    either: Front, provider: InMemory, client: Any, name: str
) -> None:
    call = context(SecretsManager)

    results = await push_items(provider, call, *[item(name, str(n).encode(), f"p{n}") for n in range(12)])
    changed = await push_items(
        provider, call, item(name, b"new", "p1"), item(name, b"2", "p2"), item(name, b"x", "more")
    )

    assert [result.outcome for result in results] == [CREATED] * 12
    assert [result.outcome for result in changed] == [UPDATED, UNCHANGED, UPDATED]
    assert (either.count("CreateSecret"), either.count("PutSecretValue")) == (1, 1)
    value = client.get_secret_value(SecretId=name)["SecretBinary"]
    assert value.startswith(b'{"p0":"0","p1":"new","p2":"2"')
    assert value.endswith(b'"p11":"11","more":"x"}')


@pytest.mark.usefixtures("either")
async def test_a_property_leaves_the_rest_of_the_text_alone(provider: InMemory, client: Any, name: str) -> None:
    client.create_secret(Name=name, SecretString='{ "n": 1.50, "a.b": "old", "deep": {"x": 1} }', Tags=OURS)
    call = context(SecretsManager)

    await push_items(provider, call, item(name, b"new", "a.b"), item(name, b"two", "deep.y"))

    read = client.get_secret_value(SecretId=name)
    assert read["SecretString"] == '{ "n": 1.50, "a.b": "new", "deep": {"x": 1,"y":"two"} }'


@pytest.mark.usefixtures("front")
async def test_a_whole_secret_is_a_json_object_with_sorted_keys(
    provider: InMemory, secrets_manager: Any, name: str
) -> None:
    call = context(SecretsManager)

    first = await outcome(provider, call, item(name, {"user": b"ann", "password": b"<&>\xc3\xa4"}))
    second = await outcome(provider, call, item(name, {"password": b"<&>\xc3\xa4", "user": b"ann"}))
    nested = await outcome(provider, call, item(name, {"b": b"1", "a": b"2"}, "all"))

    assert (first, second, nested) == (CREATED, UNCHANGED, UPDATED)
    value = secrets_manager.get_secret_value(SecretId=name)["SecretBinary"].decode()
    assert value == '{"password":"<&>ä","user":"ann","all":"{\\"a\\":\\"2\\",\\"b\\":\\"1\\"}"}'


@pytest.mark.usefixtures("front")
async def test_a_secret_without_a_value_gets_its_first_one(provider: InMemory, secrets_manager: Any, name: str) -> None:
    secrets_manager.create_secret(Name=name, Tags=OURS)

    assert await outcome(provider, context(SecretsManager), item(name, b"first", precondition=IF_ABSENT)) is CREATED

    assert secrets_manager.get_secret_value(SecretId=name)["SecretBinary"] == b"first"


@pytest.mark.usefixtures("front")
async def test_a_prefix_is_put_before_the_key(provider: InMemory, secrets_manager: Any, name: str) -> None:
    await outcome(provider, context(SecretsManager, prefix="team/"), item(name, b"x"))

    assert secrets_manager.get_secret_value(SecretId=f"team/{name}")["SecretBinary"] == b"x"


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tagged", "doomed"),
    [
        pytest.param([], False, id="no tag"),
        pytest.param([{"Key": "managed-by", "Value": "terraform"}], False, id="the mark of another tool"),
        pytest.param([], True, id="marked for deletion"),
    ],
)
async def test_a_secret_that_is_not_ours_is_left_alone(
    either: Front, provider: InMemory, name: str, tagged: list[dict[str, str]], doomed: bool
) -> None:
    client = admin("secretsmanager", either.behind)
    client.create_secret(Name=name, SecretString="theirs", Tags=tagged)
    if doomed:
        client.delete_secret(SecretId=name)

    error = await refusal(provider, context(SecretsManager), item(name, b"ours"))

    assert error.reason is ErrorReason.OWNERSHIP_CONFLICT
    assert either.counts == {"DescribeSecret": 1}


@pytest.mark.parametrize(
    ("pushed", "reason", "text"),
    [
        pytest.param((b"x" * 65_537,), ErrorReason.PAYLOAD_TOO_LARGE, "more than 65536 bytes", id="too large"),
        pytest.param((b"",), ErrorReason.INVALID_REQUEST, "is empty", id="empty"),
        pytest.param((b"\xff", "part"), ErrorReason.INVALID_REQUEST, "is binary", id="binary property"),
        pytest.param(({"k": b"\xff"},), ErrorReason.INVALID_REQUEST, '"k"', id="binary key of a whole Secret"),
        pytest.param((b"x", "a.#.b"), ErrorReason.INVALID_REQUEST, "cannot be written", id="property with a query"),
    ],
)
async def test_a_value_that_cannot_be_kept_is_refused_before_the_write(
    front: Front, provider: InMemory, pushed: tuple[Any, ...], reason: ErrorReason, text: str
) -> None:
    error = await refusal(provider, context(SecretsManager), item(uuid.uuid4().hex, *pushed))

    assert error.reason is reason
    assert text in error.message
    assert front.counts == {"DescribeSecret": 1}


@pytest.mark.parametrize("value", ["plain text", '"text"', "7", " "], ids=["text", "string", "number", "blank"])
@pytest.mark.usefixtures("front")
async def test_a_property_of_a_value_that_is_not_a_json_object_is_rejected(
    provider: InMemory, secrets_manager: Any, name: str, value: str
) -> None:
    secrets_manager.create_secret(Name=name, SecretString=value, Tags=OURS)

    error = await refusal(provider, context(SecretsManager), item(name, b"x", "part"))

    assert error.reason is ErrorReason.INVALID_REQUEST
    assert "is not a JSON object" in error.message
    assert secrets_manager.get_secret_value(SecretId=name)["SecretString"] == value


async def test_one_bad_item_does_not_stop_the_others(
    front: Front, provider: InMemory, secrets_manager: Any, name: str
) -> None:
    results = await push_items(provider, context(SecretsManager), item(name, b"\xff", "bad"), item(name, b"x", "good"))

    assert isinstance(results[0].outcome, ProviderError)
    assert results[1].outcome is CREATED
    assert secrets_manager.get_secret_value(SecretId=name)["SecretBinary"] == b'{"good":"x"}'
    assert front.count("CreateSecret") == 1


async def test_a_denied_write_names_the_permission_and_no_value(front: Front, provider: InMemory, name: str) -> None:
    front.respond("CreateSecret", refused("AccessDeniedException", "CANARY"))

    error = await refusal(provider, context(SecretsManager), item(name, b"CANARY"))

    assert error.reason is ErrorReason.PERMISSION_DENIED
    assert "allow secretsmanager:CreateSecret" in error.message
    assert "CANARY" not in repr(error)


async def test_a_replica_is_not_written(front: Front, provider: InMemory, secrets_manager: Any, name: str) -> None:
    arn = secrets_manager.create_secret(Name=name, SecretString="x", Tags=OURS)["ARN"]
    response = f'{{"ARN": "{arn}", "Name": "{name}", "PrimaryRegion": "us-east-1", "Tags": [{{"Key": "managed-by",'
    front.respond("DescribeSecret", StubResponse(200, f'{response} "Value": "external-secrets"}}]}}'.encode()))

    error = await refusal(provider, context(SecretsManager), item(name, b"y"))

    assert "is a replica of a secret in us-east-1" in error.message
    assert front.count("PutSecretValue") == 0


# --- only if absent --------------------------------------------------------------------------------------------------


async def test_an_existing_secret_is_skipped_without_reading_its_value(
    either: Front, provider: InMemory, client: Any, name: str
) -> None:
    client.create_secret(Name=name, SecretString="theirs")

    assert await outcome(provider, context(SecretsManager), item(name, b"x", precondition=IF_ABSENT)) is SKIPPED

    assert either.counts == {"DescribeSecret": 1}
    assert client.get_secret_value(SecretId=name)["SecretString"] == "theirs"


@pytest.mark.usefixtures("either")
async def test_only_properties_that_are_missing_are_set(provider: InMemory, client: Any, name: str) -> None:
    client.create_secret(Name=name, SecretString='{"user":"ann"}', Tags=OURS)
    items = [item(name, b"bob", "user", precondition=IF_ABSENT), item(name, b"1", "port", precondition=IF_ABSENT)]

    results = await push_items(provider, context(SecretsManager), *items)

    assert [result.outcome for result in results] == [SKIPPED, UPDATED]
    assert client.get_secret_value(SecretId=name)["SecretString"] == '{"user":"ann","port":"1"}'


@pytest.mark.parametrize(
    ("tagged", "expected"),
    [
        pytest.param([], SKIPPED, id="by another writer"),
        pytest.param(OURS, SKIPPED, id="by another PushSecret"),
    ],
)
async def test_who_loses_the_race_for_a_new_secret_skips_it(
    front: Front, provider: InMemory, secrets_manager: Any, tagged: list[dict[str, str]], expected: PushOutcome
) -> None:
    name = uuid.uuid4().hex

    def faster(_asked: RecordedRequest) -> StubResponse | None:
        front.pass_on("CreateSecret")
        secrets_manager.create_secret(Name=name, SecretString="theirs", Tags=tagged)
        return None

    front.respond("CreateSecret", faster)

    assert await outcome(provider, context(SecretsManager), item(name, b"x", precondition=IF_ABSENT)) is expected
    assert secrets_manager.get_secret_value(SecretId=name)["SecretString"] == "theirs"


# --- repetitions and parallel writers --------------------------------------------------------------------------------


async def test_a_push_whose_response_was_lost_makes_no_second_version(
    front: Front, provider: InMemory, secrets_manager: Any, name: str
) -> None:
    call = context(SecretsManager)
    await push_items(provider, call, item(name, b"old"))
    tokens: list[str] = []

    def note(request: RecordedRequest) -> StubResponse | None:
        tokens.append(request.body["ClientRequestToken"])
        return refused("InternalServiceError", status=500) if len(tokens) == 1 else None

    front.respond("PutSecretValue", note)

    first = await push_items(provider, call, item(name, b"new"), once="k")
    second = await push_items(provider, call, item(name, b"new"), once="k")
    third = await push_items(provider, call, item(name, b"newer"), once="k")

    assert isinstance(first[0].outcome, ProviderError)
    assert [second[0].outcome, third[0].outcome] == [UPDATED, UPDATED]
    assert tokens[0] == tokens[1] == second[0].provider_version
    assert tokens[2] != tokens[1], "another version to start from is another write"
    assert secrets_manager.get_secret_value(SecretId=name)["SecretBinary"] == b"newer"


@pytest.mark.usefixtures("front")
async def test_properties_that_are_pushed_at_the_same_time_are_all_kept(
    provider: InMemory, secrets_manager: Any, name: str
) -> None:
    call = context(SecretsManager)

    await asyncio.gather(*(push_items(provider, call, item(name, b"x", f"p{n}")) for n in range(6)))

    value = secrets_manager.get_secret_value(SecretId=name)["SecretBinary"]
    assert all(f'"p{n}":"x"'.encode() in value for n in range(6))


# --- marked for deletion ---------------------------------------------------------------------------------------------


async def test_our_secret_that_is_scheduled_for_deletion_is_restored_with_the_new_value(
    either: Front, provider: InMemory, client: Any, name: str
) -> None:
    client.create_secret(Name=name, SecretString='{"old":"x"}', Tags=OURS)
    client.delete_secret(SecretId=name)

    assert await outcome(provider, context(SecretsManager), item(name, b"y", "new")) is CREATED

    assert client.get_secret_value(SecretId=name)["SecretBinary"] == b'{"new":"y"}'
    assert "DeletedDate" not in client.describe_secret(SecretId=name)
    writes = {"DescribeSecret": 1, "RestoreSecret": 1, "GetSecretValue": 1, "PutSecretValue": 1}
    assert either.counts == writes


async def test_a_name_that_is_still_being_freed_is_tried_again_later(
    front: Front, provider: InMemory, name: str
) -> None:
    text = "You can't create this secret because a secret with this name is already scheduled for deletion."
    front.respond("CreateSecret", refused("InvalidRequestException", text))

    error = await refusal(provider, context(SecretsManager), item(name, b"x"))

    assert error.reason is ErrorReason.BACKEND_ERROR
    assert "still being deleted" in error.message
