"""Clients are shared by all identities: every request is signed by its own store, and keys stay where they belong."""

from __future__ import annotations

import asyncio
import copy
import gc
import json
import pickle
import traceback
from collections.abc import AsyncIterator, Sequence

import pytest
from botocore.credentials import ReadOnlyCredentials

from eso_api.values import SecretBytes
from eso_provider_aws.clients import Clients, signed_by
from eso_provider_aws.identity import AssumedRole, Identities, Keys, Known, Role, runtime_of
from eso_provider_aws.provider import PROVIDER, SecretsManager
from eso_provider_aws.testing.front import Front, RecordedRequest, Sts, StubResponse, refused
from eso_provider_aws.testing.sessions import REGION, context, read, whoami, with_keys
from eso_sdk.testing import InMemory
from eso_wire.errors import ProviderError
from eso_wire.values import Context
from kubebase.clock import SystemClock

PLANTED = "CANARY-of-the-key"


@pytest.fixture
async def clients() -> AsyncIterator[Clients]:
    made = Clients()
    await made.join("secretsmanager", REGION)
    yield made
    await made.leave("secretsmanager", REGION)


async def test_interleaved_reads_of_two_identities_are_signed_by_their_own_stores(
    front: Front, provider: InMemory
) -> None:
    async def slowly(request: RecordedRequest) -> StubResponse:
        await asyncio.sleep(len(front.requests) % 7 / 1000)
        return whoami(request)

    front.respond("GetSecretValue", slowly)
    calls = {name: context(SecretsManager, (name, "secret")) for name in ("AKIARED", "AKIABLUE")}
    names = list(calls) * 250
    gate = asyncio.Semaphore(40)

    async def who(name: str) -> bytes | ProviderError:
        async with gate:
            (result,) = await read(provider, calls[name], "any")
            return result

    found = await asyncio.gather(*(who(name) for name in names))

    assert found == [name.encode() for name in names]


async def test_the_parts_of_one_call_are_signed_by_its_store(front: Front, provider: InMemory) -> None:
    def batch(request: RecordedRequest) -> StubResponse:
        values = [
            {"ARN": f"arn:{name}", "Name": name, "SecretString": request.key_id}
            for name in request.body["SecretIdList"]
        ]
        return StubResponse(200, json.dumps({"SecretValues": values}).encode())

    front.respond("BatchGetSecretValue", batch)
    names = [str(number) for number in range(200)]
    calls = {name: context(SecretsManager, (name, "secret")) for name in ("AKIARED", "AKIABLUE", "AKIAGREEN")}

    found = await asyncio.gather(*(read(provider, call, *names) for call in calls.values()))

    assert found == [[name.encode()] * 200 for name in calls]
    assert front.counts == {"BatchGetSecretValue": 30}


async def test_reads_stay_apart_while_keys_are_replaced(front: Front, provider: InMemory) -> None:
    sts = Sts(SystemClock())
    front.respond("AssumeRole", sts)
    front.respond("GetSecretValue", whoami)
    calls = {role: with_keys(role=role) for role in ("red", "blue")}
    identities = runtime_of(provider.clock).identities

    async def reads(role: str) -> list[str]:
        found = []
        for number in range(60):
            (result,) = await read(provider, calls[role], "any")
            assert isinstance(result, bytes)
            found.append(sts.chain(result.decode())[-1])
            if number % 20 == 19:
                _forget_keys(identities)
        return found

    red, blue, more = await asyncio.gather(reads("red"), reads("blue"), reads("red"))

    assert (set(red), set(blue), set(more)) == ({"red"}, {"blue"}, {"red"})
    assert len(sts.granted) > 4


def _forget_keys(identities: Identities) -> None:
    for identity in identities._known._renewed.values():
        identity._held = None


async def test_a_call_without_keys_fails_before_anything_is_sent(front: Front, clients: Clients) -> None:
    client = await clients.join("secretsmanager", REGION)
    try:
        with pytest.raises(LookupError):
            await client.get_secret_value(SecretId="any")
    finally:
        await clients.leave("secretsmanager", REGION)

    assert front.requests == []


