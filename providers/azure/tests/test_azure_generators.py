"""ACRAccessToken: logins for container registries."""

from __future__ import annotations

from typing import Any

import jwt
import pytest

from eso_provider_azure.generator import USERNAME, ACRAccessTokenGenerator
from eso_provider_azure.testing.entra import Application
from eso_provider_azure.testing.server import CLIENT, SECRET, TENANT, AzureServer
from eso_provider_azure.testing.sessions import account_token
from eso_sdk.testing import InMemory, call_context
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Context, KindRole

OTHER = "44444444-4444-4444-4444-444444444444"
PLACE = "/auth/servicePrincipal/secretRef"
PRINCIPAL = {
    "servicePrincipal": {
        "secretRef": {"clientId": {"name": "acr", "key": "id"}, "clientSecret": {"name": "acr", "key": "secret"}}
    }
}
SENT = {f"{PLACE}/clientId": f"{CLIENT}\n", f"{PLACE}/clientSecret": f"{SECRET}\n"}


def login(auth: Any = None, credentials: Any = None, *, cluster_scoped: bool = False, **spec: Any) -> Context:
    config = {"registry": "images.azurecr.io", "tenantId": TENANT, "auth": auth or PRINCIPAL} | spec
    sent = SENT if credentials is None else credentials
    return call_context(ACRAccessTokenGenerator, config, sent, cluster_scoped=cluster_scoped)


async def test_a_refresh_token_is_exchanged_for_the_token_of_entra_id(azure: AzureServer, provider: InMemory) -> None:
    azure.registry("images")
    azure.calls.clear()

    made = await provider.generate(login())

    values = {name: value.reveal().decode() for name, value in made.data.items()}
    claims = jwt.decode(values["password"], options={"verify_signature": False})
    assert (values["username"], claims["kind"]) == (USERNAME, "refresh")
    assert made.metadata.expires_at is not None
    assert int(made.metadata.expires_at.timestamp()) == claims["exp"]
    (request,) = azure.requests("POST login.*")
    assert request.form()["scope"] == "https://management.core.windows.net//.default"
    (exchange,) = azure.requests("POST images.azurecr.io /oauth2/exchange")
    form = exchange.form()
    assert (form["grant_type"], form["service"], form["tenant"]) == ("access_token", "images.azurecr.io", TENANT)


async def test_a_scope_makes_an_access_token(azure: AzureServer, provider: InMemory) -> None:
    azure.registry("images")

    made = await provider.generate(login(scope="repository:app:pull"))

    claims = jwt.decode(made.data["password"].reveal(), options={"verify_signature": False})
    assert (claims["kind"], claims["sub"]) == ("access", "repository:app:pull")


async def test_managed_identities_may_have_a_resource_id(azure: AzureServer, provider: InMemory) -> None:
    resource = "/subscriptions/1/resourceGroups/g/providers/Microsoft.ManagedIdentity/userAssignedIdentities/acr"
    azure.entra.identities = {resource}
    azure.registry("images").pullers.add(resource)

    made = await provider.generate(login({"managedIdentity": {"identityId": resource}}, {}, cluster_scoped=True))

    assert made.data["username"].reveal().decode() == USERNAME


@pytest.mark.parametrize("auth", [{"managedIdentity": {}}, {"workloadIdentity": {}}])
@pytest.mark.parametrize(
    ("registry", "scoped", "remedy"),
    [
        pytest.param("images.azurecr.io", False, "--ambient-identity=namespaced", id="a generator of a namespace"),
        pytest.param("evil.test", True, "--identity-host=evil.test", id="a registry that is not Microsoft's"),
        pytest.param("azurecr.io.evil.test", True, "--identity-host=azurecr.io.evil.test", id="a lookalike"),
    ],
)
async def test_no_token_of_the_providers_identity_reaches_a_tenant(
    azure: AzureServer, provider: InMemory, auth: dict[str, Any], registry: str, *, scoped: bool, remedy: str
) -> None:
    azure.calls.clear()

    with pytest.raises(ProviderError, match=remedy) as refused:
        await provider.generate(login(auth, {}, cluster_scoped=scoped, registry=registry))

    assert refused.value.reason is ErrorReason.CONFIG_INVALID
    assert azure.calls == []


async def test_a_service_account_needs_both_annotations(azure: AzureServer, provider: InMemory) -> None:
    azure.entra.applications[TENANT, OTHER] = Application(subjects={"system:serviceaccount:team:reader"})
    azure.registry("images").pullers.add(OTHER)
    auth = {"workloadIdentity": {"serviceAccountRef": {"name": "reader"}}}
    position = "/auth/workloadIdentity/serviceAccountRef"

    made = await provider.generate(login(auth, {position: account_token(client_id=OTHER, tenant_id=TENANT)}))
    with pytest.raises(ProviderError, match="needs the annotations") as refused:
        await provider.generate(login(auth, {position: account_token(client_id=OTHER)}))

    assert made.data
    assert refused.value.reason is ErrorReason.CREDENTIALS_NOT_FOUND


async def test_a_refusal_of_the_registry_names_the_role(azure: AzureServer, provider: InMemory) -> None:
    azure.registry("closed").pullers.clear()

    with pytest.raises(ProviderError, match="grant the role AcrPull") as refused:
        await provider.generate(login(registry="closed.azurecr.io"))

    assert refused.value.reason is ErrorReason.PERMISSION_DENIED
    assert not any(token in refused.value.message for token in azure.entra.grants)


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        pytest.param({"registry": "https://images.azurecr.io"}, "/registry", id="a URL"),
        pytest.param({"auth": {"managedIdentity": {}, **PRINCIPAL}}, "/auth: name one", id="two identities"),
        pytest.param({"tenantId": ""}, "/tenantId", id="no tenant"),
        pytest.param({"environmentType": "AzureStackCloud"}, "/environmentType", id="a custom cloud"),
    ],
)
async def test_unusable_settings_are_refused(
    spec: dict[str, Any], text: str, azure: AzureServer, provider: InMemory
) -> None:
    del azure
    verdict = await provider.validate(login(**spec), role=KindRole.GENERATOR)

    assert verdict.error is not None
    assert text in verdict.error.message
