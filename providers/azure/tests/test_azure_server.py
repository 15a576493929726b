"""The vendor's clients, unmodified, work against the test server: it speaks the protocol that they know."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ResourceNotFoundError
from azure.identity.aio import ClientSecretCredential, ManagedIdentityCredential
from azure.keyvault.certificates.aio import CertificateClient
from azure.keyvault.keys import JsonWebKey
from azure.keyvault.keys.aio import KeyClient
from azure.keyvault.secrets.aio import SecretClient
from cryptography.hazmat.primitives.asymmetric import rsa

from eso_provider_azure.testing.keyvault import leaf_of, pkcs12_of
from eso_provider_azure.testing.server import CLIENT, SECRET, TENANT, AzureServer
from eso_provider_azure.writing import prepared_key
from kubebase.testing.signer import key_pem

URL = "https://kv-vendor.vault.azure.net"


@pytest.fixture
async def credential(azure: AzureServer) -> AsyncIterator[ClientSecretCredential]:
    azure.vault("kv-vendor")
    ca = azure.environment["SSL_CERT_FILE"]
    async with ClientSecretCredential(TENANT, CLIENT, SECRET, connection_verify=ca) as made:
        yield made


@pytest.fixture
async def secrets(azure: AzureServer, credential: ClientSecretCredential) -> AsyncIterator[SecretClient]:
    ca = azure.environment["SSL_CERT_FILE"]
    async with SecretClient(URL, credential, connection_verify=ca, retry_total=0) as client:
        yield client


async def test_the_vendor_sets_reads_lists_and_updates_secrets(secrets: SecretClient) -> None:
    first = await secrets.set_secret("login", "one", tags={"team": "a"}, content_type="text/plain")
    second = await secrets.set_secret("login", "two")
    await secrets.update_secret_properties("login", tags={"team": "b"})

    current = await secrets.get_secret("login")
    former = await secrets.get_secret("login", first.properties.version)
    listed = [each async for each in secrets.list_properties_of_secrets()]
    versions = [each async for each in secrets.list_properties_of_secret_versions("login")]

    assert (current.value, current.properties.version) == ("two", second.properties.version)
    assert (former.value, former.properties.content_type) == ("one", "text/plain")
    assert [(each.name, each.tags) for each in listed if each.name == "login"] == [("login", {"team": "b"})]
    assert len(versions) == 2
    assert current.properties.updated_on is not None


async def test_the_vendor_follows_pages_of_twenty_five(azure: AzureServer, secrets: SecretClient) -> None:
    for number in range(60):
        azure.vault("kv-vendor").contents.put(f"paged-{number:02}", "x")
    before = len(azure.requests("GET kv-vendor.vault.azure.net /secrets*"))

    names = {each.name async for each in secrets.list_properties_of_secrets()}

    assert {f"paged-{number:02}" for number in range(60)} <= names
    assert len(azure.requests("GET kv-vendor.vault.azure.net /secrets*")) - before >= 3


async def test_the_vendor_deletes_recovers_and_purges(secrets: SecretClient) -> None:
    await secrets.set_secret("gone", "one")
    await secrets.delete_secret("gone", _polling_interval=0)
    with pytest.raises(ResourceNotFoundError):
        await secrets.get_secret("gone")
    with pytest.raises(HttpResponseError) as conflict:
        await secrets.set_secret("gone", "two")

    await secrets.recover_deleted_secret("gone", _polling_interval=0)
    assert (await secrets.get_secret("gone")).value == "one"
    await secrets.delete_secret("gone", _polling_interval=0)
    await secrets.purge_deleted_secret("gone")

    assert conflict.value.status_code == 409
    assert (await secrets.set_secret("gone", "three")).value == "three"


async def test_the_vendor_sees_disabled_secrets_denials_and_quotas(azure: AzureServer, secrets: SecretClient) -> None:
    await secrets.set_secret("off", "one", enabled=False)
    vault = azure.vault("kv-vendor")

    with pytest.raises(HttpResponseError) as disabled:
        await secrets.get_secret("off")
    vault.denied = {"secrets/get"}
    with pytest.raises(HttpResponseError) as denied:
        await secrets.get_secret("login")
    vault.denied, vault.quota = set(), 0
    with pytest.raises(HttpResponseError) as limited:
        await secrets.get_secret("login")
    vault.quota = -1

    assert (disabled.value.status_code, denied.value.status_code, limited.value.status_code) == (403, 403, 429)
    response: Any = limited.value.response
    assert response.headers["Retry-After"] == "7"


async def test_the_vendor_imports_keys_and_certificates(azure: AzureServer, credential: ClientSecretCredential) -> None:
    ca = azure.environment["SSL_CERT_FILE"]
    private = rsa.generate_private_key(65537, 2048)
    jwk: JsonWebKey = prepared_key(key_pem(private), "k").key
    async with KeyClient(URL, credential, connection_verify=ca) as keys:
        made = await keys.import_key("signing", jwk)
        read = await keys.get_key("signing")
    async with CertificateClient(URL, credential, connection_verify=ca) as certificates:
        bundle = pkcs12_of("vendor")
        await certificates.import_certificate("site", bundle)
        cer = (await certificates.get_certificate("site")).cer

    assert read.key.n == private.public_key().public_numbers().n.to_bytes(256, "big")  # type: ignore[attr-defined] # set at run time
    assert made.properties.version == read.properties.version
    assert bytes(cer or b"") == leaf_of(bundle)


async def test_the_vendor_is_refused_with_a_wrong_secret(azure: AzureServer) -> None:
    ca = azure.environment["SSL_CERT_FILE"]
    async with ClientSecretCredential(TENANT, CLIENT, "wrong", connection_verify=ca) as credential:
        with pytest.raises(ClientAuthenticationError, match="AADSTS7000215"):
            await credential.get_token("https://vault.azure.net/.default")


async def test_the_vendor_gets_tokens_from_instance_metadata(azure: AzureServer) -> None:
    azure.entra.identities = {"", "33333333-3333-3333-3333-333333333333"}

    async with ManagedIdentityCredential(client_id="33333333-3333-3333-3333-333333333333") as credential:
        token = await credential.get_token("https://vault.azure.net/.default")

    assert azure.entra.grants[token.token].resource == "https://vault.azure.net"