async def test_keys_are_for_the_task_that_named_them(front: Front, clients: Clients) -> None:
    front.respond("GetSecretValue", whoami)
    client = await clients.join("secretsmanager", REGION)
    try:
        with signed_by(ReadOnlyCredentials("AKIAOUTER", "secret", None)):
            with signed_by(ReadOnlyCredentials("AKIAINNER", "secret", None)):
                inner = await client.get_secret_value(SecretId="any")
            outer = await client.get_secret_value(SecretId="any")
        with pytest.raises(LookupError):
            await client.get_secret_value(SecretId="any")
    finally:
        await clients.leave("secretsmanager", REGION)

    assert (inner["SecretString"], outer["SecretString"]) == ("AKIAINNER", "AKIAOUTER")


async def test_equal_keys_are_one_identity_and_go_with_their_last_session() -> None:
    known = Known()
    one, same, other = (
        known.written(Keys("AKIA", SecretBytes(secret), None)) for secret in (b"secret", b"secret", b"other")
    )
    assert one is same
    assert one is not other
    assert one.key != other.key

    del one, same, other
    gc.collect()

    assert len(known._written) == 0


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(("AB", b"C", None), ("A", b"BC", None), id="where the key id ends"),
        pytest.param(("A", b"B", b"C"), ("A", b"BC", None), id="where the session token begins"),
        pytest.param(("A", b"B", None), ("A", b"B", b"C"), id="with and without session token"),
    ],
)
async def test_keys_that_read_alike_are_different(
    first: tuple[str, bytes, bytes | None], second: tuple[str, bytes, bytes | None]
) -> None:
    one, other = (
        Keys(key_id, SecretBytes(secret), SecretBytes(token) if token else None)
        for key_id, secret, token in (first, second)
    )

    assert one.key != other.key


async def test_identities_show_no_keys_and_are_not_serialised() -> None:
    identities = Identities(Clients(), SystemClock())
    keys = Keys(PLANTED, SecretBytes(PLANTED.encode()), SecretBytes(PLANTED.encode()))
    role = AssumedRole(identities, keys, Role("arn:aws:iam::123456789012:role/app"), REGION)
    for identity in (keys, role, identities.own):
        assert PLANTED not in f"{identity!r} {identity} {identity.key!r} {identity.proof()!r}"
        for serialised in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError):
                serialised(identity)


async def test_the_traceback_of_an_error_shows_no_keys_and_no_response(front: Front) -> None:
    front.respond("GetSecretValue", refused("AccessDeniedException", PLANTED))
    async with InMemory(PROVIDER) as provider:
        call = context(SecretsManager, (f"AKIA{PLANTED}", PLANTED))
        (error,) = await read(provider, call, "any")
    assert isinstance(error, ProviderError)

    assert PLANTED not in "".join(traceback.format_exception(error))
    assert PLANTED not in repr(error)


async def test_200_identities_share_clients_that_are_closed_with_the_last_session(front: Front) -> None:
    front.respond("GetSecretValue", whoami)
    async with InMemory(PROVIDER) as provider:
        calls = [context(SecretsManager, (f"AKIA{number}", "secret")) for number in range(200)]
        found = [result for start in range(0, 200, 40) for result in await _side_by_side(provider, calls[start:][:40])]
        opened = runtime_of(provider.clock).clients._opened
        assert [users.users for users in opened.values()] == [200, 200]

    assert found == [f"AKIA{number}".encode() for number in range(200)]
    assert opened == {}


async def test_more_sessions_than_are_kept_are_closed_and_opened_again(front: Front) -> None:
    front.respond("GetSecretValue", whoami)
    async with InMemory(PROVIDER) as provider:
        for number in (*range(260), *range(10)):
            (result,) = await read(provider, context(SecretsManager, (f"AKIA{number}", "secret")), "any")
            assert result == f"AKIA{number}".encode()
        await asyncio.sleep(0.05)
        opened = runtime_of(provider.clock).clients._opened
        assert [users.users for users in opened.values()] == [256, 256]


async def _side_by_side(provider: InMemory, calls: Sequence[Context]) -> list[bytes | ProviderError]:
    return [result for (result,) in await asyncio.gather(*(read(provider, call, "any") for call in calls))]
