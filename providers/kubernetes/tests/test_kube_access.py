"""Identities with few rights: errors name the missing right, and no identity sees the Secrets of another."""

from __future__ import annotations

from typing import Any

import pytest

from eso_api.values import SecretBytes
from eso_wire.errors import ProviderError
from eso_wire.values import PushItem, RemoteRef, SubscribeOpen, ValidationState, WatchItem

pytestmark = pytest.mark.live


def item(key: str, prop: str) -> PushItem:
    return PushItem(prop, RemoteRef(key, property=prop), SecretBytes(b"canary-value"))


def assert_names(error: ProviderError, verb: str, namespace: str) -> None:
    assert error.reason.value == "PERMISSION_DENIED"
    for words in (f'grant the verb "{verb}" on "secrets"', f'namespace "{namespace}"'):
        assert words in error.message
    assert "canary-value" not in error.message


async def test_get_without_list_reads_and_names_the_verb_that_find_needs(kube: Any, remote: Any) -> None:
    await remote.put("db", {"k": "v"})
    store = await kube.limited("get")

    assert await store.read("db", property="k") == "v"
    with pytest.raises(ProviderError) as caught:
        await store.find(name_regexp=".")

    assert_names(caught.value, "list", remote.namespace)


async def test_reading_without_any_right_names_get(kube: Any, remote: Any) -> None:
    await remote.put("db", {"k": "v"})

    error = await (await kube.limited("list")).read("db", property="k")

    assert_names(error, "get", remote.namespace)
    assert '"db"' in error.message


async def test_a_push_without_update_names_it_and_without_create_names_that(kube: Any, remote: Any) -> None:
    await remote.put("db", {"k": "v"})
    store = await kube.limited("get")

    (existing,) = await store.push(item("db", "k"))
    (absent,) = await store.push(item("new", "k"))

    assert_names(existing, "update", remote.namespace)
    assert_names(absent, "create", remote.namespace)
    assert (await remote.secret("db"))["text"] == {"k": "v"}


async def test_a_deletion_without_the_right_names_delete(kube: Any, remote: Any) -> None:
    await remote.put("db", {"k": "v"})

    (error,) = await (await kube.limited("get", "update")).delete(RemoteRef("db"))

    assert_names(error, "delete", remote.namespace)


async def test_rights_of_one_namespace_do_not_reach_another(kube: Any, remote: Any) -> None:
    other = await remote.new_namespace()
    await remote.put("db", {"k": "theirs"}, namespace=other)

    error = await kube.with_token(await remote.token(), namespace=other).read("db", property="k")

    assert_names(error, "get", other)


async def test_two_stores_with_different_credentials_never_see_each_others_value(kube: Any, remote: Any) -> None:
    """Same keys, same provider process, side by side; each sees its own namespace only."""
    other = await remote.new_namespace()
    await remote.put("db", {"k": "mine"})
    await remote.put("db", {"k": "theirs"}, namespace=other)
    tokens = await remote.token(), await remote.token(namespace=other)
    mine, theirs = kube.with_token(tokens[0]), kube.with_token(tokens[1], namespace=other)
    crossed = kube.with_token(tokens[0], namespace=other)

    for _ in range(3):
        assert await mine.read("db", property="k") == "mine"
        assert await theirs.read("db", property="k") == "theirs"
        assert (await crossed.read("db", property="k")).reason.value == "PERMISSION_DENIED"


# --- validation -------------------------------------------------------------------------------------------------------


async def test_a_store_that_may_get_secrets_is_ready(kube: Any) -> None:
    store = await kube.limited("get")

    assert (await kube.client.validate(store.context)).state is ValidationState.READY


async def test_a_store_that_may_get_one_named_secret_is_ready(kube: Any) -> None:
    store = await kube.limited("get", names=["db"])

    assert (await kube.client.validate(store.context)).state is ValidationState.READY


async def test_a_store_that_may_not_get_secrets_is_invalid_and_says_what_is_missing(kube: Any, remote: Any) -> None:
    store = await kube.limited("list", "watch")

    validation = await kube.client.validate(store.context)

    assert validation.state is ValidationState.INVALID
    assert_names(validation.error, "get", remote.namespace)


async def test_a_token_that_the_server_does_not_know_is_invalid(kube: Any) -> None:
    store = kube.with_token("no-token-of-this-server")

    validation = await kube.client.validate(store.context)

    assert validation.state is ValidationState.INVALID
    assert validation.error.reason.value == "CREDENTIALS_REJECTED"
    assert "no-token" not in validation.error.message
    assert (await store.read("db", property="k")).reason.value == "CREDENTIALS_REJECTED"


async def test_an_unreachable_server_leaves_the_question_open(kube: Any) -> None:
    spec = {"server": {"url": "https://127.0.0.1:1"}, "auth": {"token": {"bearerToken": {"name": "a", "key": "b"}}}}
    store = kube.store(spec, {"/auth/token/bearerToken": "token"})

    validation = await kube.client.validate(store.context)

    assert validation.state is ValidationState.UNKNOWN
    assert validation.error.reason.value == "BACKEND_UNAVAILABLE"


async def test_a_subscription_without_watch_names_the_verb(kube: Any, remote: Any) -> None:
    store = await kube.limited("get", "list")

    async def messages() -> Any:
        yield SubscribeOpen(store.context, (WatchItem("w", RemoteRef("db")),))

    with pytest.raises(ProviderError) as caught:
        async for _ in kube.client.subscribe(messages()):
            pass

    assert_names(caught.value, "watch", remote.namespace)
