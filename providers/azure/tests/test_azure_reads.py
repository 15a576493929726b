"""Reads of secrets, keys and certificates, their versions, properties, tags and times."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from eso_provider_azure.testing.entra import Reply
from eso_provider_azure.testing.keyvault import leaf_of, pkcs12_of
from eso_provider_azure.testing.server import AzureServer
from eso_provider_azure.testing.sessions import store
from eso_sdk.testing import InMemory
from eso_sdk.testing.server import read
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import GetItem, MetadataPolicy, RemoteRef, Shape

JSON = '{"user":"anna","a.b":"literal","a":{"b":"path"},"only.dots":"member","none":null,"list":[1]}'


@pytest.mark.parametrize(
    ("ref", "expected"),
    [
        pytest.param(RemoteRef("json"), JSON.encode(), id="the whole value"),
        pytest.param(RemoteRef("secret/json"), JSON.encode(), id="with the prefix of secrets"),
        pytest.param(RemoteRef("secret/json/ignored"), JSON.encode(), id="only two segments count"),
        pytest.param(RemoteRef("json", property="user"), b"anna", id="a property"),
        pytest.param(RemoteRef("json", property="a.b"), b"path", id="a path before the literal member"),
        pytest.param(RemoteRef("json", property="only.dots"), b"member", id="the literal member if the path is absent"),
        pytest.param(RemoteRef("json", property="none"), b"", id="null is nothing"),
        pytest.param(RemoteRef("json", property="list"), b"[1]", id="an array stays JSON"),
    ],
)
async def test_a_reference_leads_to_a_part_of_a_secret(
    ref: RemoteRef, expected: bytes, azure: AzureServer, provider: InMemory
) -> None:
    azure.vault("kv-one").contents.put("json", JSON)

    assert await read(provider, store(), ref) == [expected]


@pytest.mark.parametrize(
    ("ref", "reason", "text"),
    [
        pytest.param(
            RemoteRef("absent"), ErrorReason.SECRET_NOT_FOUND, 'secret "absent" in vault https://kv-one', id="no secret"
        ),
        pytest.param(
            RemoteRef("plain", version="0" * 32), ErrorReason.VERSION_NOT_FOUND, "version", id="no such version"
        ),
        pytest.param(RemoteRef("plain", property="x"), ErrorReason.PROPERTY_NOT_FOUND, '"x"', id="no property"),
        pytest.param(RemoteRef("table/x"), ErrorReason.INVALID_REQUEST, "secret/, key/ and cert/", id="no such type"),
        pytest.param(RemoteRef("under_score"), ErrorReason.INVALID_REQUEST, "letters, digits and dashes", id="no name"),
        pytest.param(RemoteRef("key/absent"), ErrorReason.SECRET_NOT_FOUND, 'key "absent"', id="no key"),
        pytest.param(
            RemoteRef("cert/absent"), ErrorReason.SECRET_NOT_FOUND, 'certificate "absent"', id="no certificate"
        ),
        pytest.param(
            RemoteRef("off"), ErrorReason.BACKEND_ERROR, "is disabled (HTTP 403); enable it", id="disabled, not denied"
        ),
        pytest.param(
            RemoteRef("key/off"), ErrorReason.BACKEND_ERROR, "is disabled (HTTP 403); enable it", id="a disabled key"
        ),
    ],
)
async def test_a_failed_read_says_which_object_and_why(
    ref: RemoteRef, reason: ErrorReason, text: str, azure: AzureServer, provider: InMemory
) -> None:
    contents = azure.vault("kv-one").contents
    contents.put("plain", "value")
    contents.put("off", "value", attributes={"enabled": False})
    contents.add("keys", "off", {"key": {"kty": "RSA"}}, {"attributes": {"enabled": False}})

    (failed,) = await read(provider, store(), ref)

    assert isinstance(failed, ProviderError)
    assert failed.reason is reason
    assert text in failed.message


async def test_versions_are_the_digits_at_the_end_of_the_id(azure: AzureServer, provider: InMemory) -> None:
    contents = azure.vault("kv-one").contents
    first, second = contents.put("versions", "one"), contents.put("versions", "two")

    refs = [RemoteRef("versions", version=first), RemoteRef("versions")]
    results = await provider.get(store(), tuple(GetItem(str(n), ref) for n, ref in enumerate(refs)))

    assert [result.metadata.provider_version for result in results] == [first, second]
    assert await read(provider, store(), *refs) == [b"one", b"two"]


async def test_references_to_one_secret_share_one_call(azure: AzureServer, provider: InMemory) -> None:
    azure.vault("kv-one").contents.put("shared", JSON)

    found = await read(provider, store(), *(RemoteRef("shared", property=name) for name in ("user", "a", "list")))

    assert found == [b"anna", b'{"b":"path"}', b"[1]"]
    assert len([call for call in azure.requests("GET * /secrets/shared/*") if "Authorization" in call.headers]) == 1


async def test_keys_are_json_web_keys_and_certificates_are_der(azure: AzureServer, provider: InMemory) -> None:
    contents = azure.vault("kv-one").contents
    bundle = pkcs12_of("site")
    contents.add("keys", "sign", {"key": {"kty": "RSA", "key_ops": ["sign"], "n": "AQAB", "e": "AQAB"}}, {})
    contents.add("certificates", "site", {"cer": base64.b64encode(leaf_of(bundle)).decode()}, {})

    key, part, certificate = await read(
        provider, store(), "key/sign", RemoteRef("key/sign", property="n"), RemoteRef("cert/site", property="ignored")
    )

    assert isinstance(key, bytes)
    document = msgspec.json.decode(key)
    assert {name: document[name] for name in ("kty", "key_ops", "n", "e")} == {
        "kty": "RSA",
        "key_ops": ["sign"],
        "n": "AQAB",
        "e": "AQAB",
    }
    assert part == b"AQAB"
    assert certificate == leaf_of(bundle)


def tagged(azure: AzureServer) -> None:
    moment = int(datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC).timestamp())
    tags = {"team": "blue", "json": '{"a":"1","b":"2"}'}
    azure.vault("kv-tags").contents.put("meta", "value", tags=tags, attributes={"exp": moment})


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("team", b"blue", id="a tag"),
        pytest.param("json.b", b"2", id="a member of a tag with JSON"),
        pytest.param("attribute.expires", b"2030-01-02T03:04:05Z", id="a time"),
    ],
)
async def test_metadata_is_tags_and_times(name: str, expected: bytes, azure: AzureServer, provider: InMemory) -> None:
    tagged(azure)
    ref = RemoteRef("meta", property=name, metadata_policy=MetadataPolicy.FETCH)

    assert await read(provider, store("kv-tags"), ref) == [expected]


async def test_metadata_without_property_is_an_object_of_all(azure: AzureServer, provider: InMemory) -> None:
    tagged(azure)

    whole, missing = await read(
        provider,
        store("kv-tags"),
        RemoteRef("meta", metadata_policy=MetadataPolicy.FETCH),
        RemoteRef("meta", property="none", metadata_policy=MetadataPolicy.FETCH),
    )

    assert isinstance(whole, bytes)
    document = msgspec.json.decode(whole)
    assert (document["team"], document["attribute.expires"]) == ("blue", "2030-01-02T03:04:05Z")
    assert {"attribute.created", "attribute.updated"} <= document.keys()
    assert isinstance(missing, ProviderError)
    assert missing.reason is ErrorReason.PROPERTY_NOT_FOUND


async def extracted(provider: InMemory, vault: str, key: str, **ref: Any) -> Any:
    outcome = (await provider.get_one(store(vault), key, shape=Shape.MAP, **ref)).outcome
    if isinstance(outcome, ProviderError):
        return outcome
    return {name: value.reveal() for name, value in outcome.items()}  # type: ignore[union-attr] # a map


async def test_a_map_has_the_members_of_a_secret(azure: AzureServer, provider: InMemory) -> None:
    azure.vault("kv-one").contents.put("map", '{"a":"text","b":1,"c":null}')

    assert await extracted(provider, "kv-one", "map") == {"a": b"text", "b": b"1", "c": b""}


async def test_a_map_of_metadata_has_names_of_tags_and_times(azure: AzureServer, provider: InMemory) -> None:
    tagged(azure)

    whole = await extracted(provider, "kv-tags", "meta", metadata_policy=MetadataPolicy.FETCH)
    one = await extracted(provider, "kv-tags", "meta", metadata_policy=MetadataPolicy.FETCH, property="team")

    assert {name: whole[name] for name in ("meta_team", "meta_json_a", "meta_json_b")} == {
        "meta_team": b"blue",
        "meta_json_a": b"1",
        "meta_json_b": b"2",
    }
    assert whole["meta_attribute.expires"] == b"2030-01-02T03:04:05Z"
    assert one == {"meta_team": b"blue"}


async def test_keys_and_certificates_have_no_map(azure: AzureServer, provider: InMemory) -> None:
    azure.vault("kv-one")

    refused = await extracted(provider, "kv-one", "cert/site")

    assert refused.reason is ErrorReason.INVALID_REQUEST


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        pytest.param(
            Reply(404, b"<html>not here</html>"), ErrorReason.BACKEND_ERROR, id="a page of a proxy is not absence"
        ),
        pytest.param(
            Reply(403, b"<html>no</html>"), ErrorReason.BACKEND_ERROR, id="a proxy that refuses is not a denial"
        ),
        pytest.param(Reply(200, b"<html>welcome</html>"), ErrorReason.BACKEND_ERROR, id="a page is not a value"),
        pytest.param(Reply(503, {"error": {"code": "Down"}}), ErrorReason.BACKEND_UNAVAILABLE, id="the vault is down"),
        pytest.param(Reply(404, {"error": {"code": "VaultNotFound"}}), ErrorReason.BACKEND_ERROR, id="no vault"),
        pytest.param(
            Reply(302, b"", {"Location": "https://evil.example/"}), ErrorReason.BACKEND_ERROR, id="a redirect"
        ),
    ],
)
async def test_answers_of_others_are_neither_values_nor_absence(
    reply: Reply, reason: ErrorReason, azure: AzureServer, provider: InMemory
) -> None:
    azure.vault("kv-one").contents.put("known", "value")
    assert await read(provider, store(), "known") == [b"value"]
    azure.script("GET kv-one.vault.azure.net /secrets/known/", reply)

    (failed,) = await read(provider, store(), "known")

    assert isinstance(failed, ProviderError)
    assert failed.reason is reason
