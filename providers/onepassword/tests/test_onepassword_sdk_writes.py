"""Pushes and deletions with a service account."""

from __future__ import annotations

from typing import Any

import pytest

from eso_provider_onepassword.testing.core import FakeAccount
from eso_provider_onepassword.testing.sessions import delete, envelope, item, push, read_map, sdk
from eso_sdk.testing import InMemory
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import GetItem, PushOutcome, RemoteRef

CREATED, UPDATED, UNCHANGED = PushOutcome.CREATED, PushOutcome.UPDATED, PushOutcome.UNCHANGED


def stored(account: FakeAccount, title: str) -> dict[str, Any]:
    (found,) = [each for each in account.vault("team").items.values() if each["title"] == title]
    return found


async def test_fields_are_pushed_as_one_write(stocked: FakeAccount, provider: InMemory) -> None:
    call = sdk()
    metadata = envelope(tags=["one"], fieldType="text")

    created = await push(provider, call, item("app", b"x"), item("app", b"anna", "user", provider_metadata=metadata))
    updated = await push(provider, call, item("app", b"y"))
    unchanged = await push(provider, call, item("app", b"y"))

    assert (created, updated, unchanged) == ([CREATED, CREATED], [UPDATED], [UNCHANGED])
    assert stocked.vault("team").values("app") == {"password": "y", "user": "anna"}
    assert (stored(stocked, "app")["category"], stored(stocked, "app")["tags"]) == ("Server", ["one"])
    assert {each["fieldType"] for each in stored(stocked, "app")["fields"]} == {"Text"}
    assert [stocked.calls.count(name) for name in ("ItemsCreate", "ItemsPut")] == [1, 1]


async def test_a_whole_secret_becomes_exactly_the_fields(stocked: FakeAccount, provider: InMemory) -> None:
    call = sdk()

    first = await push(provider, call, item("app", {"a": b"1", "b": b"2"}))
    second = await push(provider, call, item("app", {"b": b"2", "c": b"3"}))
    values = stocked.vault("team").values("app")

    assert (first, second) == ([CREATED], [UPDATED])
    assert values == {"b": "2", "c": "3"}
    assert await delete(provider, call, "app") == [True]
    assert await delete(provider, call, "app") == [False]


async def test_a_whole_secret_pushed_over_an_item_of_a_person_does_not_delete_it(
    stocked: FakeAccount, provider: InMemory
) -> None:
    call = sdk()
    await push(provider, call, item("login", {"a": b"1"}))

    assert await delete(provider, call, "login") == [False]
    assert stocked.vault("team").values("login") == {"a": "1"}


async def test_a_deletion_removes_a_field_and_the_item_with_the_last_one(
    stocked: FakeAccount, provider: InMemory
) -> None:
    call = sdk()

    assert await delete(provider, call, "login", "username") == [True]
    assert stocked.vault("team").values("login") == {"password": "first"}
    assert await delete(provider, call, "login") == [True]
    assert isinstance(await read_map(provider, call, "login"), ProviderError)


async def test_a_conflict_is_tried_again_with_the_newest_item(stocked: FakeAccount, provider: InMemory) -> None:
    stocked.failures = []
    call = sdk()
    await push(provider, call, item("app", b"x"))
    original = FakeAccount.respond

    def racing(self: FakeAccount, token: str, name: str, described: dict[str, Any]) -> Any:
        if name == "ItemsPut" and stocked.calls.count("ItemsPut") == 1:
            stocked.vault("team").put("app", {"password": "of another", "more": "kept"})
        return original(self, token, name, described)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(FakeAccount, "respond", racing)
        outcome = await push(provider, call, item("app", b"y"))

    assert outcome == [UPDATED]
    assert stocked.vault("team").values("app") == {"password": "y", "more": "kept"}


@pytest.mark.usefixtures("stocked")
@pytest.mark.parametrize(
    ("pushed", "text"),
    [
        pytest.param(item("app", b"\xff"), "binary", id="no text"),
        pytest.param(item("app", {"a": b"1"}, "named"), "remove remoteRef.property", id="a whole Secret as a property"),
        pytest.param(item("app", b"x", provider_metadata=envelope(fieldType="odd")), "metadata", id="an unknown type"),
        pytest.param(item("app", b"x", provider_metadata=envelope(vault="v")), "metadata", id="another vault"),
    ],
)
async def test_what_cannot_be_pushed_is_explained(pushed: Any, text: str, provider: InMemory) -> None:
    (outcome,) = await push(provider, sdk(), pushed)

    assert isinstance(outcome, ProviderError)
    assert (outcome.reason, text in outcome.message) == (ErrorReason.INVALID_REQUEST, True)


@pytest.mark.usefixtures("stocked")
async def test_existence(provider: InMemory) -> None:
    there = [RemoteRef("login"), RemoteRef("login", property="username"), RemoteRef("login/username")]
    absent = [RemoteRef("no"), RemoteRef("login", property="no"), RemoteRef("login/no"), RemoteRef("no/username")]
    items = tuple(GetItem(str(at), ref) for at, ref in enumerate([*there, *absent]))

    results = await provider.check(sdk(), items)

    assert [result.exists for result in results] == [True] * 3 + [False] * 4
    assert [result.error for result in results] == [None] * 7
