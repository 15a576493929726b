"""Finding keys on a real server, with SCAN and without."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from eso_provider_vault.testing.openbao import OpenBao
from eso_sdk.testing import InMemory
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Context, FindQuery

StoreMaker = Callable[..., Context]
KEYS = ("app/db", "app/web/front", "app/web/back", "other/db", "top")


@pytest.fixture
def filled(bao: OpenBao, mount: str) -> str:
    """An engine with keys at several depths; blue ones carry custom metadata."""
    for key in KEYS:
        bao.put(mount, key, {"key": key})
        team = "blue" if key.startswith("app/") else "red"
        bao.must("POST", f"{mount}/metadata/{key}", {"custom_metadata": {"team": team, "stage": "test"}})
    return mount


@pytest.fixture(params=["scan", "list"])
def token(bao: OpenBao, filled: str, request: pytest.FixtureRequest) -> str:
    """A token that may scan, and one that may only list, as on Vault."""
    more = ', "scan"' if request.param == "scan" else ""
    bao.policy(
        filled,
        f'path "{filled}/data/*" {{ capabilities = ["read"] }}'
        f' path "{filled}/metadata/*" {{ capabilities = ["read", "list"{more}] }}'
        f' path "{filled}/detailed-metadata/*" {{ capabilities = ["read", "list"{more}] }}',
    )
    return bao.token(filled)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        pytest.param(FindQuery(name_regexp="db"), {"app/db", "other/db"}, id="by name, anywhere in the key"),
        pytest.param(FindQuery(name_regexp="^app/"), {"app/db", "app/web/front", "app/web/back"}, id="anchored"),
        pytest.param(FindQuery(path="app", name_regexp="."), {"app/db", "app/web/front", "app/web/back"}, id="path"),
        pytest.param(FindQuery(path="/app/web/"), {"app/web/front", "app/web/back"}, id="a path and nothing else"),
        pytest.param(FindQuery(tags={"team": "red"}), {"other/db", "top"}, id="by tags"),
        pytest.param(FindQuery(tags={"team": "blue", "stage": "live"}), set(), id="all tags have to be there"),
        pytest.param(FindQuery(path="app/web", tags={"team": "blue"}), {"app/web/front", "app/web/back"}, id="both"),
        pytest.param(FindQuery(name_regexp="^top$", tags={"team": "blue"}), {"top"}, id="a name wins over tags"),
        pytest.param(FindQuery(name_regexp="nothing"), set(), id="no match is an empty answer"),
    ],
)
async def test_keys_are_found(
    filled: str, token: str, provider: InMemory, *, store: StoreMaker, query: FindQuery, expected: set[str]
) -> None:
    found = await provider.find(store(filled, token=token), query)

    assert {each.key for each in found} == expected
    assert all(each.value.reveal().decode() == f'{{"key":"{each.key}"}}' for each in found)
    assert all(each.metadata.provider_version == "1" for each in found)


async def test_a_store_without_path_finds_keys_that_it_can_read(
    filled: str, provider: InMemory, store: StoreMaker
) -> None:
    found = await provider.find(store(None), FindQuery(path=f"{filled}/app", name_regexp="web"))

    assert {each.key for each in found} == {f"{filled}/app/web/front", f"{filled}/app/web/back"}
    for each in found:
        assert (await provider.get_one(store(None), each.key)).outcome == each.value


async def test_five_hundred_keys_are_one_call_besides_the_reads(
    bao: OpenBao, mount: str, provider: InMemory, store: StoreMaker
) -> None:
    for number in range(500):
        bao.put(mount, f"folder-{number % 20}/key-{number}", {"n": number})
    mark = bao.mark()

    found = await provider.find(store(mount), FindQuery(name_regexp="."))

    asked = bao.audited(mark)
    assert len(found) == 500
    assert asked.count("read", f"{mount}/data/") == 500
    assert len(asked.requests) - 500 <= 3


async def test_keys_whose_latest_version_is_deleted_are_left_out(
    bao: OpenBao, filled: str, provider: InMemory, store: StoreMaker
) -> None:
    bao.must("DELETE", f"{filled}/data/app/db")

    found = await provider.find(store(filled), FindQuery(name_regexp="db"))

    assert {each.key for each in found} == {"other/db"}


async def test_a_version_1_engine_is_searched_by_name(
    bao: OpenBao, mount_v1: str, provider: InMemory, store: StoreMaker
) -> None:
    for key in KEYS:
        bao.must("POST", f"{mount_v1}/{key}", {"key": key})
    context = store(mount_v1, version="v1")

    found = await provider.find(context, FindQuery(path="app", name_regexp="web"))

    assert {each.key for each in found} == {"app/web/front", "app/web/back"}
    with pytest.raises(ProviderError) as refused:
        await provider.find(context, FindQuery(tags={"team": "blue"}))
    assert refused.value.reason is ErrorReason.UNSUPPORTED_OPERATION


@pytest.mark.parametrize(
    "query",
    [
        pytest.param(FindQuery(path="app/none", name_regexp="."), id="by name"),
        pytest.param(FindQuery(path="app/none/", tags={"team": "blue"}), id="by tags"),
        pytest.param(FindQuery(path="app/db", name_regexp="."), id="a key where a folder should be"),
    ],
)
async def test_a_folder_that_does_not_exist_is_missing(
    filled: str, token: str, provider: InMemory, *, store: StoreMaker, query: FindQuery
) -> None:
    with pytest.raises(ProviderError) as missing:
        await provider.find(store(filled, token=token), query)

    assert missing.value.reason is ErrorReason.SECRET_NOT_FOUND
    assert f'folder "{query.path}" does not exist' in missing.value.message


async def test_an_engine_without_keys_is_missing_like_a_folder(
    mount: str, mount_v1: str, provider: InMemory, store: StoreMaker
) -> None:
    for context in (store(mount), store(mount_v1, version="v1")):
        with pytest.raises(ProviderError) as missing:
            await provider.find(context, FindQuery(name_regexp="."))

        assert missing.value.reason is ErrorReason.SECRET_NOT_FOUND
        assert "the engine has no keys" in missing.value.message


async def test_a_search_in_a_wrong_engine_is_an_error_and_not_a_missing_folder(
    bao: OpenBao, mount: str, mount_v1: str, *, provider: InMemory, store: StoreMaker
) -> None:
    bao.put(mount, "app", {"a": "b"})
    reasons = {}
    for name, context in {
        "unmounted": store(f"{mount}-nowhere"),
        "v1": store(mount_v1),
        "v2": store(mount, version="v1"),
        "namespace": store(mount, namespace="absent"),
        "denied": store(mount, token=bao.token("default")),
    }.items():
        with pytest.raises(ProviderError) as failed:
            await provider.find(context, FindQuery(path="empty", name_regexp="."))
        reasons[name] = failed.value.reason

    assert reasons == {
        "unmounted": ErrorReason.CONFIG_INVALID,
        "v1": ErrorReason.CONFIG_INVALID,
        "v2": ErrorReason.CONFIG_INVALID,
        "namespace": ErrorReason.CONFIG_INVALID,
        "denied": ErrorReason.PERMISSION_DENIED,
    }


async def test_one_denied_key_fails_the_whole_find(
    bao: OpenBao, filled: str, provider: InMemory, store: StoreMaker
) -> None:
    bao.policy(
        filled,
        f'path "{filled}/data/app/*" {{ capabilities = ["read"] }}'
        f' path "{filled}/metadata/*" {{ capabilities = ["list", "scan"] }}',
    )

    with pytest.raises(ProviderError) as denied:
        await provider.find(store(filled, token=bao.token(filled)), FindQuery(name_regexp="db"))

    assert denied.value.reason is ErrorReason.PERMISSION_DENIED
    assert f"{filled}/data/other/db" in denied.value.message
