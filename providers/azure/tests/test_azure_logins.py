"""Logins of every form: what is sent to Entra ID or instance metadata, and how often."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from eso_provider_azure.identities import RENEW_AHEAD
from eso_provider_azure.provider import PROVIDER
from eso_provider_azure.testing.entra import JWT_BEARER, Application, Reply
from eso_provider_azure.testing.keyvault import self_signed
from eso_provider_azure.testing.server import CLIENT, SECRET, TENANT, AzureServer
from eso_provider_azure.testing.sessions import PRINCIPAL, account_token, store
from eso_sdk.addresses import AddressPolicy
from eso_sdk.processidentity import ProcessIdentityPolicy
from eso_sdk.testing import InMemory
from eso_sdk.testing.server import read
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Context, ValidationState

OTHER = "44444444-4444-4444-4444-444444444444"
ACCOUNT: dict[str, Any] = {"authType": "WorkloadIdentity", "serviceAccountRef": {"name": "reader"}}


@pytest.fixture(autouse=True)
def _values(azure: AzureServer) -> None:
    azure.vault("kv-one").contents.put("known", "value")
    azure.calls.clear()
    azure.entra.failing = None
    azure.entra.lifetime = 3599


def token_requests(azure: AzureServer) -> list[dict[str, str]]:
    return [call.form() for call in azure.requests("POST login.* *")]


async def refusal(provider: InMemory, call: Context) -> ProviderError:
    """Return the error of a store that cannot be opened."""
    with pytest.raises(ProviderError) as refused:
        await read(provider, call, "known")
    return refused.value


async def failure(provider: InMemory, call: Context) -> ProviderError:
    (failed,) = await read(provider, call, "known")
    assert isinstance(failed, ProviderError)
    return failed


async def test_a_service_principal_sends_its_secret_once_an_hour(azure: AzureServer, provider: InMemory) -> None:
    for number in range(20):
        azure.vault("kv-two").contents.put(f"key-{number}", "value")
    keys = [f"key-{number}" for number in range(20)]

    assert await read(provider, store("kv-two"), *keys) == [b"value"] * 20
    assert await read(provider, store("kv-one", namespace="other"), "known") == [b"value"]

    assert token_requests(azure) == [
        {
            "grant_type": "client_credentials",
            "client_id": CLIENT,
            "client_secret": SECRET,
            "scope": "https://vault.azure.net/.default",
        }
    ]
    assert azure.requests("POST login.*")[0].path == f"/{TENANT}/oauth2/v2.0/token"


async def test_a_token_that_expires_soon_is_renewed(azure: AzureServer, provider: InMemory) -> None:
    azure.entra.lifetime = int(RENEW_AHEAD) - 1
    await read(provider, store(), "known")
    assert await read(provider, store(), "known") == [b"value"]
    assert len(token_requests(azure)) > 1

    azure.entra.failing = Reply(503, {"error": "temporarily_unavailable"})

    assert await read(provider, store(), "known") == [b"value"]  # the old token is still good


async def test_a_certificate_signs_an_assertion(azure: AzureServer, provider: InMemory) -> None:
    certificate, key = self_signed("app")
    azure.entra.applications[TENANT, OTHER] = Application(certificate=certificate)
    pem = certificate.public_bytes(Encoding.PEM) + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    named = {"clientId": {"name": "azure", "key": "id"}, "clientCertificate": {"name": "azure", "key": "pem"}}
    sent = {"/authSecretRef/clientId": OTHER, "/authSecretRef/clientCertificate": pem}

    assert await read(provider, store(credentials=sent, authSecretRef=named), "known") == [b"value"]

    (request,) = token_requests(azure)
    assert request["client_assertion_type"] == JWT_BEARER
    assert request["client_id"] == OTHER


@pytest.mark.parametrize(
    ("identity", "query"),
    [
        pytest.param("", {}, id="the only identity of the node"),
        pytest.param(OTHER, {"client_id": OTHER}, id="one of several"),
    ],
)
async def test_a_managed_identity_asks_instance_metadata(
    identity: str, query: dict[str, str], azure: AzureServer, provider: InMemory
) -> None:
    azure.entra.identities = {"", OTHER}
    spec: dict[str, Any] = {"authType": "ManagedIdentity"} | ({"identityId": identity} if identity else {})

    assert await read(provider, store(credentials={}, cluster_scoped=True, **spec), "known") == [b"value"]

    (request,) = azure.requests("GET * /metadata/identity/oauth2/token")
    assert request.query == {"api-version": "2018-02-01", "resource": "https://vault.azure.net"} | query
    assert request.headers["Metadata"] == "true"


async def test_a_missing_managed_identity_is_said(azure: AzureServer, provider: InMemory) -> None:
    azure.entra.identities = set()

    failed = await failure(
        provider, store(credentials={}, cluster_scoped=True, authType="ManagedIdentity", identityId="none")
    )

    assert failed.reason is ErrorReason.CREDENTIALS_NOT_FOUND
    assert 'managed identity "none"' in failed.message


@pytest.mark.parametrize(
    ("annotations", "spec", "credentials"),
    [
        pytest.param({"client_id": OTHER, "tenant_id": TENANT}, {}, {}, id="both from annotations"),
        pytest.param({"client_id": OTHER}, {"tenantId": TENANT}, {}, id="tenant from the store"),
        pytest.param(
            {},
            {"authSecretRef": {name: {"name": "azure", "key": name} for name in ("clientId", "tenantId")}},
            {"/authSecretRef/clientId": OTHER, "/authSecretRef/tenantId": TENANT},
            id="both from a Secret",
        ),
    ],
)
async def test_a_service_account_is_exchanged_for_a_token(
    annotations: dict[str, str],
    spec: dict[str, Any],
    credentials: dict[str, Any],
    azure: AzureServer,
    provider: InMemory,
) -> None:
    azure.entra.applications[TENANT, OTHER] = Application(subjects={"system:serviceaccount:team:reader"})
    token = account_token(**annotations)
    call = store(credentials={**credentials, "/serviceAccountRef": token}, **ACCOUNT, **spec)

    assert await read(provider, call, "known") == [b"value"]

    (request,) = token_requests(azure)
    assert request == {
        "grant_type": "client_credentials",
        "client_id": OTHER,
        "client_assertion": token.token.reveal().decode(),
        "client_assertion_type": JWT_BEARER,
        "scope": "https://vault.azure.net/.default",
    }


@pytest.mark.parametrize(
    ("annotations", "spec", "credentials", "text"),
    [
        pytest.param(
            {"client_id": OTHER, "tenant_id": TENANT},
            {"authSecretRef": {"clientId": {"name": "azure", "key": "id"}}},
            {"/authSecretRef/clientId": OTHER},
            "client-id too; remove one",
            id="two client ids",
        ),
        pytest.param(
            {"client_id": OTHER, "tenant_id": TENANT}, {"tenantId": TENANT}, {}, "tenant-id too", id="two tenants"
        ),
        pytest.param(
            {"tenant_id": TENANT}, {}, {}, "has no annotation azure.workload.identity/client-id", id="no client"
        ),
        pytest.param({"client_id": OTHER}, {}, {}, "the tenant is unknown", id="no tenant"),
    ],
)
async def test_sources_of_client_and_tenant_do_not_mix(  # noqa: PLR0917 - columns of a table
    annotations: dict[str, str],
    spec: dict[str, Any],
    credentials: dict[str, Any],
    text: str,
    azure: AzureServer,
    provider: InMemory,
) -> None:
    call = store(credentials={**credentials, "/serviceAccountRef": account_token(**annotations)}, **ACCOUNT, **spec)

    with pytest.raises(ProviderError, match=text):
        await read(provider, call, "known")
    assert token_requests(azure) == []


async def test_the_process_has_a_workload_identity_of_its_own(
    azure: AzureServer, provider: InMemory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    azure.entra.applications[TENANT, OTHER] = Application(subjects={"system:serviceaccount:eso:provider"})
    file = tmp_path / "token"
    file.write_bytes(account_token("provider", namespace="eso").token.reveal())
    call = store(credentials={}, cluster_scoped=True, authType="WorkloadIdentity")
    with pytest.raises(ProviderError, match="has no workload identity"):
        await read(provider, call, "known")
    monkeypatch.setenv("AZURE_CLIENT_ID", OTHER)
    monkeypatch.setenv("AZURE_TENANT_ID", TENANT)
    monkeypatch.setenv("AZURE_FEDERATED_TOKEN_FILE", str(file))

    assert await read(provider, call, "known") == [b"value"]
    assert token_requests(azure)[0]["client_assertion"] == file.read_text()


@pytest.mark.parametrize("auth_type", ["ManagedIdentity", "WorkloadIdentity"])
async def test_a_store_of_a_namespace_does_not_use_the_identity_of_the_provider(
    azure: AzureServer, provider: InMemory, auth_type: str
) -> None:
    azure.calls.clear()

    failed = await refusal(provider, store(credentials={}, authType=auth_type))

    assert failed.reason is ErrorReason.CONFIG_INVALID
    assert "--ambient-identity=namespaced" in failed.message
    assert azure.calls == []


async def test_an_authority_that_the_spec_names_does_not_get_the_token_file_of_the_provider(
    azure: AzureServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("token of the pod")
    monkeypatch.setenv("AZURE_CLIENT_ID", OTHER)
    monkeypatch.setenv("AZURE_TENANT_ID", TENANT)
    monkeypatch.setenv("AZURE_FEDERATED_TOKEN_FILE", str(tmp_path / "token"))
    azure.calls.clear()
    call = store(
        credentials={},
        authType="WorkloadIdentity",
        environmentType="AzureStackCloud",
        customCloudConfig={"activeDirectoryEndpoint": "https://evil.example"},
        useAzureSDK=True,
    )
    policy = ProcessIdentityPolicy.parse("namespaced")

    async with InMemory(PROVIDER, addresses=AddressPolicy.parse(["loopback"]), process_identity=policy) as provider:
        failed = await refusal(provider, call)

    assert failed.reason is ErrorReason.CONFIG_INVALID
    assert failed.message.startswith("/customCloudConfig/activeDirectoryEndpoint: would send a proof")
    assert azure.calls == []


async def test_a_vault_that_the_spec_names_gets_no_token_of_the_managed_identity(azure: AzureServer) -> None:
    azure.calls.clear()
    custom = {"activeDirectoryEndpoint": "https://login.microsoftonline.com", "keyVaultDNSSuffix": "evil.example"}
    call = store(
        credentials={},
        vaultUrl="https://kv.evil.example",
        authType="ManagedIdentity",
        environmentType="AzureStackCloud",
        customCloudConfig=custom,
        useAzureSDK=True,
    )
    policy = ProcessIdentityPolicy.parse("namespaced")

    async with InMemory(PROVIDER, addresses=AddressPolicy.parse(["loopback"]), process_identity=policy) as provider:
        failed = await refusal(provider, call)

    assert failed.message.startswith("/customCloudConfig: would send a proof of the managed identity")
    assert azure.calls == []


@pytest.mark.parametrize(
    ("environment", "login", "vaults"),
    [
        pytest.param("PublicCloud", "login.microsoftonline.com", "vault.azure.net", id="public"),
        pytest.param("USGovernmentCloud", "login.microsoftonline.us", "vault.usgovcloudapi.net", id="US government"),
        pytest.param("ChinaCloud", "login.chinacloudapi.cn", "vault.azure.cn", id="China"),
        pytest.param("GermanCloud", "login.microsoftonline.de", "vault.microsoftazure.de", id="Germany"),
    ],
)
async def test_every_cloud_has_its_authority_and_resource(
    environment: str, login: str, vaults: str, azure: AzureServer, provider: InMemory
) -> None:
    azure.vault("kv-cloud", vaults).contents.put("known", "value")
    call = store(vaultUrl=f"https://kv-cloud.{vaults}/", environmentType=environment)

    assert await read(provider, call, "known") == [b"value"]

    (request,) = azure.requests("POST login.*")
    assert (request.host, request.form()["scope"]) == (login, f"https://{vaults}/.default")


@pytest.mark.parametrize(
    "named",
    [
        pytest.param({"keyVaultEndpoint": "https://vault.stack.example/"}, id="by endpoint"),
        pytest.param({"keyVaultDNSSuffix": ".vault.stack.example"}, id="by suffix"),
    ],
)
async def test_a_custom_cloud_names_its_endpoints(
    named: dict[str, str], azure: AzureServer, provider: InMemory
) -> None:
    azure.vault("kv-stack", "vault.stack.example").contents.put("known", "value")
    custom = {"activeDirectoryEndpoint": "https://login.stack.example/", **named}
    call = store(
        vaultUrl="https://kv-stack.vault.stack.example",
        environmentType="AzureStackCloud",
        customCloudConfig=custom,
        useAzureSDK=True,
    )

    assert await read(provider, call, "known") == [b"value"]

    (request,) = azure.requests("POST login.*")
    assert (request.host, request.form()["scope"]) == ("login.stack.example", "https://vault.stack.example/.default")


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        pytest.param({"vaultUrl": "https://evil.example"}, "hosts of vault.azure.net", id="a host of another domain"),
        pytest.param({"vaultUrl": "https://evilvault.azure.net"}, "hosts of vault", id="a domain with the same end"),
        pytest.param({"vaultUrl": "http://kv.vault.azure.net"}, "/vaultUrl: write an https URL", id="no TLS"),
        pytest.param({"vaultUrl": "https://u@kv.vault.azure.net"}, "/vaultUrl: write", id="a user in the URL"),
        pytest.param(
            {"environmentType": "AzureStackCloud"}, "name the endpoints", id="a custom cloud without endpoints"
        ),
        pytest.param({"tenantId": ""}, "/tenantId", id="no tenant"),
        pytest.param({"authSecretRef": {}}, "/authSecretRef/clientId", id="no client id"),
        pytest.param(
            {"authSecretRef": {**PRINCIPAL, "clientCertificate": {"name": "azure", "key": "pem"}}},
            "either clientSecret or clientCertificate",
            id="secret and certificate",
        ),
    ],
)
async def test_unusable_settings_are_refused_before_any_call(
    spec: dict[str, Any], text: str, azure: AzureServer, provider: InMemory
) -> None:
    with pytest.raises(ProviderError, match=text) as refused:
        await read(provider, store(**spec), "known")

    assert refused.value.reason is ErrorReason.CONFIG_INVALID
    assert azure.calls == []


@pytest.mark.parametrize(
    ("spec", "credentials", "text"),
    [
        pytest.param({}, {"/authSecretRef/clientSecret": "wrong-secret"}, "AADSTS7000215", id="a wrong secret"),
        pytest.param({}, {"/authSecretRef/clientId": "55555555"}, "does not know the application", id="no application"),
        pytest.param({"tenantId": "no-such-tenant"}, {}, "the tenant does not exist", id="no tenant"),
    ],
)
async def test_a_refused_login_says_why_and_pauses(
    spec: dict[str, Any], credentials: dict[str, str], text: str, azure: AzureServer, provider: InMemory
) -> None:
    sent = {"/authSecretRef/clientId": CLIENT, "/authSecretRef/clientSecret": SECRET} | credentials

    failed = await failure(provider, store(credentials=sent, **spec))
    again = await failure(provider, store(credentials=sent, **spec))

    assert failed.reason is ErrorReason.CREDENTIALS_REJECTED
    assert text in failed.message
    assert again.message == failed.message
    assert again.retry_after > 0
    assert len(token_requests(azure)) == 1
    assert not any(value in failed.message for name, value in sent.items() if name.endswith("Secret"))


async def test_an_untrusted_subject_is_named(azure: AzureServer, provider: InMemory) -> None:
    azure.entra.applications[TENANT, OTHER] = Application(subjects={"system:serviceaccount:team:another"})
    token = account_token("stranger", client_id=OTHER, tenant_id=TENANT)

    failed = await failure(provider, store(credentials={"/serviceAccountRef": token}, **ACCOUNT))

    assert 'by service account "team/stranger"' in failed.message
    assert "AADSTS700213" in failed.message
    assert token.token.reveal().decode() not in failed.message


@pytest.mark.parametrize(
    ("reply", "reason", "wait"),
    [
        pytest.param(Reply(429, {"error": "busy"}, {"Retry-After": "30"}), ErrorReason.RATE_LIMITED, 30, id="a limit"),
        pytest.param(Reply(503, {"error": "busy"}), ErrorReason.BACKEND_UNAVAILABLE, 0, id="an outage"),
        pytest.param(Reply(200, b"<html>login</html>"), ErrorReason.BACKEND_ERROR, 0, id="a page of a proxy"),
    ],
)
async def test_failures_of_entra_id_are_not_refusals(
    reply: Reply, reason: ErrorReason, wait: float, azure: AzureServer, provider: InMemory
) -> None:
    azure.entra.failing = reply

    failed = await failure(provider, store())

    assert (failed.reason, failed.retry_after) == (reason, wait)


async def test_a_revoked_token_is_replaced(azure: AzureServer, provider: InMemory) -> None:
    assert await read(provider, store(), "known") == [b"value"]
    azure.entra.grants.clear()

    assert await read(provider, store(), "known") == [b"value"]
    assert len(token_requests(azure)) == 2


async def test_validation_obtains_a_token_and_asks_no_vault(azure: AzureServer, provider: InMemory) -> None:
    good = await provider.validate(store())
    sent = {"/authSecretRef/clientId": CLIENT, "/authSecretRef/clientSecret": "wrong"}
    bad = await provider.validate(store(credentials=sent))

    assert good.state is ValidationState.READY
    assert bad.error is not None
    assert bad.error.reason is ErrorReason.CREDENTIALS_REJECTED
    assert azure.requests("* kv-one*") == []
