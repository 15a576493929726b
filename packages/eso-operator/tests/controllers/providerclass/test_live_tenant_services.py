"""A tenant labels a Service: unless an administrator allows it, nothing becomes of that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eso_api.v2.providerclass import PROVIDER_CLASS
from eso_operator.settings import Settings
from eso_testkit.operator.operators import LABEL, SERVICES, Bench, scripted
from eso_testkit.operator.scenes import FAKE_STORE, STORES
from kubebase.testing.waiting import eventually

pytestmark = pytest.mark.live

CLASSES = PROVIDER_CLASS.resource()
V1_KEYS = {"external-secrets.io/provider-v1-keys": "fake"}


async def a_tenant_with_a_labelled_service(bench: Bench) -> Bench:
    tenant = await bench.tenant()
    metadata = {"labels": LABEL, "annotations": V1_KEYS}
    await tenant.create(SERVICES, "hijack", metadata=metadata, spec={"ports": [{"name": "grpc", "port": 8080}]})
    return tenant


def tenants_too(bench: Bench) -> Settings:
    return replace(bench.settings, providers=replace(bench.settings.providers, namespaced=True))


async def test_a_tenants_labelled_service_takes_over_nothing_and_costs_nothing(bench: Bench) -> None:
    """Earlier, it became the provider of the namespace's v1 stores, with Secrets in the operator's namespace."""
    async with bench.operator():
        await bench.install(scripted(data={"a": b"b"}), provider_v1_keys="fake")
        tenant = await a_tenant_with_a_labelled_service(bench)
        await tenant.create(STORES, "store", spec=FAKE_STORE)

        await tenant.ready(STORES, "store", lambda condition: condition.status == "True")
        listed = (await bench.api.get(f"/api/v1/namespaces/{bench.namespace}/secrets")).body["items"]

    assert await tenant.find(CLASSES, "hijack") is None
    assert not [found for found in listed if found["metadata"]["name"].startswith(f"{tenant.namespace}.")]


async def test_a_class_that_followed_from_a_tenants_service_goes_when_that_is_turned_off(bench: Bench) -> None:
    tenant = await a_tenant_with_a_labelled_service(bench)
    async with bench.operator(tenants_too(bench)):
        await eventually(lambda: tenant.find(CLASSES, "hijack"), "no class for the Service")

    async def gone() -> bool:
        return await tenant.find(CLASSES, "hijack") is None

    async with bench.operator():
        await eventually(gone, "the class stayed")
