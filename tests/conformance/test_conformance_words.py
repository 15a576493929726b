"""The suite's messages about a provider that breaks the contract: enough for its author to fix it, without values."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from eso_api.references import SecretKeySelector
from eso_api.shapes import Fragment
from eso_conformance import CaseResult, Profile, Target, Verdict, run
from eso_conformance.fixture import from_plain
from eso_conformance.subject import Identity
from eso_sdk import Provider, Store, errors, reads, store_kind
from eso_sdk.extract import property_in
from eso_sdk.testing.server import CLIENT_ID, ProviderServer
from eso_wire.values import RemoteRef

VALUE = "CANARY-value-2c7e"
CREDENTIAL = "CANARY-credential-90b1"
FIXTURE = from_plain(
    {
        "kinds": [
            {
                "kind": "Shelf",
                "spec": {"passwordRef": {"name": "login", "key": "password"}},
                "credentials": {"/passwordRef": CREDENTIAL},
                "known": [{"key": "greeting", "value": VALUE}],
            }
        ]
    }
)

Get = Callable[[RemoteRef], Awaitable[Any]]


class ShelfConfig(Fragment, frozen=True, kw_only=True):
    """A shelf behind a password."""

    password_ref: SecretKeySelector


def one_by_one(answer: Get) -> Provider:
    @store_kind(kind="Shelf", plural="shelves")
    class Shelf(Store[ShelfConfig]):
        @reads("not_found")
        async def get(self, ref: RemoteRef) -> Any:
            return await answer(ref)

    return Provider(name="shelf", version="1", kinds=(Shelf,))


def in_batches(answer: Get) -> Provider:
    @store_kind(kind="Shelf", plural="shelves")
    class Shelf(Store[ShelfConfig]):
        @reads("not_found")
        async def get_many(self, refs: Sequence[RemoteRef]) -> Any:
            return [await answer(ref) for ref in refs]

    return Provider(name="shelf", version="1", kinds=(Shelf,))


async def honest(ref: RemoteRef) -> bytes:
    if ref.key != "greeting":
        raise errors.not_found(ref.key)
    return await property_in(VALUE.encode(), ref)


async def a_number(_: RemoteRef) -> int:
    return 5432


async def talkative(ref: RemoteRef) -> bytes:
    raise errors.backend_error(f'"{ref.key}" holds {VALUE}, which is no JSON')


async def failures(provider: Provider) -> dict[str, str]:
    """Return the failures of the read profile, by their sentence."""
    async with ProviderServer(provider) as server:
        client = server.authority.leaf(CLIENT_ID)
        target = Target(server.address, Identity(client.ca, client.certificate, client.key.reveal()))
        results: list[CaseResult] = [one async for one in run(target, [Profile.READ], FIXTURE)]
    return {str(one.case): one.why for one in results if one.verdict is Verdict.FAILED}


async def test_a_provider_that_keeps_the_contract_fails_nothing() -> None:
    assert await failures(one_by_one(honest)) == {}


@pytest.mark.parametrize(
    ("provider", "sentence", "why"),
    [
        pytest.param(
            one_by_one(a_number),
            "get: gives the value of a key, byte for byte",
            "no value: INTERNAL: the provider failed: get returned int; it must return bytes",
            id="an item that fails",
        ),
        pytest.param(
            in_batches(honest),
            "get: reports a missing key as SECRET_NOT_FOUND of that item, not as a failed call",
            'a call failed as a whole with NOT_FOUND, SECRET_NOT_FOUND: "conformance/no-such-key" does not exist',
            id="a call that fails for one item",
        ),
        pytest.param(
            one_by_one(talkative),
            "errors: shows no value in an error",
            "an error repeats the value of its key",
            id="an error with a value in it",
        ),
        pytest.param(
            one_by_one(talkative),
            "get: gives the value of a key, byte for byte",
            'no value: BACKEND_ERROR: "greeting" holds …, which is no JSON',
            id="which is not repeated",
        ),
    ],
)
async def test_the_message_tells_the_author_what_to_correct(provider: Provider, sentence: str, why: str) -> None:
    failed = await failures(provider)

    assert failed[sentence] == why
    assert not [said for said in failed.values() if VALUE in said or CREDENTIAL in said]
