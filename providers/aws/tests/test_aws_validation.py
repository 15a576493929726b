"""When a store is Ready: regions, keys, permissions, and how often AWS is called."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from eso_provider_aws.provider import PROVIDER, SecretsManager
from eso_provider_aws.testing.front import Front, hang, refused, refused_xml
from eso_provider_aws.testing.sessions import AUTH, admin, context, credentials, read, with_keys
from eso_sdk.testing import InMemory, call_context
from eso_sdk.testing.moto import Moto
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import ValidationMode, ValidationState
from kubebase.testing.clock import VirtualClock


@pytest.mark.parametrize(
    "region",
    [
        pytest.param("", id="nothing"),
        pytest.param("europe", id="no region at all"),
        pytest.param("eu-west", id="without number"),
        pytest.param("eu_west_1", id="underscores"),
        pytest.param("EU-WEST-1", id="capitals"),
        pytest.param("eu-west-1a", id="an availability zone"),
        pytest.param("eu-west-1.evil.example/", id="an address"),
        pytest.param("eu-west-1\n", id="a newline"),
    ],
)
async def test_a_region_that_cannot_exist_is_refused_at_admission(
    front: Front, provider: InMemory, region: str
) -> None:
    for mode in (ValidationMode.STATIC, ValidationMode.FULL):
        found = await provider.validate(context(SecretsManager, region=region), mode)
        assert found.state is ValidationState.INVALID
        assert found.error is not None
        assert found.error.reason is ErrorReason.CONFIG_INVALID
        assert "/region" in found.error.message

    assert front.requests == []


@pytest.mark.parametrize("region", ["eu-west-1", "us-gov-west-1", "cn-north-1", "us-iso-east-1", "eusc-de-east-1"])
async def test_a_region_of_any_partition_is_admitted(provider: InMemory, region: str) -> None:
    found = await provider.validate(context(SecretsManager, region=region), ValidationMode.STATIC)

    assert found.state is ValidationState.READY


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        pytest.param({"role": "app"}, "/role", id="a name"),
        pytest.param({"role": "arn:aws:iam::123456789012:user/app"}, "/role", id="a user"),
        pytest.param(
            {"role": "arn:aws:iam::123456789012:role/app", "additionalRoles": [""]}, "/additionalRoles/0", id="-"
        ),
    ],
)
async def test_an_invalid_role_is_rejected_at_admission(provider: InMemory, spec: dict[str, Any], path: str) -> None:
    config = {"region": "eu-west-1", "auth": AUTH, **spec}
    found = await provider.validate(call_context(SecretsManager, config, credentials()), ValidationMode.STATIC)

    assert found.error is not None
    assert found.error.reason is ErrorReason.CONFIG_INVALID
    assert path in found.error.message


async def test_settings_without_a_role_are_warned_about(provider: InMemory) -> None:
    found = await provider.validate(context(SecretsManager, externalID="x"), ValidationMode.STATIC)

    assert found.state is ValidationState.READY
    assert "no effect without role" in found.warnings[0]


async def test_a_region_that_the_sdk_does_not_know_is_not_ready_if_it_has_no_address(
    front: Front, provider: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_SECRETSMANAGER_ENDPOINT")

    with pytest.raises(ProviderError) as caught:
        await provider.validate(context(SecretsManager, region="eu-nowhere-9"))

    assert caught.value.reason is ErrorReason.BACKEND_UNAVAILABLE
    assert caught.value.message == (
        'secretsmanager.eu-nowhere-9.amazonaws.com of secretsmanager in region "eu-nowhere-9" does not resolve; check'
        " region, and the DNS where the provider runs"
    )
    assert front.counts == {"GetCallerIdentity": 1}


async def test_a_region_newer_than_the_sdk_is_ready_if_it_has_an_address(provider: InMemory, front: Front) -> None:
    found = await provider.validate(context(SecretsManager, region="eu-nowhere-9"))

    assert found.state is ValidationState.READY
    assert front.requests[0].region == "eu-nowhere-9"


# --- how often AWS is called ---


async def test_100_stores_with_equal_keys_call_sts_once_in_ten_minutes(front: Front) -> None:
    clock = VirtualClock()
    async with InMemory(PROVIDER, clock) as provider:
        calls = [with_keys(prefix=f"{number}/") for number in range(100)]
        for _ in range(3):
            found = await asyncio.gather(*(provider.validate(call) for call in calls))
            assert {each.state for each in found} == {ValidationState.READY}
        assert front.counts == {"GetCallerIdentity": 1}
        await clock.advance(599)
        await provider.validate(calls[0])
        assert front.counts == {"GetCallerIdentity": 1}
        await clock.advance(2)
        await provider.validate(calls[0])
        assert front.counts == {"GetCallerIdentity": 2}


async def test_100_stores_with_equal_keys_that_are_wrong_call_sts_once(front: Front, provider: InMemory) -> None:
    front.respond("GetCallerIdentity", refused_xml("InvalidClientTokenId"))

    found = await asyncio.gather(*(provider.validate(with_keys(prefix=f"{number}/")) for number in range(100)))

    assert {each.state for each in found} == {ValidationState.INVALID}
    assert {each.error.reason for each in found if each.error} == {ErrorReason.CREDENTIALS_REJECTED}
    assert front.counts == {"GetCallerIdentity": 1}


async def test_keys_that_a_read_finds_rejected_are_verified_again(front: Front, provider: InMemory) -> None:
    call = context(SecretsManager)
    await provider.validate(call)
    front.respond("GetSecretValue", refused("UnrecognizedClientException"))
    front.respond("GetCallerIdentity", refused_xml("InvalidClientTokenId"))
    await read(provider, call, "any")

    assert (await provider.validate(call)).state is ValidationState.INVALID


# --- responses of STS ---


@pytest.mark.parametrize(
    "result",
    [
        pytest.param(refused_xml("InternalFailure", status=503), id="STS is down"),
        pytest.param(refused_xml("AccessDenied"), id="STS denies: it knows the keys"),
    ],
)
async def test_a_store_is_ready_if_only_sts_is_in_the_way(front: Front, provider: InMemory, result: Any) -> None:
    front.respond("GetCallerIdentity", result)

    assert (await provider.validate(context(SecretsManager))).state is ValidationState.READY


async def test_a_store_is_ready_if_sts_cannot_be_reached(
    front: Front, provider: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_STS_ENDPOINT", "http://127.0.0.1:1")

    assert (await provider.validate(context(SecretsManager))).state is ValidationState.READY
    assert front.requests == []


async def test_a_store_that_assumes_a_role_needs_sts(front: Front, provider: InMemory) -> None:
    front.respond("AssumeRole", refused_xml("InternalFailure", status=503))

    with pytest.raises(ProviderError) as caught:
        await provider.validate(with_keys(role="app"))

    assert caught.value.reason is ErrorReason.BACKEND_UNAVAILABLE
    assert front.counts == {"AssumeRole": 1}


async def test_a_role_that_was_assumed_needs_no_further_check(front: Front, provider: InMemory) -> None:
    for _ in range(3):
        assert (await provider.validate(with_keys(role="app"))).state is ValidationState.READY

    assert front.counts == {"AssumeRole": 1}


async def test_a_page_of_a_proxy_proves_nothing(front: Front, provider: InMemory) -> None:
    page = refused_xml("x")
    front.respond("GetCallerIdentity", type(page)(200, b"<html><body>Please log in</body></html>"))

    with pytest.raises(ProviderError) as caught:
        await provider.validate(context(SecretsManager))

    assert caught.value.reason is ErrorReason.BACKEND_ERROR


async def test_a_silent_sts_does_not_hold_up_validation(front: Front) -> None:
    front.respond("GetCallerIdentity", hang)
    clock = VirtualClock()
    async with InMemory(PROVIDER, clock) as provider:
        waiting = asyncio.ensure_future(provider.validate(context(SecretsManager)))
        while not front.requests:  # noqa: ASYNC110 - the front has no event
            await asyncio.sleep(0.001)
        await clock.advance(6)

        assert (await waiting).state is ValidationState.READY


# --- a server that verifies signatures and policies ---

Verified = tuple[Front, tuple[str, str], str]


@pytest.fixture(scope="module")
def verifying(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Moto, tuple[str, str], str]]:
    """A server of its own; keys of a user who may read one secret with GetSecretValue, and do nothing else."""
    with Moto.started(tmp_path_factory.mktemp("verifying")) as moto:
        name = uuid.uuid4().hex
        admin("secretsmanager", moto.url).create_secret(Name=name, SecretString="value")
        iam = admin("iam", moto.url)
        iam.create_user(UserName="reader")
        allowed = {"Effect": "Allow", "Action": "secretsmanager:GetSecretValue", "Resource": "*"}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
        iam.put_user_policy(UserName="reader", PolicyName="reads", PolicyDocument=policy)
        made = iam.create_access_key(UserName="reader")["AccessKey"]
        moto.verify_signatures()
        yield moto, (made["AccessKeyId"], made["SecretAccessKey"]), name


@pytest.fixture
def verified(verifying: tuple[Moto, tuple[str, str], str], front: Front) -> Verified:
    """The front before the server that verifies."""
    moto, keys, name = verifying
    front.behind = moto.url.rstrip("/")
    return front, keys, name


async def test_getsecretvalue_alone_is_enough_to_be_ready_and_to_read(verified: Verified, provider: InMemory) -> None:
    front, keys, name = verified
    call = context(SecretsManager, keys)

    assert (await provider.validate(call)).state is ValidationState.READY
    assert await read(provider, call, name) == [b"value"]
    assert await read(provider, call, name, "absent") != []
    assert front.counts == {"GetCallerIdentity": 1, "GetSecretValue": 3, "BatchGetSecretValue": 1}


@pytest.mark.parametrize("part", [pytest.param(0, id="an unknown key id"), pytest.param(1, id="a wrong secret")])
async def test_wrong_keys_make_a_store_not_ready(verified: Verified, provider: InMemory, part: int) -> None:
    _, keys, name = verified
    wrong = ("AKIAUNKNOWN", keys[1]) if part == 0 else (keys[0], "wrong")
    call = context(SecretsManager, wrong)

    found = await provider.validate(call)
    (refusal,) = await read(provider, call, name)

    assert found.state is ValidationState.INVALID
    for error in (found.error, refusal):
        assert isinstance(error, ProviderError)
        assert error.reason is ErrorReason.CREDENTIALS_REJECTED
        assert "eu-west-1" in error.message
        assert not [text for text in wrong if text in error.message]


async def test_a_denial_names_the_action_and_the_secret(verified: Verified, provider: InMemory) -> None:
    _, keys, name = verified
    assume = await _refused(provider, keys, role="app")
    (missing,) = [await _metadata(provider, keys, name)]

    assert assume.reason is missing.reason is ErrorReason.PERMISSION_DENIED
    assert "allow sts:AssumeRole" in assume.message
    assert f'secret "{name}" in eu-west-1' in missing.message
    assert "allow secretsmanager:DescribeSecret" in missing.message


async def _refused(provider: InMemory, keys: tuple[str, str], **spec: Any) -> ProviderError:
    (result,) = await read(provider, with_keys(keys, **spec), "any")
    assert isinstance(result, ProviderError)
    return result


async def _metadata(provider: InMemory, keys: tuple[str, str], name: str) -> ProviderError:
    from eso_wire.values import MetadataPolicy, RemoteRef

    ref = RemoteRef(name, metadata_policy=MetadataPolicy.FETCH)
    (result,) = await read(provider, context(SecretsManager, keys), ref)
    assert isinstance(result, ProviderError)
    return result
