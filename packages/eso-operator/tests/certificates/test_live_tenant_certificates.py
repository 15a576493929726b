"""The cost of a tenant's Services: no Secrets in the operator's namespace unless allowed, and never more than a few."""

from __future__ import annotations

import pytest

from eso_operator.certificates.problems import CertificateError, ProblemName
from eso_operator.stores.resolved import ManagedTls, ServiceKey
from eso_testkit.operator.certificates import create_service, label, operator, secret
from kubebase.meta import ObjectKey
from kubebase.testing.waiting import eventually
from kuberun.client import Client
from kuberun.testing.rawapi import RawApi

pytestmark = pytest.mark.live


async def core_secrets(api: RawApi, namespace: str) -> list[str]:
    listed = await api.get(f"/api/v1/namespaces/{namespace}/secrets")
    return [found["metadata"]["name"] for found in listed.body["items"]]


async def test_the_label_of_a_tenants_service_costs_no_secrets(
    client: Client, api: RawApi, namespace: str, team: str
) -> None:
    tenants, ours = ServiceKey(team, "mine"), ServiceKey(namespace, "ours")
    for service in (tenants, ours):
        await create_service(api, service)
        await label(api, service)

    async with operator(client, namespace, served=(), shared=()) as running:
        await running.issuer.reconcile(tenants_key := _key(tenants))
        await eventually(lambda: secret(api, namespace, "ours-provider-tls"))
        await running.issuer.reconcile(tenants_key)

    assert await secret(api, team, "mine-provider-tls") is None
    assert not [name for name in await core_secrets(api, namespace) if name.startswith(f"{team}.")]


async def test_a_namespace_has_certificates_for_a_few_providers_of_its_own(
    client: Client, api: RawApi, namespace: str, team: str
) -> None:
    services = [ServiceKey(team, f"mine-{number}") for number in range(4)]
    for service in services:
        await create_service(api, service)

    async with operator(
        client, namespace, served=(), shared=(), namespaced_providers=True, max_namespaced=2
    ) as running:
        for service in services[:2]:
            await running.certificates.of(ManagedTls(service))
        for service in services[2:]:
            with pytest.raises(CertificateError) as refused:
                await running.certificates.of(ManagedTls(service))
            assert refused.value.problem.name is ProblemName.TOO_MANY_PROVIDERS
            assert "--max-namespaced-providers" in refused.value.problem.message
        again = await running.certificates.of(ManagedTls(services[0]))

    assert again is not None
    assert len([name for name in await core_secrets(api, namespace) if name.startswith(f"{team}.")]) == 4


async def test_secrets_that_a_tenant_forges_do_not_use_up_the_room_of_another(
    client: Client, api: RawApi, namespace: str, team: str
) -> None:
    """They look like certificates of Services of the other namespace, and are not where certificates are kept."""
    forger = f"{namespace}-forger"
    await api.post("/api/v1/namespaces", {"metadata": {"name": forger}})
    for number in range(3):
        metadata = {
            "name": f"forged-{number}",
            "labels": {
                "external-secrets.io/provider-certificates": "issuer",
                "app.kubernetes.io/managed-by": "external-secrets",
                "external-secrets.io/certificates-issued-by": namespace,
            },
            "annotations": {"external-secrets.io/provider-service": f"{team}/forged-{number}"},
        }
        await api.post(f"/api/v1/namespaces/{forger}/secrets", {"metadata": metadata})
    service = ServiceKey(team, "honest")
    await create_service(api, service)

    async with operator(
        client, namespace, served=(), shared=(), namespaced_providers=True, max_namespaced=2
    ) as running:
        assert await running.certificates.of(ManagedTls(service)) is not None


def _key(service: ServiceKey) -> ObjectKey:
    return ObjectKey(service.namespace, service.name)
