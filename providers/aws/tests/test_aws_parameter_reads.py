"""Reading parameters: how many calls a batch costs, and what becomes of each item."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from eso_provider_aws.provider import ParameterStore
from eso_provider_aws.testing.front import Front, RecordedRequest, StubResponse, refused
from eso_provider_aws.testing.sessions import admin, context, read
from eso_sdk.testing import InMemory
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import GetItem, MetadataPolicy, RemoteRef

pytestmark = pytest.mark.usefixtures("parameters_ready")
DENIED = refused("AccessDeniedException", "User is not authorized to perform: ssm:GetParameter on resource: canary")
BATCH_DENIED = refused("AccessDeniedException", "User is not authorized to perform: ssm:GetParameters on: canary")


def names(count: int, stem: str = "") -> list[str]:
    stem = stem or f"/{uuid.uuid4().hex}"
    return [f"{stem}/{number}" for number in range(count)]


def store(client: Any, *keys: str, value: str = "", **more: Any) -> None:
    for key in keys:
        client.put_parameter(Name=key, Value=value or f"value of {key}", Type="SecureString", **more)


def denying(*keys: str, result: StubResponse = DENIED) -> Callable[[RecordedRequest], StubResponse | None]:
    """Reject requests for one of these parameters."""

    def response(request: RecordedRequest) -> StubResponse | None:
        names_read = {request.body.get("Name"), *request.body.get("Names", ())}
        return result if names_read & set(keys) else None

    return response


def reason(result: bytes | ProviderError) -> ErrorReason:
    assert isinstance(result, ProviderError), "it was read"
    return result.reason


async def test_25_parameters_due_together_cost_three_calls(either: Front, provider: InMemory, server: str) -> None:
    keys = names(25)
    store(admin("ssm", server), *keys)

    values = await read(provider, context(ParameterStore), *keys)

    assert values == [f"value of {key}".encode() for key in keys]
    assert either.counts == {"GetParameters": 3}


async def test_one_parameter_needs_no_more_than_the_permission_to_get_it(
    either: Front, provider: InMemory, server: str
) -> None:
    (key,) = names(1)
    store(admin("ssm", server), key)

    assert await read(provider, context(ParameterStore), key) == [f"value of {key}".encode()]
    assert either.counts == {"GetParameter": 1}


async def test_properties_of_one_parameter_share_a_read(front: Front, provider: InMemory, ssm: Any) -> None:
    (key,) = names(1)
    store(ssm, key, value=json.dumps({"user": "ann", "a.b": "literal", "n": [1, 2]}))
    refs = [RemoteRef(key, property=part) for part in ("user", "a.b", "n.1", "absent", "")]

    user, literal, number, absent, _whole = await read(provider, context(ParameterStore), *refs)

    assert (user, literal, number) == (b"ann", b"literal", b"2")
    assert reason(absent) is ErrorReason.PROPERTY_NOT_FOUND
    assert front.counts == {"GetParameter": 1}


async def test_versions_and_labels_share_a_batch(either: Front, provider: InMemory, server: str) -> None:
    one, two, three, four = names(4)
    client = admin("ssm", server)
    store(client, one, two, three, four, value="old")
    for key in (one, two, three):
        store(client, key, value="new", Overwrite=True)
    client.label_parameter_version(Name=two, ParameterVersion=1, Labels=["stable"])
    refs = [RemoteRef(one, version="1"), RemoteRef(two, version="stable"), RemoteRef(f"{three}:1"), RemoteRef(four)]

    assert await read(provider, context(ParameterStore), *refs) == [b"old"] * 4
    assert either.counts == {"GetParameters": 1}


async def test_versions_of_one_parameter_are_not_taken_for_each_other(
    either: Front, provider: InMemory, server: str
) -> None:
    one, other = names(2)
    client = admin("ssm", server)
    store(client, one, other, value="1")
    for value in ("2", "3"):
        store(client, one, value=value, Overwrite=True)
    arn = client.get_parameter(Name=one)["Parameter"]["ARN"]
    refs = [RemoteRef(one), RemoteRef(one, version="1"), RemoteRef(arn, version="2"), RemoteRef(other)]

    assert await read(provider, context(ParameterStore), *refs) == [b"3", b"1", b"2", b"1"]
    assert either.counts == {"GetParameters": 1, "GetParameter": 2}


@pytest.mark.usefixtures("either")
async def test_a_parameter_that_is_missing_fails_alone(provider: InMemory, server: str) -> None:
    there, absent = names(2)
    store(admin("ssm", server), there)

    value, missing = await read(provider, context(ParameterStore), there, absent)

    assert value == f"value of {there}".encode()
    assert isinstance(missing, ProviderError)
    assert missing.reason is ErrorReason.SECRET_NOT_FOUND
    assert missing.message == f'parameter "{absent}" in eu-west-1 does not exist'


@pytest.mark.parametrize("alone", [pytest.param(True, id="read alone"), pytest.param(False, id="read in a batch")])
@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        pytest.param(("{there}", "7"), ErrorReason.VERSION_NOT_FOUND, id="a version"),
        pytest.param(("{there}", "stable"), ErrorReason.VERSION_NOT_FOUND, id="a label"),
        pytest.param(("{there}:7", ""), ErrorReason.VERSION_NOT_FOUND, id="a version in the key"),
        pytest.param(("{absent}", "7"), ErrorReason.SECRET_NOT_FOUND, id="a version of nothing"),
        pytest.param(("{absent}", ""), ErrorReason.SECRET_NOT_FOUND, id="a parameter"),
    ],
)
@pytest.mark.usefixtures("either")
async def test_a_missing_version_differs_from_a_missing_parameter(
    provider: InMemory, server: str, parts: tuple[str, str], expected: ErrorReason, *, alone: bool
) -> None:
    there, absent, other = names(3)
    store(admin("ssm", server), there, other)
    key, version = parts
    ref = RemoteRef(key.format(there=there, absent=absent), version=version)

    missing, *_ = await read(provider, context(ParameterStore), ref, *(() if alone else (other, there)))

    assert reason(missing) is expected


async def test_a_version_in_key_and_in_version_is_refused_alone(front: Front, provider: InMemory, ssm: Any) -> None:
    (key,) = names(1)
    store(ssm, key)

    twice, value = await read(provider, context(ParameterStore), RemoteRef(f"{key}:1", version="1"), key)

    assert reason(twice) is ErrorReason.INVALID_REQUEST
    assert value == f"value of {key}".encode()
    assert front.counts == {"GetParameter": 1}


async def test_parameters_are_read_by_arn(either: Front, provider: InMemory, server: str) -> None:
    client = admin("ssm", server)
    keys = names(2)
    store(client, *keys)
    arns = [client.get_parameter(Name=key)["Parameter"]["ARN"] for key in keys]

    assert await read(provider, context(ParameterStore), *arns) == [f"value of {key}".encode() for key in keys]
    assert either.count("GetParameters") == 1


async def test_the_prefix_is_put_before_every_key(front: Front, provider: InMemory, ssm: Any) -> None:
    keys = names(2)
    store(ssm, *keys)
    prefix = keys[0].removesuffix("0")

    values = await read(provider, context(ParameterStore, prefix=prefix), "0", "1")

    assert values == [f"value of {key}".encode() for key in keys]
    assert front.counts == {"GetParameters": 1}


async def test_the_version_is_a_number_and_the_time_of_the_change_is_reported(
    front: Front, provider: InMemory, ssm: Any
) -> None:
    (key,) = names(1)
    store(ssm, key)
    store(ssm, key, value="second", Overwrite=True)
    del front

    (result,) = await provider.get(context(ParameterStore), (GetItem("1", RemoteRef(key)),))

    assert result.metadata.provider_version == "2"
    assert result.metadata.updated_at is not None


async def test_a_reference_to_secrets_manager_has_no_version(front: Front, provider: InMemory) -> None:
    response = {"Name": "/aws/reference/secretsmanager/db", "Type": "SecureString", "Value": "secret", "Version": 0}
    front.respond("GetParameter", StubResponse(200, json.dumps({"Parameter": response}).encode()))

    ref = RemoteRef("/aws/reference/secretsmanager/db")
    (result,) = await provider.get(context(ParameterStore), (GetItem("1", ref),))

    assert result.metadata.provider_version == ""


# --- denials ---------------------------------------------------------------------------------------------------------


async def test_a_parameter_that_is_denied_fails_alone_and_stays_out_of_later_batches(
    front: Front, provider: InMemory, ssm: Any
) -> None:
    keys = names(10)
    store(ssm, *keys)
    front.respond("GetParameters", denying(keys[3], result=BATCH_DENIED))
    front.respond("GetParameter", denying(keys[3]))
    call = context(ParameterStore)

    values = await read(provider, call, *keys)

    denied = values.pop(3)
    assert isinstance(denied, ProviderError)
    assert denied.reason is ErrorReason.PERMISSION_DENIED
    expected = f'parameter "{keys[3]}" in eu-west-1: GetParameter is denied (HTTP 400); allow ssm:GetParameter'
    assert denied.message == expected
    assert values == [f"value of {key}".encode() for key in keys if key != keys[3]]
    assert front.counts == {"GetParameters": 1, "GetParameter": 10}
    front.forget()
    assert reason((await read(provider, call, *keys))[3]) is ErrorReason.PERMISSION_DENIED
    assert front.counts == {"GetParameters": 1, "GetParameter": 1}
    assert (await provider.validate(call)).conditions == ()


async def test_a_parameter_that_is_allowed_again_returns_to_the_batch(
    front: Front, provider: InMemory, ssm: Any
) -> None:
    keys = names(3)
    store(ssm, *keys)
    front.respond("GetParameters", denying(keys[0], result=BATCH_DENIED))
    front.respond("GetParameter", denying(keys[0]))
    call = context(ParameterStore)
    await read(provider, call, *keys)
    front.pass_on()
    await read(provider, call, *keys)
    front.forget()

    await read(provider, call, *keys)

    assert front.counts == {"GetParameters": 1}


async def test_a_name_that_aws_does_not_accept_fails_alone(front: Front, provider: InMemory, ssm: Any) -> None:
    good, other, bad = *names(2), "no name"
    store(ssm, good, other)
    front.respond("GetParameters", denying(bad, result=refused("ValidationException", "canary")))
    front.respond("GetParameter", denying(bad, result=refused("ValidationException", "canary")))
    call = context(ParameterStore)

    values = await read(provider, call, good, bad, other)

    assert reason(values[1]) is ErrorReason.INVALID_REQUEST
    assert [values[0], values[2]] == [f"value of {good}".encode(), f"value of {other}".encode()]
    front.forget()
    await read(provider, call, good, bad, other)
    assert front.counts == {"GetParameters": 1, "GetParameter": 1}


async def test_without_the_permission_for_batches_parameters_are_read_one_by_one_and_the_store_reports_so(
    front: Front, provider: InMemory, ssm: Any
) -> None:
    keys = names(3)
    store(ssm, *keys)
    front.respond("GetParameters", BATCH_DENIED)
    call = context(ParameterStore)

    for _ in range(2):
        assert await read(provider, call, *keys) == [f"value of {key}".encode() for key in keys]

    assert front.counts == {"GetParameters": 1, "GetParameter": 6}
    (condition,) = (await provider.validate(call)).conditions
    assert (condition.type, condition.status) == ("BatchReads", "False")
    assert "ssm:GetParameters" in condition.message


async def test_a_throttled_batch_is_not_followed_by_single_reads(front: Front, provider: InMemory) -> None:
    front.respond("GetParameters", refused("ThrottlingException"))

    values = await read(provider, context(ParameterStore), *names(10))

    assert {reason(value) for value in values} == {ErrorReason.RATE_LIMITED}
    assert front.counts == {"GetParameters": 1}


# --- tags ------------------------------------------------------------------------------------------------------------


async def test_metadata_are_the_tags_as_json(either: Front, provider: InMemory, server: str) -> None:
    (key,) = names(1)
    store(admin("ssm", server), key, Tags=[{"Key": "team", "Value": "db"}, {"Key": "env", "Value": "prod"}])

    def fetch(part: str = "", version: str = "") -> RemoteRef:
        return RemoteRef(key, version, part, MetadataPolicy.FETCH)

    whole, part, versioned = await read(provider, context(ParameterStore), fetch(), fetch("team"), fetch(version="1"))

    assert (whole, part, versioned) == (b'{"env":"prod","team":"db"}', b"db", b'{"env":"prod","team":"db"}')
    assert either.counts == {"ListTagsForResource": 1}


@pytest.mark.usefixtures("front")
async def test_metadata_of_a_parameter_that_does_not_exist_is_not_found(provider: InMemory) -> None:
    (key,) = names(1)

    (missing,) = await read(provider, context(ParameterStore), RemoteRef(key, metadata_policy=MetadataPolicy.FETCH))

    assert reason(missing) is ErrorReason.SECRET_NOT_FOUND


async def test_tags_that_cannot_be_listed_do_not_make_a_parameter_absent(
    front: Front, provider: InMemory, ssm: Any
) -> None:
    (key,) = names(1)
    store(ssm, key)
    front.respond("ListTagsForResource", refused("InvalidResourceId"))

    (result,) = await read(provider, context(ParameterStore), RemoteRef(key, metadata_policy=MetadataPolicy.FETCH))

    assert reason(result) is ErrorReason.UNSUPPORTED_OPERATION


# --- checks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ref", "exists", "version"),
    [
        pytest.param(RemoteRef("{key}"), True, "1", id="a parameter"),
        pytest.param(RemoteRef("{key}", property="user"), True, "1", id="a property"),
        pytest.param(RemoteRef("{key}", property="absent"), False, "", id="a missing property"),
        pytest.param(RemoteRef("{key}-absent"), False, "", id="a missing parameter"),
        pytest.param(RemoteRef("{key}", version="9"), False, "", id="a missing version"),
    ],
)
async def test_check_tells_what_is_there(
    either: Front, provider: InMemory, server: str, ref: RemoteRef, version: str, *, exists: bool
) -> None:
    (key,) = names(1)
    store(admin("ssm", server), key, value='{"user":"ann"}')
    request = RemoteRef(ref.key.format(key=key), ref.version, ref.property)

    (result,) = await provider.check(context(ParameterStore), (GetItem("1", request),))

    assert result.error is None
    assert (result.exists, result.provider_version) == (exists, version)
    assert [request.body["WithDecryption"] for request in either.requests][:1] == [bool(ref.property)]
