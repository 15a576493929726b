"""Reads on a real server: the values of a key, and the failures that are never reported as "not found"."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from eso_provider_vault.store import OpenBaoStore
from eso_provider_vault.testing.openbao import OpenBao
from eso_sdk.testing import InMemory
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import (
    Context,
    FindQuery,
    GetItem,
    GetResult,
    MetadataPolicy,
    RemoteRef,
    Shape,
    ValidationState,
)

StoreMaker = Callable[..., Context]


def text(result: GetResult) -> str:
    assert not isinstance(result.outcome, ProviderError), result.outcome.message
    return result.outcome.reveal().decode()  # type: ignore[union-attr]  # a single value


def members(result: GetResult) -> dict[str, str]:
    assert isinstance(result.outcome, dict), result.outcome
    return {name: value.reveal().decode() for name, value in result.outcome.items()}


def problem(result: GetResult) -> ProviderError:
    assert isinstance(result.outcome, ProviderError), "it was found"
    return result.outcome


@pytest.mark.parametrize(
    ("with_path", "key"),
    [
        pytest.param(True, "app/db", id="a key below the mount"),
        pytest.param(True, "{mount}/app/db", id="a key that repeats its mount"),
        pytest.param(True, "{mount}/data/app/db", id="a key that repeats its mount and data"),
        pytest.param(False, "{mount}/app/db", id="a store without path: the first segment is the mount"),
        pytest.param(False, "{mount}/data/app/db", id="a store without path and a key with data"),
        pytest.param(True, "/app/db", id="a slash in front"),
        pytest.param(True, "app/db/", id="a slash at the end"),
        pytest.param(True, "app//db", id="two slashes"),
        pytest.param(False, "//{mount}/app//db/", id="a store without path and slashes everywhere"),
    ],
)
async def test_every_spelling_of_a_version_2_key_reads_it(
    bao: OpenBao, mount: str, *, provider: InMemory, store: StoreMaker, with_path: bool, key: str
) -> None:
    bao.put(mount, "app/db", {"user": "anna"})

    result = await provider.get_one(store(mount if with_path else None), key.format(mount=mount))

    assert text(result) == '{"user":"anna"}'
    assert result.metadata.provider_version == "1"


@pytest.mark.parametrize(
    ("with_path", "key"),
    [
        pytest.param(True, "app/db", id="a key below the mount"),
        pytest.param(True, "{mount}/app/db", id="a key that repeats its mount"),
        pytest.param(True, "/app//db/", id="slashes everywhere"),
        pytest.param(False, "{mount}/app/db", id="a store without path"),
    ],
)
async def test_every_spelling_of_a_version_1_key_reads_it(
    bao: OpenBao, mount_v1: str, *, provider: InMemory, store: StoreMaker, with_path: bool, key: str
) -> None:
    bao.must("POST", f"{mount_v1}/app/db", {"user": "anna"})

    context = store(mount_v1 if with_path else None, version="v1")
    result = await provider.get_one(context, key.format(mount=mount_v1))

    assert text(result) == '{"user":"anna"}'
    assert result.metadata.provider_version == ""


async def test_a_version_1_path_may_reach_into_the_mount(
    bao: OpenBao, mount_v1: str, provider: InMemory, store: StoreMaker
) -> None:
    bao.must("POST", f"{mount_v1}/team/app/db", {"user": "anna"})
    context = store(f"{mount_v1}/team", version="v1")

    validation = await provider.validate(context)
    short = await provider.get_one(context, "app/db", property="user")
    long = await provider.get_one(context, f"{mount_v1}/team/app/db", property="user")
    absent = problem(await provider.get_one(context, "app/none"))
    found = await provider.find(context, FindQuery(path="app", name_regexp="."))

    assert validation.state is ValidationState.READY
    assert (text(short), text(long)) == ("anna", "anna")
    assert absent.reason is ErrorReason.SECRET_NOT_FOUND
    assert [each.key for each in found] == ["app/db"]


async def test_a_version_1_store_without_path_is_ready_reads_and_finds(
    bao: OpenBao, mount_v1: str, provider: InMemory, store: StoreMaker
) -> None:
    bao.must("POST", f"{mount_v1}/team/db", {"user": "anna"})
    context = store(None, version="v1")

    validation = await provider.validate(context)
    result = await provider.get_one(context, f"{mount_v1}/team/db", property="user")
    found = await provider.find(context, FindQuery(path=f"{mount_v1}/team", name_regexp="."))

    assert validation.state is ValidationState.READY
    assert text(result) == "anna"
    assert [each.key for each in found] == [f"{mount_v1}/team/db"]


@pytest.mark.parametrize(
    ("path", "key"),
    [
        pytest.param("{mount}", "data/app", id="data in the key"),
        pytest.param("{mount}/data", "app", id="data in the path"),
    ],
)
async def test_version_v1_on_a_version_2_engine_reads_below_data(
    bao: OpenBao, mount: str, *, provider: InMemory, store: StoreMaker, path: str, key: str
) -> None:
    bao.put(mount, "app", {"user": "anna"})

    result = await provider.get_one(store(path.format(mount=mount), version="v1"), key, property="data.user")

    assert text(result) == "anna"


async def test_a_mount_may_contain_slashes(bao: OpenBao, mount: str, provider: InMemory, store: StoreMaker) -> None:
    bao.enable(f"{mount}-teams/blue")
    bao.put(f"{mount}-teams/blue", "app", {"user": "anna"})

    result = await provider.get_one(store(f"{mount}-teams/blue"), f"{mount}-teams/blue/app", property="user")

    assert text(result) == "anna"


@pytest.mark.parametrize(
    ("property_", "expected"),
    [
        pytest.param("plain", "x", id="a string is unquoted"),
        pytest.param("a.b", "literal", id="a literal member wins over a path"),
        pytest.param("nested.deep", "down", id="a path goes into objects"),
        pytest.param("nested", '{"deep":"down"}', id="an object is JSON"),
        pytest.param("list.1", "two", id="an index goes into arrays"),
        pytest.param("number", "1.50", id="a number is as written"),
        pytest.param("big", "123456789012345678901234567890", id="a large number keeps all digits"),
        pytest.param("nothing", "", id="null is empty"),
        pytest.param("yes", "true", id="a boolean"),
        pytest.param("", None, id="no property: the whole document"),
    ],
)
async def test_a_property_is_looked_up_as_a_member_then_as_a_path(
    bao: OpenBao, mount_v1: str, *, provider: InMemory, store: StoreMaker, property_: str, expected: str | None
) -> None:
    document = (
        b'{"plain":"x","a.b":"literal","a":{"b":"path"},"nested":{"deep":"down"},"list":["one","two"],"number":1.50,'
        b'"big":123456789012345678901234567890,"nothing":null,"yes":true,"html":"<a>&</a>"}'
    )
    bao.send_raw("POST", f"{mount_v1}/app", document)

    result = await provider.get_one(store(mount_v1, version="v1"), "app", property=property_)

    assert text(result) == (
        expected
        if expected is not None
        else '{"a":{"b":"path"},"a.b":"literal","big":123456789012345678901234567890,'
        '"html":"\\u003ca\\u003e\\u0026\\u003c/a\\u003e","list":["one","two"],"nested":{"deep":"down"},'
        '"nothing":null,"number":1.50,"plain":"x","yes":true}'
    )


async def test_a_missing_property_is_not_a_missing_key(
    bao: OpenBao, mount: str, provider: InMemory, store: StoreMaker
) -> None:
    bao.put(mount, "app", {"text": "no JSON in here"})

    missing = problem(await provider.get_one(store(mount), "app", property="text.user"))

    assert missing.reason is ErrorReason.PROPERTY_NOT_FOUND
    assert '"app" has no property "text.user"' in missing.message


async def test_a_map_has_every_member(bao: OpenBao, mount: str, provider: InMemory, store: StoreMaker) -> None:
    bao.put(mount, "app", {"user": "anna", "port": 5432, "more": {"a": [1, 2]}, "none": None})

    whole = await provider.get_one(store(mount), "app", shape=Shape.MAP)
    inner = await provider.get_one(store(mount), "app", shape=Shape.MAP, property="more")

    assert members(whole) == {"user": "anna", "port": "5432", "more": '{"a":[1,2]}', "none": ""}
    assert members(inner) == {"a": "[1,2]"}


async def test_ten_properties_the_whole_value_and_a_map_are_one_read(
    bao: OpenBao, mount: str, provider: InMemory, store: StoreMaker
) -> None:
    bao.put(mount, "app", {f"p{number}": str(number) for number in range(10)})
    refs = [RemoteRef("app", property=f"p{number}") for number in range(10)]
    refs += [RemoteRef("app"), RemoteRef(f"{mount}/app", property="p1")]
    mark = bao.mark()

    items = [GetItem(str(at), ref) for at, ref in enumerate(refs)]
    results = await provider.get(store(mount), [*items, GetItem("map", RemoteRef("app"), Shape.MAP)])

    assert len(members(results[12])) == 10
    assert [text(result) for result in results[:10]] == [str(number) for number in range(10)]
    assert text(results[11]) == "1"
    assert bao.audited(mark).requests == (("read", f"{mount}/data/app"),)


async def test_versions_are_read_by_number(bao: OpenBao, mount: str, provider: InMemory, store: StoreMaker) -> None:
    bao.put(mount, "app", {"user": "first"})
    bao.put(mount, "app", {"user": "second"})
    bao.put(mount, "app", {"user": "third"})
    bao.must("POST", f"{mount}/delete/app", {"versions": [2]})

    first = await provider.get_one(store(mount), "app", property="user", version="1")
    deleted = problem(await provider.get_one(store(mount), "app", property="user", version="2"))
    absent = problem(await provider.get_one(store(mount), "app", property="user", version="9"))
    no_key = problem(await provider.get_one(store(mount), "other", version="1"))
    no_number = problem(await provider.get_one(store(mount), "app", version="latest"))

    assert text(first) == "first"
    assert deleted.reason is ErrorReason.SECRET_NOT_FOUND
    assert absent.reason is ErrorReason.VERSION_NOT_FOUND
    assert no_key.reason is ErrorReason.SECRET_NOT_FOUND
    assert no_number.reason is ErrorReason.VERSION_NOT_FOUND


async def test_a_version_1_engine_has_no_versions_and_no_metadata(
    bao: OpenBao, mount_v1: str, provider: InMemory, store: StoreMaker
) -> None:
    bao.must("POST", f"{mount_v1}/app", {"user": "anna"})
    fetch = MetadataPolicy.FETCH

    ignored = await provider.get_one(store(mount_v1, version="v1"), "app", version="7", property="user")
    refused = problem(await provider.get_one(store(mount_v1, version="v1", backend=OpenBaoStore), "app", version="7"))
    metadata = problem(await provider.get_one(store(mount_v1, version="v1"), "app", metadata_policy=fetch))

    assert text(ignored) == "anna"
    assert refused.reason is ErrorReason.INVALID_REQUEST
    assert metadata.reason is ErrorReason.UNSUPPORTED_OPERATION


async def test_metadata_is_custom_metadata_and_facts_of_the_engine(
    bao: OpenBao, mount: str, provider: InMemory, store: StoreMaker
) -> None:
    bao.put(mount, "app", {"user": "anna"})
    bao.must("POST", f"{mount}/metadata/app", {"custom_metadata": {"team": "blue"}})
    fetch: Any = {"metadata_policy": MetadataPolicy.FETCH}

    team = await provider.get_one(store(mount), f"{mount}/app", property="team", **fetch)
    version = await provider.get_one(store(mount), "app", property="current_version", **fetch)
    whole = members(await provider.get_one(store(mount), "app", shape=Shape.MAP, **fetch))
    document = json.loads(text(await provider.get_one(store(mount), "app", **fetch)))
    absent = problem(await provider.get_one(store(mount), "other", **fetch))

    assert (text(team), text(version)) == ("blue", "1")
    assert document["current_version"] == "1"
    assert all(isinstance(value, str) for value in document.values())
    assert whole.keys() == {"team", "created_time", "current_version", "delete_version_after"}
    assert absent.reason is ErrorReason.SECRET_NOT_FOUND


async def test_the_open_bao_block_reads_the_mount_kv_unless_told_otherwise(
    bao: OpenBao, provider: InMemory, store: StoreMaker
) -> None:
    bao.enable("kv")
    bao.put("kv", "app", {"user": "anna"})

    result = await provider.get_one(store(backend=OpenBaoStore), "app", property="user")

    assert text(result) == "anna"


# --- what is "not found", and what never is ---------------------------------------------------------------------------


async def test_absent_and_deleted_keys_are_not_found(
    bao: OpenBao, mount: str, mount_v1: str, provider: InMemory, store: StoreMaker
) -> None:
    bao.put(mount, "deleted", {"user": "anna"})
    bao.must("DELETE", f"{mount}/data/deleted")
    bao.put(mount, "destroyed", {"user": "anna"})
    bao.must("PUT", f"{mount}/destroy/destroyed", {"versions": [1]})

    for context, key in (
        (store(mount), "absent"),
        (store(mount), "deleted"),
        (store(mount), "destroyed"),
        (store(mount_v1, version="v1"), "absent"),
        (store(None, version="v1"), f"{mount_v1}/absent"),
    ):
        missing = problem(await provider.get_one(context, key))
        assert missing.reason is ErrorReason.SECRET_NOT_FOUND, key
        assert f'"{key}" does not exist' in missing.message


async def test_a_token_that_may_only_read_still_gets_not_found(
    bao: OpenBao, mount: str, provider: InMemory, store: StoreMaker
) -> None:
    bao.policy(mount, f'path "{mount}/data/app/*" {{ capabilities = ["read"] }}')
    token = bao.token(mount, no_default_policy=True)
    bao.put(mount, "app/there", {"user": "anna"})

    missing = problem(await provider.get_one(store(mount, token=token), "app/absent"))

    assert missing.reason is ErrorReason.SECRET_NOT_FOUND


async def test_the_engine_is_confirmed_once_a_minute(
    bao: OpenBao, mount: str, provider: InMemory, store: StoreMaker
) -> None:
    context = store(mount)
    mark = bao.mark()

    await provider.get(context, [GetItem(str(number), RemoteRef(f"absent-{number}")) for number in range(3)])
    await provider.get_one(context, "absent-9")

    assert 1 <= bao.audited(mark).count("read", "sys/internal/ui/mounts/") <= 3
    mark = bao.mark()
    await provider.get_one(context, "absent-10")
    assert bao.audited(mark).count("read", "sys/internal/ui/mounts/") == 0


async def test_an_unmounted_engine_is_not_a_missing_key(
    bao: OpenBao, mount: str, provider: InMemory, store: StoreMaker
) -> None:
    bao.put(mount, "app", {"user": "anna"})
    context = store(mount)
    assert text(await provider.get_one(context, "app", property="user")) == "anna"
    bao.disable(mount)

    error = problem(await provider.get_one(context, "app"))

    assert not error.is_not_found
    assert "no engine is mounted" in error.message
    assert mount in error.message


async def test_a_namespace_that_is_wrong_or_deleted_is_not_a_missing_key(
    bao: OpenBao, mount: str, provider: InMemory, store: StoreMaker
) -> None:
    bao.must("POST", f"sys/namespaces/{mount}-team")
    bao.enable("kv", namespace=f"{mount}-team")
    bao.put("kv", "app", {"user": "anna"}, namespace=f"{mount}-team")
    context = store("kv", namespace=f"{mount}-team")
    assert text(await provider.get_one(context, "app", property="user")) == "anna"
    bao.must("DELETE", f"sys/namespaces/{mount}-team")

    deleted = problem(await provider.get_one(context, "app"))
    wrong = problem(await provider.get_one(store("kv", namespace="absent"), "app"))

    for error in (deleted, wrong):
        assert not error.is_not_found, error.message
        assert "namespace" in error.message


@pytest.mark.parametrize("key", ["app", "absent"])
async def test_a_wrong_engine_version_is_named_and_is_not_a_missing_key(
    bao: OpenBao, mount: str, mount_v1: str, *, provider: InMemory, store: StoreMaker, key: str
) -> None:
    bao.put(mount, "app", {"user": "anna"})
    bao.must("POST", f"{mount_v1}/app", {"user": "anna"})

    as_v1 = problem(await provider.get_one(store(mount, version="v1"), key))
    as_v2 = problem(await provider.get_one(store(mount_v1), key))

    assert (as_v1.reason, as_v2.reason) == (ErrorReason.CONFIG_INVALID, ErrorReason.CONFIG_INVALID)
    assert "set version: v2" in as_v1.message
    assert "set version: v1" in as_v2.message


async def test_engines_with_a_common_beginning_are_confirmed_one_by_one(
    bao: OpenBao, mount: str, provider: InMemory, store: StoreMaker
) -> None:
    bao.enable(f"{mount}-team/new")
    bao.enable(f"{mount}-team/old", version=1)

    new = problem(await provider.get_one(store(None), f"{mount}-team/new/data/absent"))
    old = problem(await provider.get_one(store(None), f"{mount}-team/old/data/absent"))

    assert new.reason is ErrorReason.SECRET_NOT_FOUND
    assert old.reason is ErrorReason.CONFIG_INVALID


async def test_an_engine_that_is_not_kv_is_not_a_missing_key(
    bao: OpenBao, mount: str, provider: InMemory, store: StoreMaker
) -> None:
    bao.enable(f"{mount}-transit", "transit")

    error = problem(await provider.get_one(store(f"{mount}-transit", version="v1"), "keys/app"))

    assert error.reason is ErrorReason.CONFIG_INVALID
    assert "type transit" in error.message


@pytest.mark.parametrize("key", ["app/db", "app/db/", "/app//db"])
async def test_a_folder_is_not_a_missing_key(
    bao: OpenBao, mount: str, provider: InMemory, store: StoreMaker, key: str
) -> None:
    bao.put(mount, "app/db/main", {"user": "anna"})

    error = problem(await provider.get_one(store(mount), key))

    assert error.reason is ErrorReason.INVALID_REQUEST
    assert "is a folder" in error.message


@pytest.mark.parametrize("key", ["../sys/mounts", "a/../../b", "a//../b", ".", "a\nb", "", "//"])
async def test_keys_that_a_server_would_read_as_another_path_are_refused(
    mount: str, provider: InMemory, store: StoreMaker, key: str
) -> None:
    error = problem(await provider.get_one(store(mount), key))

    assert error.reason is ErrorReason.INVALID_REQUEST


async def test_keys_with_any_other_character_are_read(
    bao: OpenBao, mount: str, provider: InMemory, store: StoreMaker
) -> None:
    bao.must("POST", f"{mount}/data/" + "a%20b/%C3%A4%3Fx%3D1%23%25", {"data": {"user": "anna"}})

    result = await provider.get_one(store(mount), "a b/ä?x=1#%", property="user")

    assert text(result) == "anna"


async def test_a_denied_path_names_it_and_is_not_a_missing_key(
    bao: OpenBao, mount: str, provider: InMemory, store: StoreMaker
) -> None:
    token = bao.token("default")

    error = problem(await provider.get_one(store(mount, token=token), "app"))

    assert error.reason is ErrorReason.PERMISSION_DENIED
    assert f"{mount}/data/app" in error.message


@pytest.mark.parametrize("token", ["s.CANARYwrongtoken", "bad token", ""])
async def test_a_wrong_token_is_rejected_credentials(
    mount: str, provider: InMemory, store: StoreMaker, token: str
) -> None:
    error = problem(await provider.get_one(store(mount, token=token), "app"))

    assert error.reason in (ErrorReason.CREDENTIALS_REJECTED, ErrorReason.CONFIG_INVALID)
    assert "CANARY" not in error.message


async def test_an_expired_token_is_rejected_credentials(
    bao: OpenBao, mount: str, provider: InMemory, store: StoreMaker
) -> None:
    token = bao.token("default")
    bao.must("POST", "auth/token/revoke", {"token": token})

    error = problem(await provider.get_one(store(mount, token=token), "app"))

    assert error.reason is ErrorReason.CREDENTIALS_REJECTED


async def test_a_newline_after_the_token_is_ignored(
    bao: OpenBao, mount: str, provider: InMemory, store: StoreMaker
) -> None:
    bao.put(mount, "app", {"user": "anna"})

    result = await provider.get_one(store(mount, token=f"{bao.root_token}\n"), "app", property="user")

    assert text(result) == "anna"


async def test_a_check_looks_for_key_and_property(
    bao: OpenBao, mount: str, provider: InMemory, store: StoreMaker
) -> None:
    bao.put(mount, "app", {"user": "anna", "more": {"a": "b"}})
    refs = {
        "key": RemoteRef("app"),
        "property": RemoteRef("app", property="user"),
        "path": RemoteRef("app", property="more.a"),
        "no property": RemoteRef("app", property="password"),
        "no key": RemoteRef("other"),
        "no version": RemoteRef("app", version="4"),
    }

    results = await provider.check(store(mount), [GetItem(name, ref) for name, ref in refs.items()])
    unmounted = await provider.check(store(f"{mount}-nowhere"), [GetItem("one", RemoteRef("app"))])

    assert {result.item_id for result in results if result.exists} == {"key", "property", "path"}
    assert all(result.error is None for result in results)
    assert {result.provider_version for result in results if result.exists} == {"1"}
    assert unmounted[0].error is not None


async def test_a_document_nested_without_end_fails_alone(
    bao: OpenBao, mount_v1: str, provider: InMemory, store: StoreMaker
) -> None:
    bao.send_raw("POST", f"{mount_v1}/deep", b'{"a":' + b"[" * 280 + b"]" * 280 + b"}")
    bao.must("POST", f"{mount_v1}/flat", {"user": "anna"})
    items = [GetItem(key, RemoteRef(key)) for key in ("deep", "flat")]

    deep, flat = await provider.get(store(mount_v1, version="v1"), items)

    assert problem(deep).reason is ErrorReason.BACKEND_ERROR
    assert text(flat) == '{"user":"anna"}'


async def test_a_missing_key_costs_no_new_login(
    bao: OpenBao, mount: str, provider: InMemory, store: StoreMaker
) -> None:
    bao.policy(mount, f'path "{mount}/data/*" {{ capabilities = ["read"] }}')
    context = store(mount, token=bao.token(mount))
    problem(await provider.get_one(context, "absent"))
    mark = bao.mark()

    problem(await provider.get_one(context, "absent"))

    asked = bao.audited(mark).requests
    assert asked == (("read", f"{mount}/data/absent"), ("list", f"{mount}/metadata/absent/"))
