"""Pushes and deletions on a real server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from eso_api.values import SecretBytes
from eso_provider_vault.testing.openbao import OpenBao
from eso_sdk.testing import InMemory
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import (
    Context,
    DeleteBatch,
    DeleteItem,
    PushBatch,
    PushItem,
    PushOutcome,
    PushPrecondition,
    PushResult,
    RemoteRef,
)

StoreMaker = Callable[..., Context]
MARK = {"managed-by": "external-secrets"}
CREATED, UPDATED, UNCHANGED = PushOutcome.CREATED, PushOutcome.UPDATED, PushOutcome.UNCHANGED


def item(key: str, value: bytes | dict[str, bytes], property_: str = "", **changes: Any) -> PushItem:
    payload: Any = (
        SecretBytes(value) if isinstance(value, bytes) else {name: SecretBytes(each) for name, each in value.items()}
    )
    remote = RemoteRef(key, property=property_)
    return PushItem(f"{key}/{property_}", remote, payload, owner_token="external-secrets", **changes)


async def push(provider: InMemory, context: Context, *items: PushItem) -> list[PushResult]:
    return list(await provider.push(context, PushBatch(items, idempotency_key="once")))


async def push_one(provider: InMemory, context: Context, one: PushItem) -> PushOutcome:
    (result,) = await push(provider, context, one)
    assert not isinstance(result.outcome, ProviderError), result.outcome.message
    return result.outcome


async def refused(provider: InMemory, context: Context, one: PushItem) -> ProviderError:
    (result,) = await push(provider, context, one)
    assert isinstance(result.outcome, ProviderError), "it was written"
    return result.outcome


async def delete(provider: InMemory, context: Context, key: str, *properties: str) -> list[bool]:
    items = tuple(
        DeleteItem(name, RemoteRef(key, property=name), owner_token="external-secrets") for name in properties or ("",)
    )
    results = await provider.delete(context, DeleteBatch(items, idempotency_key="once"))
    for result in results:
        assert result.error is None, result.error.message
    return [result.existed for result in results]


# --- what is written --------------------------------------------------------------------------------------------------


async def test_a_new_key_is_marked_and_a_second_push_changes_nothing(
    bao: OpenBao, mount: str, provider: InMemory, store: StoreMaker
) -> None:
    first = await push_one(provider, store(mount), item("app/db", b"secret", "password"))
    second = await push_one(provider, store(mount), item("app/db", b"secret", "password"))

    assert (first, second) == (CREATED, UNCHANGED)
    assert bao.read(mount, "app/db")["data"] == {"password": "secret"}
    assert bao.read(mount, "app/db")["metadata"]["version"] == 1
    assert bao.custom_metadata(mount, "app/db") == MARK


async def test_twelve_properties_of_one_key_make_one_version(
    bao: OpenBao, mount: str, provider: InMemory, store: StoreMaker
) -> None:
    items = [item("app", str(number).encode(), f"p{number}") for number in range(12)]

    results = await push(provider, store(mount), *items)

    assert [result.outcome for result in results] == [CREATED] * 12
    assert {result.provider_version for result in results} == {"1"}
    assert bao.read(mount, "app")["data"] == {f"p{number}": str(number) for number in range(12)}
    assert bao.read(mount, "app")["metadata"]["version"] == 1


async def test_a_property_leaves_the_others_alone(
    bao: OpenBao, mount: str, provider: InMemory, store: StoreMaker
) -> None:
    await push_one(provider, store(mount), item("app", b'{"user":"anna","port":5432,"more":{"a":[1]}}'))

    updated = await push_one(provider, store(mount), item(f"{mount}/app", b"bert", "user"))
    added = await push_one(provider, store(mount), item("app", b"two", "password"))

    assert (updated, added) == (UPDATED, UPDATED)
    assert bao.read(mount, "app")["data"] == {"user": "bert", "port": 5432, "more": {"a": [1]}, "password": "two"}
    assert bao.call("GET", f"{mount}/data/{mount}/app")[0] == 404


async def test_a_dot_in_a_property_is_part_of_its_name(
    bao: OpenBao, mount: str, provider: InMemory, store: StoreMaker
) -> None:
    await push_one(provider, store(mount), item("app", b'{"o":{"x":"1","y":"2"}}'))
    only_new: Any = {"precondition": PushPrecondition.IF_ABSENT}

    outcome = await push_one(provider, store(mount), item("app", b"new", "o.y", **only_new))
    written = bao.read(mount, "app")["data"]
    value = (await provider.get_one(store(mount), "app", property="o.y")).outcome
    existed = await delete(provider, store(mount), "app", "o.y", "o.x")

    assert outcome is UPDATED
    assert written == {"o": {"x": "1", "y": "2"}, "o.y": "new"}
    assert value == SecretBytes(b"new")
    assert existed == [True, False]
    assert bao.read(mount, "app")["data"] == {"o": {"x": "1", "y": "2"}}


async def test_a_member_with_dots_in_its_name_is_updated_in_place(
    bao: OpenBao, mount: str, provider: InMemory, store: StoreMaker
) -> None:
    await push_one(provider, store(mount), item("app", b'{"tls.crt":"old"}'))

    await push_one(provider, store(mount), item("app", b"new", "tls.crt"))

    assert bao.read(mount, "app")["data"] == {"tls.crt": "new"}


async def test_a_whole_secret_becomes_the_document(
    bao: OpenBao, mount: str, provider: InMemory, store: StoreMaker
) -> None:
    first = await push_one(provider, store(mount), item("app", {"user": b"anna", "password": b"<x>&"}))
    second = await push_one(provider, store(mount), item("app", {"user": b"anna", "password": b"<x>&"}))
    await push_one(provider, store(mount), item("nested", {"user": b"<anna>&"}, "config"))

    assert (first, second) == (CREATED, UNCHANGED)
    assert bao.read(mount, "app")["data"] == {"user": "anna", "password": "<x>&"}
    assert bao.read(mount, "nested")["data"] == {"config": '{"user":"<anna>&"}'}


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(b'{"a":{"b":[1,2,{"c":null}]},"d":true}', id="nested JSON"),
        pytest.param(b'{"n":9007199254740993,"m":[12345678901234567890123]}', id="numbers beyond 53 bits"),
        pytest.param(b'{"n":1.10,"e":1e5,"z":-0,"tiny":0.1}', id="numbers with another shortest spelling"),
        pytest.param(b'{ "b" : "x",  "a" : "y" }', id="blanks and the order of members"),
        pytest.param('{"u":"äöü \\u2028 \\ud83d\\ude00","html":"<a>&"}'.encode(), id="text beyond ASCII"),
        pytest.param(b"{}", id="an empty object"),
    ],
)
@pytest.mark.parametrize("version", ["v1", "v2"])
async def test_a_document_is_stable(
    bao: OpenBao, mount: str, mount_v1: str, *, provider: InMemory, store: StoreMaker, value: bytes, version: str
) -> None:
    context = store(mount if version == "v2" else mount_v1, version=version)
    assert await push_one(provider, context, item("app", value)) is CREATED
    mark = bao.mark()

    again = await push_one(provider, context, item("app", value))

    assert again is UNCHANGED
    assert bao.audited(mark).count("update") == bao.audited(mark).count("create") == 0


async def test_no_digit_is_lost(bao: OpenBao, mount: str, provider: InMemory, store: StoreMaker) -> None:
    await push_one(provider, store(mount), item("app", b'{"n":9007199254740993,"small":12}'))

    large = await provider.get_one(store(mount), "app", property="n")
    small = await provider.get_one(store(mount), "app", property="small")

    assert large.outcome == SecretBytes(b"9007199254740993")
    assert small.outcome == SecretBytes(b"12")
    assert bao.read(mount, "app")["data"] == {"n": "9007199254740993", "small": 12}


@pytest.mark.parametrize("property_", ["", "blob"])
async def test_binary_values_are_refused_with_advice(
    bao: OpenBao, mount: str, provider: InMemory, store: StoreMaker, property_: str
) -> None:
    value: Any = b"\xff\xfeCANARY" if property_ else {"blob": b"\xff\xfeCANARY"}

    error = await refused(provider, store(mount), item("app", value, property_))

    assert error.reason is ErrorReason.INVALID_REQUEST
    assert "b64enc" in error.message
    assert '"blob"' in error.message
    assert "CANARY" not in error.message
    assert bao.read(mount, "app") is None


async def test_a_value_that_is_no_object_needs_a_property(mount: str, provider: InMemory, store: StoreMaker) -> None:
    error = await refused(provider, store(mount), item("app", b"CANARY"))

    assert error.reason is ErrorReason.INVALID_REQUEST
    assert "remoteRef.property" in error.message
    assert "CANARY" not in error.message


async def test_one_bad_item_does_not_stop_the_others_of_its_key(
    bao: OpenBao, mount: str, provider: InMemory, store: StoreMaker
) -> None:
    results = await push(
        provider, store(mount), item("app", b"\xff", "bad"), item("app", b"x", "a*b"), item("app", b"x", "good")
    )

    assert [isinstance(result.outcome, ProviderError) for result in results] == [True, False, False]
    assert bao.read(mount, "app")["data"] == {"a*b": "x", "good": "x"}


# --- version 1 --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_path", [True, False])
async def test_a_version_1_engine_keeps_the_mark_in_the_value(
    bao: OpenBao, mount_v1: str, provider: InMemory, store: StoreMaker, with_path: bool
) -> None:
    context = store(mount_v1 if with_path else None, version="v1")
    key = f"{mount_v1}/app"

    first = await push_one(provider, context, item(key, b"anna", "user"))
    second = await push_one(provider, context, item(key, b"anna", "user"))
    third = await push_one(provider, context, item(key, b"x", "password"))

    assert (first, second, third) == (CREATED, UNCHANGED, UPDATED)
    stored = bao.must("GET", f"{mount_v1}/app")["data"]
    assert stored == {"user": "anna", "password": "x", "custom_metadata": MARK}
    assert await delete(provider, context, key, "user") == [True]
    assert await delete(provider, context, key, "password") == [True]
    assert bao.call("GET", f"{mount_v1}/app")[0] == 404


async def test_a_version_1_key_of_another_owner_is_left_alone(
    bao: OpenBao, mount_v1: str, provider: InMemory, store: StoreMaker
) -> None:
    bao.must("POST", f"{mount_v1}/app", {"user": "anna"})
    context = store(mount_v1, version="v1")

    error = await refused(provider, context, item("app", b"bert", "user"))

    assert error.reason is ErrorReason.OWNERSHIP_CONFLICT
    assert await delete(provider, context, "app", "user") == [False]
    assert bao.must("GET", f"{mount_v1}/app")["data"] == {"user": "anna"}


# --- whose it is ------------------------------------------------------------------------------------------------------


async def test_a_key_of_another_owner_is_left_alone(
    bao: OpenBao, mount: str, provider: InMemory, store: StoreMaker
) -> None:
    bao.put(mount, "app", {"user": "anna"})

    error = await refused(provider, store(mount), item("app", b"bert", "user"))
    existed = await delete(provider, store(mount), "app", "user")

    assert error.reason is ErrorReason.OWNERSHIP_CONFLICT
    assert "managed-by: external-secrets" in error.message
    assert existed == [False]
    assert bao.read(mount, "app")["data"] == {"user": "anna"}


async def test_custom_metadata_of_people_stays(bao: OpenBao, mount: str, provider: InMemory, store: StoreMaker) -> None:
    bao.must("POST", f"{mount}/metadata/prepared", {"custom_metadata": {"team": "blue"}})
    await push_one(provider, store(mount), item("prepared", b"x", "a"))
    bao.must("POST", f"{mount}/metadata/prepared", {"custom_metadata": {"team": "red", **MARK}})

    await push_one(provider, store(mount), item("prepared", b"y", "a"))

    assert bao.custom_metadata(mount, "prepared") == {"team": "red", **MARK}
    assert bao.read(mount, "prepared")["data"] == {"a": "y"}


async def test_a_key_whose_latest_version_was_deleted_is_written_again(
    bao: OpenBao, mount: str, provider: InMemory, store: StoreMaker
) -> None:
    await push_one(provider, store(mount), item("app", b"x", "a"))
    bao.must("DELETE", f"{mount}/data/app")

    outcome = await push_one(provider, store(mount), item("app", b"x", "a"))

    assert outcome is CREATED
    assert bao.read(mount, "app")["metadata"]["version"] == 2


async def test_a_key_of_another_owner_whose_latest_version_was_deleted_counts_as_absent(
    bao: OpenBao, mount: str, provider: InMemory, store: StoreMaker
) -> None:
    bao.put(mount, "app", {"user": "anna"})
    bao.must("POST", f"{mount}/metadata/app", {"custom_metadata": {"team": "blue"}})
    bao.must("DELETE", f"{mount}/data/app")

    outcome = await push_one(provider, store(mount), item("app", b"x", "a"))

    assert outcome is CREATED
    assert bao.read(mount, "app")["data"] == {"a": "x"}
    assert bao.read(mount, "app")["metadata"]["version"] == 2
    assert bao.custom_metadata(mount, "app") == {"team": "blue", **MARK}


# --- conditions -------------------------------------------------------------------------------------------------------


async def test_if_absent_leaves_an_existing_property_alone(
    bao: OpenBao, mount: str, provider: InMemory, store: StoreMaker
) -> None:
    bao.put(mount, "foreign", {"user": "anna"})
    await push_one(provider, store(mount), item("app", b"anna", "user"))
    only_new: Any = {"precondition": PushPrecondition.IF_ABSENT}

    skipped = await push_one(provider, store(mount), item("app", b"bert", "user", **only_new))
    foreign = await push_one(provider, store(mount), item("foreign", b"bert", "user", **only_new))
    added = await push_one(provider, store(mount), item("app", b"x", "password", **only_new))

    assert (skipped, foreign, added) == (PushOutcome.SKIPPED_EXISTS, PushOutcome.SKIPPED_EXISTS, UPDATED)
    assert bao.read(mount, "app")["data"] == {"user": "anna", "password": "x"}
    assert bao.read(mount, "foreign")["data"] == {"user": "anna"}


async def test_an_expected_version_is_compared(
    bao: OpenBao, mount: str, mount_v1: str, *, provider: InMemory, store: StoreMaker
) -> None:
    await push_one(provider, store(mount), item("app", b"1", "a"))

    def expecting(version: str, value: bytes) -> PushItem:
        return item("app", value, "a", precondition=PushPrecondition.IF_VERSION, expected_version=version)

    good = await push_one(provider, store(mount), expecting("1", b"2"))
    stale = await refused(provider, store(mount), expecting("1", b"3"))
    v1 = await refused(provider, store(mount_v1, version="v1"), expecting("1", b"3"))

    assert good is UPDATED
    assert stale.reason is ErrorReason.PRECONDITION_FAILED
    assert v1.reason is ErrorReason.UNSUPPORTED_OPERATION
    assert bao.read(mount, "app")["data"] == {"a": "2"}


async def test_writes_succeed_where_the_engine_demands_check_and_set(
    bao: OpenBao, mount: str, provider: InMemory, store: StoreMaker
) -> None:
    bao.must("POST", f"{mount}/config", {"cas_required": True})
    context = store(mount, checkAndSet={"required": True})

    await push_one(provider, context, item("app", b"1", "a"))
    await push_one(provider, context, item("app", b"2", "b"))
    assert await delete(provider, context, "app", "a") == [True]

    assert bao.read(mount, "app")["data"] == {"b": "2"}


async def test_parallel_writers_of_different_properties_lose_nothing(
    bao: OpenBao, mount: str, store: StoreMaker, *, two_providers: tuple[InMemory, InMemory]
) -> None:
    one, two = two_providers

    async def many(provider: InMemory, name: str) -> None:
        for number in range(6):
            for _ in range(10):
                (result,) = await push(provider, store(mount), item("app", b"x", f"{name}{number}"))
                if not isinstance(result.outcome, ProviderError):
                    break
                assert result.outcome.reason is ErrorReason.PRECONDITION_FAILED

    await asyncio.gather(many(one, "a"), many(two, "b"))

    expected = {f"{name}{number}": "x" for name in "ab" for number in range(6)}
    assert bao.read(mount, "app")["data"] == expected


async def test_twenty_parallel_pushes_of_one_session_all_succeed(
    bao: OpenBao, mount: str, provider: InMemory, store: StoreMaker
) -> None:
    outcomes = await asyncio.gather(
        *(push_one(provider, store(mount), item("app", b"x", f"p{number}")) for number in range(20))
    )

    assert outcomes.count(CREATED) == 1
    assert len(bao.read(mount, "app")["data"]) == 20


# --- deletion ---------------------------------------------------------------------------------------------------------


async def test_the_last_property_takes_value_and_metadata_along(
    bao: OpenBao, mount: str, provider: InMemory, store: StoreMaker
) -> None:
    for name in ("a", "b", "c.d"):
        await push_one(provider, store(mount), item("app", b"x", name))

    assert await delete(provider, store(mount), f"{mount}/app", "a") == [True]
    assert bao.read(mount, "app")["data"] == {"b": "x", "c.d": "x"}
    assert await delete(provider, store(mount), "app", "a") == [False]
    assert await delete(provider, store(mount), "app", "b", "c.d") == [True, True]

    assert bao.call("GET", f"{mount}/metadata/app")[0] == 404
    assert await delete(provider, store(mount), "app", "b") == [False]


async def test_a_whole_key_is_deleted(bao: OpenBao, mount: str, provider: InMemory, store: StoreMaker) -> None:
    await push_one(provider, store(mount), item("app", {"a": b"x", "b": b"y"}))

    assert await delete(provider, store(mount), "app") == [True]

    assert bao.call("GET", f"{mount}/metadata/app")[0] == 404


async def test_removing_several_properties_makes_one_version(
    bao: OpenBao, mount: str, provider: InMemory, store: StoreMaker
) -> None:
    await push_one(provider, store(mount), item("app", dict.fromkeys("abcd", b"x")))

    await delete(provider, store(mount), "app", "a", "b", "c")

    assert bao.read(mount, "app")["data"] == {"d": "x"}
    assert bao.read(mount, "app")["metadata"]["version"] == 2


# --- what cannot be written -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "path"),
    [
        pytest.param('path "{mount}/data/*" {{ capabilities = ["read"] }}', "metadata/app", id="no metadata"),
        pytest.param(
            'path "{mount}/data/*" {{ capabilities = ["read"] }}'
            ' path "{mount}/metadata/*" {{ capabilities = ["read", "create", "update"] }}',
            "data/app",
            id="no data",
        ),
    ],
)
async def test_a_missing_permission_names_the_path(
    bao: OpenBao, mount: str, provider: InMemory, store: StoreMaker, *, rules: str, path: str
) -> None:
    bao.policy(mount, rules.format(mount=mount))

    error = await refused(provider, store(mount, token=bao.token(mount)), item("app", b"CANARY", "a"))

    assert error.reason is ErrorReason.PERMISSION_DENIED
    assert f"{mount}/{path}" in error.message
    assert "CANARY" not in error.message


async def test_nothing_is_written_to_a_wrong_engine(
    bao: OpenBao, mount: str, mount_v1: str, *, provider: InMemory, store: StoreMaker
) -> None:
    as_v1 = await refused(provider, store(mount, version="v1"), item("app", b"x", "a"))
    as_v2 = await refused(provider, store(mount_v1), item("app", b"x", "a"))
    unmounted = await refused(provider, store(f"{mount}-nowhere"), item("app", b"x", "a"))

    assert "set version: v2" in as_v1.message
    assert "set version: v1" in as_v2.message
    assert "no engine is mounted" in unmounted.message
    assert bao.call("GET", f"{mount_v1}/data/app")[0] == 404
