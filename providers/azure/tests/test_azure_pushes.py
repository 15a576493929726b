"""Pushes and deletions: ownership, properties, settings, recovery; keys and certificates."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from eso_provider_azure.testing.keyvault import Contents, leaf_of, pem_of, pkcs12_of
from eso_provider_azure.testing.server import AzureServer
from eso_provider_azure.testing.sessions import OWNED, store
from eso_sdk.testing import InMemory
from eso_sdk.testing.server import delete, push, read
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import PushOutcome

ENVELOPE = {"apiVersion": "kubernetes.external-secrets.io/v1alpha1", "kind": "PushSecretMetadata"}


@pytest.fixture
def contents(azure: AzureServer) -> Contents:
    azure.calls.clear()
    azure.vaults.clear()
    return azure.vault("kv-one").contents


def metadata(**spec: Any) -> dict[str, Any]:
    return {"provider_metadata": {**ENVELOPE, "spec": spec}}


def refused(outcomes: list[Any], reason: ErrorReason) -> str:
    (failed,) = outcomes
    assert isinstance(failed, ProviderError)
    assert failed.reason is reason
    return failed.message


async def test_a_push_creates_then_leaves_then_updates(contents: Contents, provider: InMemory) -> None:
    outcomes = [await push(provider, store(), ("db", "", value)) for value in ("one", "one", "two")]

    assert outcomes == [[PushOutcome.CREATED], [PushOutcome.UNCHANGED], [PushOutcome.UPDATED]]
    assert contents.value("db") == "two"
    assert contents.current("secrets", "db").tags == OWNED
    assert len(contents.live["secrets"]["db"]) == 2


async def test_properties_of_one_key_become_one_version(contents: Contents, provider: InMemory) -> None:
    contents.put("db", '{"keep":"me","nested":{"a":"1"}}', tags=OWNED)

    outcomes = await push(provider, store(), ("db", "user", "anna"), ("db", "nested.b", "2"))

    assert outcomes == [PushOutcome.UPDATED, PushOutcome.UPDATED]
    assert msgspec.json.decode(contents.value("db")) == {"keep": "me", "nested": {"a": "1", "b": "2"}, "user": "anna"}
    assert len(contents.live["secrets"]["db"]) == 2


async def test_a_whole_secret_is_a_sorted_json_object(contents: Contents, provider: InMemory) -> None:
    await push(provider, store(), ("all", "", {"b": "2", "a": "<1>"}))

    assert contents.value("all") == '{"a":"<1>","b":"2"}'


@pytest.mark.parametrize(
    ("items", "reason"),
    [
        pytest.param([("foreign", "", "x")], ErrorReason.OWNERSHIP_CONFLICT, id="a secret of others"),
        pytest.param([("foreign", "p", "x")], ErrorReason.OWNERSHIP_CONFLICT, id="a property of a secret of others"),
        pytest.param([("text", "p", "x")], ErrorReason.INVALID_REQUEST, id="a property of a text"),
        pytest.param([("new", "", b"\xff\xfe")], ErrorReason.INVALID_REQUEST, id="a binary value"),
        pytest.param([("new", "", "x" * 25_001)], ErrorReason.PAYLOAD_TOO_LARGE, id="too long"),
        pytest.param([("off", "", "x")], ErrorReason.BACKEND_ERROR, id="a disabled secret"),
    ],
)
async def test_a_push_that_is_refused_changes_nothing(
    items: list[tuple[str, str, Any]], reason: ErrorReason, contents: Contents, provider: InMemory
) -> None:
    contents.put("foreign", '{"p":"theirs"}', tags={"managed-by": "terraform"})
    contents.put("text", "no JSON", tags=OWNED)
    contents.put("off", "value", tags=OWNED, attributes={"enabled": False})
    before = {name: len(versions) for name, versions in contents.live["secrets"].items()}

    message = refused(await push(provider, store(), *items), reason)

    assert {name: len(versions) for name, versions in contents.live["secrets"].items()} == before
    assert "https://kv-one.vault.azure.net" in message or items[0][0] in message


async def test_settings_become_expiry_content_type_and_tags(contents: Contents, provider: InMemory) -> None:
    settings = metadata(expirationDate="2030-01-02T03:04:05Z", contentType="text/plain", tags={"team": "blue"})

    outcomes = [await push(provider, store(), ("set", "", "x"), **settings) for _ in range(2)]
    later = await push(provider, store(), ("set", "", "x"), **metadata(expirationDate="2031-01-02T03:04:05Z"))

    assert outcomes == [[PushOutcome.CREATED], [PushOutcome.UNCHANGED]]
    assert later == [PushOutcome.UPDATED]
    first, second = contents.live["secrets"]["set"]
    assert (first.attributes["exp"], first.body["contentType"]) == (1893553445, "text/plain")
    assert first.tags == {"team": "blue", **OWNED}
    assert second.body["contentType"] == "text/plain"  # unchanged, as the metadata does not name it


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        pytest.param({"tags": {"managed-by": "me"}}, "managed-by", id="our own mark"),
        pytest.param({"expirationDate": "tomorrow"}, "RFC 3339", id="no time"),
        pytest.param({"owner": "me"}, "expected form", id="an unknown field"),
    ],
)
async def test_wrong_metadata_is_refused(
    spec: dict[str, Any], text: str, contents: Contents, provider: InMemory
) -> None:
    outcomes = await push(provider, store(), ("meta", "", "x"), **metadata(**spec))

    assert text in refused(outcomes, ErrorReason.INVALID_REQUEST)
    assert "meta" not in contents.live["secrets"]


@pytest.mark.parametrize("has_code", [True, False], ids=["with an inner code", "without an inner code"])
async def test_a_deleted_secret_of_ours_is_recovered(
    contents: Contents, provider: InMemory, azure: AzureServer, *, has_code: bool
) -> None:
    azure.vault("kv-one").conflict_codes = has_code
    contents.put("back", '{"old":"x"}', tags=OWNED)
    contents.delete("secrets", "back")
    contents.recovering["back"] = 1

    outcomes = await push(provider, store(), ("back", "new", "y"))

    assert outcomes == [PushOutcome.CREATED]
    assert contents.value("back") == '{"new":"y"}'
    assert len(azure.requests("POST * /deletedsecrets/back/recover")) == 1


@pytest.mark.parametrize("has_code", [True, False], ids=["with an inner code", "without an inner code"])
async def test_a_deleted_secret_of_others_stays_deleted(
    contents: Contents, provider: InMemory, azure: AzureServer, *, has_code: bool
) -> None:
    azure.vault("kv-one").conflict_codes = has_code
    contents.put("theirs", "x")
    contents.delete("secrets", "theirs")

    message = refused(await push(provider, store(), ("theirs", "", "y")), ErrorReason.OWNERSHIP_CONFLICT)

    assert "is deleted and was not created by External Secrets" in message
    assert "theirs" in contents.deleted["secrets"]


async def test_a_conflict_without_a_deleted_secret_is_a_clear_error(
    contents: Contents, provider: InMemory, azure: AzureServer
) -> None:
    azure.vault("kv-one").busy = {"busy"}

    message = refused(await push(provider, store(), ("busy", "", "y")), ErrorReason.BACKEND_ERROR)

    assert message.startswith('secret "busy" in vault https://kv-one.vault.azure.net')
    assert "SetSecret was refused with status 409 (Conflict)" in message
    assert len(azure.requests("GET * /deletedsecrets/busy")) == 1
    assert "busy" not in contents.live["secrets"]


async def test_a_deletion_is_soft_and_repeats_without_error(contents: Contents, provider: InMemory) -> None:
    contents.put("gone", "x", tags=OWNED)

    assert await delete(provider, store(), ("gone", "")) == [True]
    assert await delete(provider, store(), ("gone", "")) == [False]
    assert "gone" in contents.deleted["secrets"]


async def test_a_deletion_of_properties_leaves_the_others(contents: Contents, provider: InMemory) -> None:
    contents.put("props", '{"a":"1","b":"2","c":"3"}', tags={**OWNED, "team": "blue"}, content_type="json")

    assert await delete(provider, store(), ("props", "a"), ("props", "none"), ("props", "b")) == [True, False, True]
    assert contents.value("props") == '{"c":"3"}'
    assert contents.current("secrets", "props").tags == {**OWNED, "team": "blue"}
    assert await delete(provider, store(), ("props", "c")) == [True]
    assert "props" in contents.deleted["secrets"]


@pytest.mark.parametrize("key", ["theirs", "key/theirs", "cert/theirs"])
async def test_a_deletion_of_objects_of_others_fails(key: str, contents: Contents, provider: InMemory) -> None:
    contents.put("theirs", "x")
    contents.add("keys", "theirs", {"key": {"kty": "RSA", "n": "AQAB", "e": "AQAB"}}, {})
    contents.add("certificates", "theirs", {"cer": ""}, {})

    refused(await delete(provider, store(), (key, "")), ErrorReason.OWNERSHIP_CONFLICT)

    assert not any(contents.deleted.values())


def keys() -> list[Any]:
    private, curve = rsa.generate_private_key(65537, 2048), ec.generate_private_key(ec.SECP384R1())
    forms = [("PKCS#8", private, PrivateFormat.PKCS8), ("PKCS#1", private, PrivateFormat.TraditionalOpenSSL)]
    forms += [("SEC1", curve, PrivateFormat.TraditionalOpenSSL)]  # type: ignore[list-item] # either type of key
    return [pytest.param(key.private_bytes(Encoding.PEM, form, NoEncryption()), id=name) for name, key, form in forms]


@pytest.mark.parametrize("pem", keys())
async def test_a_key_is_imported_once(pem: bytes, contents: Contents, provider: InMemory) -> None:
    outcomes = [await push(provider, store(), ("key/sign", "", pem)) for _ in range(2)]

    assert outcomes == [[PushOutcome.CREATED], [PushOutcome.UNCHANGED]]
    assert contents.current("keys", "sign").tags == OWNED
    assert await delete(provider, store(), ("key/sign", "")) == [True]


async def test_another_key_is_a_new_version_and_other_values_are_symmetric(
    contents: Contents, provider: InMemory
) -> None:
    del contents
    one, two = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    pems = [key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) for key in (one, two)]

    outcomes = [await push(provider, store(), ("key/ec", "", pem)) for pem in pems]
    symmetric = await push(provider, store(), ("key/oct", "", b"sixteen bytes..."))

    assert outcomes == [[PushOutcome.CREATED], [PushOutcome.UPDATED]]
    refused(symmetric, ErrorReason.INVALID_REQUEST)  # only HSMs store symmetric keys


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(pkcs12_of("site"), id="PKCS#12"),
        pytest.param(pem_of("site"), id="PEM"),
        pytest.param(pem_of("site", PrivateFormat.TraditionalOpenSSL), id="PEM with a PKCS#1 key"),
    ],
)
async def test_a_certificate_is_imported_once(raw: bytes, contents: Contents, provider: InMemory) -> None:
    outcomes = [await push(provider, store(), ("cert/site", "", raw)) for _ in range(2)]

    assert outcomes == [[PushOutcome.CREATED], [PushOutcome.UNCHANGED]]
    assert await read(provider, store(), "cert/site") == [leaf_of(raw)]
    assert contents.current("certificates", "site").tags == OWNED


@pytest.mark.parametrize(
    ("item", "text"),
    [
        pytest.param(("cert/x", "", "nonsense"), "is not a certificate", id="no certificate"),
        pytest.param(("key/x", "", "-----BEGIN PRIVATE KEY-----"), "is not a private key", id="no key"),
        pytest.param(("key/x", "part", "x"), "has no properties", id="a property of a key"),
    ],
)
async def test_unusable_keys_and_certificates_are_refused(
    item: tuple[str, str, str], text: str, contents: Contents, provider: InMemory
) -> None:
    assert text in refused(await push(provider, store(), item), ErrorReason.INVALID_REQUEST)
    assert not contents.live["keys"]
