"""The whole product on Azure Key Vault: every manifest of the guide, and conditions that say what to do."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.pushsecret import PUSH_SECRET
from eso_api.secretstore import CLUSTER_SECRET_STORE, SECRET_STORE
from eso_provider_azure.testing.entra import Application
from eso_provider_azure.testing.keyvault import self_signed
from eso_provider_azure.testing.server import CLIENT, TENANT, AzureServer
from eso_provider_azure.testing.sessions import OWNED, account_token
from eso_testkit.cli.upprocess import UpProcess, up_running
from kubebase.meta import JsonObject

pytestmark = pytest.mark.slow

PAGE = Path(__file__).resolve().parents[2] / "docs/guides/providers/azure.md"
TEAM = "team-a"
VALUE = '{"user":"anna","password":"first"}'
EXTERNAL_SECRETS, PUSH_SECRETS = EXTERNAL_SECRET.resource(), PUSH_SECRET.resource()
NODE, SIGNER = "33333333-3333-3333-3333-333333333333", "44444444-4444-4444-4444-444444444444"
CERTIFICATE = self_signed("signer")
_NUMBERS = count()


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureServer]:
    with AzureServer.started(tmp_path_factory.mktemp("azure")) as server:
        subjects = {f"system:serviceaccount:{TEAM}:secrets-reader", "system:serviceaccount:eso:provider"}
        server.entra.applications[TENANT, CLIENT] = Application("only-an-example", subjects=subjects)
        server.entra.identities = {"", NODE}
        server.entra.applications[TENANT, SIGNER] = Application(certificate=CERTIFICATE[0])
        for name, domain in (("team-a", "vault.azure.net"), ("team-a", "vault.stack.example")):
            server.vault(name, domain).contents.put("app-db", VALUE, tags={**OWNED, "team": "blue"})
        server.vault("shared")
        server.registry("images")
        yield server


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory, manifests: Path, azure: AzureServer) -> Iterator[UpProcess]:
    """`eso up` with no other flag: the provider starts with the first store, and has the environment of `eso up`."""
    folder = tmp_path_factory.mktemp("up-azure")
    (folder / "token").write_bytes(account_token("provider", namespace="eso").token.reveal())
    own = {
        "AZURE_CLIENT_ID": CLIENT,
        "AZURE_TENANT_ID": TENANT,
        "AZURE_FEDERATED_TOKEN_FILE": str(folder / "token"),
    }
    with up_running(folder / "up", "--file", str(manifests), environment=azure.environment | own) as running:
        yield running


def documents() -> list[JsonObject]:
    """Return the manifests of the guide."""
    blocks = PAGE.read_text(encoding="utf-8").split("```yaml\n")[1:]
    return [one for block in blocks for one in yaml.safe_load_all(block.partition("```")[0])]


async def test_every_manifest_of_the_guide_works(site: Any, azure: AzureServer) -> None:
    await site.namespace(TEAM)

    await site.apply(*documents())

    for name in ("azure", "azure-account", "azure-stack"):
        await site.ready(SECRET_STORE.resource(), name, TEAM)
    await site.ready(CLUSTER_SECRET_STORE.resource(), "azure-shared")
    await site.secret("database", TEAM, lambda text: text == {"user": "anna", "password": "first"})
    await site.secret("direct", TEAM, lambda text: text == {"password": VALUE})
    await site.secret("everything", TEAM, lambda text: text.keys() == {"app-db"})
    await site.secret("images", TEAM, lambda text: text.keys() == {"username", "password"})
    await site.ready(PUSH_SECRETS, "database", TEAM)
    assert azure.vault("team-a").contents.current("secrets", "app-db").attributes["exp"] == 1924979400
    scopes = {call.form()["scope"] for call in azure.requests("POST login.*")}
    assert {"https://vault.azure.net/.default", "https://vault.stack.example/.default"} <= scopes


def named(kind: str, name: str, version: str = "v1", **rest: Any) -> JsonObject:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **rest}


def prepared() -> list[JsonObject]:
    """The objects to which the stores of the table refer."""
    certificate, key = CERTIFICATE
    pem = certificate.public_bytes(Encoding.PEM) + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    texts = {"id": CLIENT, "tenant": TENANT, "secret": "only-an-example", "signer": SIGNER, "pem": pem.decode()}
    annotated = named("ServiceAccount", "annotated")
    prefix = "azure.workload.identity"
    annotated["metadata"]["annotations"] = {f"{prefix}/client-id": CLIENT, f"{prefix}/tenant-id": TENANT}
    return [named("Secret", "azure", stringData=texts), annotated, named("ServiceAccount", "plain")]


def of_secret(key: str) -> JsonObject:
    return {"name": "azure", "key": key}


SECRET_LOGIN: JsonObject = {"clientId": of_secret("id"), "clientSecret": of_secret("secret")}


@pytest.mark.parametrize(
    ("block", "who"),
    [
        pytest.param({"tenantId": TENANT, "authSecretRef": SECRET_LOGIN}, CLIENT, id="a client secret, by default"),
        pytest.param(
            {"authType": "ServicePrincipal", "tenantId": TENANT, "authSecretRef": SECRET_LOGIN, "useAzureSDK": True},
            CLIENT,
            id="a client secret, with the newer library of the operator in Go",
        ),
        pytest.param(
            {
                "tenantId": TENANT,
                "environmentType": "PublicCloud",
                "authSecretRef": {"clientId": of_secret("signer"), "clientCertificate": of_secret("pem")},
            },
            SIGNER,
            id="a client certificate",
        ),
        pytest.param({"authType": "ManagedIdentity"}, "", id="the identity of the node"),
        pytest.param({"authType": "ManagedIdentity", "identityId": NODE}, NODE, id="one of its identities"),
        pytest.param(
            {"authType": "WorkloadIdentity", "serviceAccountRef": {"name": "annotated"}},
            CLIENT,
            id="a service account with annotations",
        ),
        pytest.param(
            {
                "authType": "WorkloadIdentity",
                "serviceAccountRef": {"name": "plain", "audiences": ["another"]},
                "authSecretRef": {"clientId": of_secret("id"), "tenantId": of_secret("tenant")},
            },
            CLIENT,
            id="a service account, with client and tenant in a Secret",
        ),
        pytest.param({"authType": "WorkloadIdentity"}, CLIENT, id="the workload identity of the provider process"),
    ],
)
async def test_a_v1_store_works_unedited_with(block: JsonObject, who: str, site: Any, azure: AzureServer) -> None:
    number = next(_NUMBERS)
    team = await site.namespace(f"team-form-{number}")
    trusted = azure.entra.applications[TENANT, CLIENT].subjects
    trusted |= {f"system:serviceaccount:{team}:{name}" for name in ("annotated", "plain")}
    azure.vault(f"form-{number}").contents.put("db", '{"password":"first"}')
    v1 = "external-secrets.io/v1"
    spec = {"provider": {"azurekv": {"vaultUrl": f"https://form-{number}.vault.azure.net", **block}}}
    data = [{"secretKey": "password", "remoteRef": {"key": "secret/db", "property": "password"}}]
    wanted = {"refreshInterval": "1h", "secretStoreRef": {"name": "azure"}, "data": data}
    objects = [named("SecretStore", "azure", v1, spec=spec), named("ExternalSecret", "app", v1, spec=wanted)]
    for one in (everything := [*prepared(), *objects]):
        one["metadata"]["namespace"] = team

    await site.apply(*everything)

    await site.ready(SECRET_STORE.resource(), "azure", team)
    await site.secret("app", team, lambda text: text == {"password": "first"})
    calls = azure.requests(f"GET form-{number}.* *")
    tokens = {
        call.headers["Authorization"].removeprefix("Bearer ") for call in calls if "Authorization" in call.headers
    }
    assert {azure.entra.grants[token].client for token in tokens} == {who}


async def test_a_condition_names_vault_secret_and_missing_role(site: Any, azure: AzureServer) -> None:
    azure.vault("closed").denied = {"secrets/get"}
    team = await site.namespace("team-denied")
    secret, store, external = (dict(one) for one in documents()[:3])
    store["spec"] = {
        "provider": {"azurekv": store["spec"]["provider"]["azurekv"] | {"vaultUrl": "https://closed.vault.azure.net"}}
    }
    external["spec"] |= {"dataFrom": [{"extract": {"key": "app-db"}}], "data": []}
    for one in (secret, store, external):
        one["metadata"] = one["metadata"] | {"namespace": team}
    await site.apply(secret, store, external)

    async def look() -> str | None:
        found = await site.find(EXTERNAL_SECRETS, "database", team) or {}
        messages = [one["message"] for one in found.get("status", {}).get("conditions", ()) if one["status"] == "False"]
        return next((message for message in messages if "is denied" in message), None)

    message = await site.until(look, "no condition reports the denial")
    assert 'secret "app-db" in vault https://closed.vault.azure.net' in message
    assert 'grant the role "Key Vault Secrets User"' in message
