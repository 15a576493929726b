"""PushSecrets of tenants and cluster stores: by wishing to push they neither hold a store nor have it validated."""

from __future__ import annotations

from typing import Any

import pytest

from eso_api.pushsecret import PUSH_SECRET
from eso_api.secretstore import CLUSTER_SECRET_STORE
from eso_operator.controllers.secretstore.finalizer import FINALIZER
from eso_testkit.operator.operators import Bench, scripted
from eso_testkit.operator.scenes import FAKE_STORE
from kubebase.clock import SystemClock
from kubebase.meta import Condition, JsonObject
from kubebase.testing.waiting import eventually

pytestmark = pytest.mark.live

CLUSTER_STORES = CLUSTER_SECRET_STORE.resource()
PUSHES = PUSH_SECRET.resource()


def valid(condition: Condition) -> bool:
    return condition.status == "True"


def wish(**ref: Any) -> JsonObject:
    return {
        "secretStoreRefs": [{"kind": "ClusterSecretStore", **ref}],
        "selector": {"secret": {"name": "source"}},
        "deletionPolicy": "Delete",
    }


@pytest.mark.parametrize("permitted", [False, True], ids=["denied by the conditions", "permitted, and nothing pushed"])
async def test_a_tenant_who_only_wishes_to_push_does_not_hold_a_cluster_store(bench: Bench, permitted: bool) -> None:
    tenant = await bench.tenant()
    name = f"shared-{bench.namespace}"
    conditions = [{"namespaces": [tenant.namespace if permitted else "somewhere-else"]}]
    async with bench.operator():
        await bench.install(scripted(), provider_v1_keys="fake")
        await bench.create(CLUSTER_STORES, name, spec={**FAKE_STORE, "conditions": conditions})
        await bench.ready(CLUSTER_STORES, name, valid)
        await tenant.create(PUSHES, "named", spec=wish(name=name))
        await tenant.create(PUSHES, "selected", spec=wish(labelSelector={}))
        await tenant.ready(PUSHES, "named", lambda condition: condition.status == "False")

        await bench.delete(CLUSTER_STORES, name)

        async def gone() -> bool:
            return await bench.find(CLUSTER_STORES, name) is None

        await eventually(gone, "the tenant's PushSecret holds the store")


async def test_push_secrets_that_come_and_go_validate_no_store(bench: Bench) -> None:
    """Each of them had every cluster store call its backend with the credentials of the store's owner."""
    tenant, provider = await bench.tenant(), scripted()
    names = [f"shared-{number}-{bench.namespace}" for number in range(3)]
    async with bench.operator():
        await bench.install(provider, provider_v1_keys="fake")
        for name in names:
            await bench.create(CLUSTER_STORES, name, spec=FAKE_STORE)
        try:
            for name in names:
                await bench.ready(CLUSTER_STORES, name, valid)
            await SystemClock().sleep(1.0)  # what the stores themselves set off is over
            before = provider.calls["Validate"]

            for number in range(5):
                await tenant.create(PUSHES, f"push-{number}", spec=wish(labelSelector={}))
                await tenant.ready(PUSHES, f"push-{number}", lambda condition: condition.status == "False")
            for number in range(5):
                await tenant.api.delete(PUSHES.path(tenant.namespace, f"push-{number}"))
            await SystemClock().sleep(1.0)

            assert provider.calls["Validate"] == before
            for name in names:
                found = await bench.find(CLUSTER_STORES, name)
                assert found is not None
                assert FINALIZER not in found["metadata"].get("finalizers", [])
        finally:
            for name in names:
                await bench.api.delete(CLUSTER_STORES.path("", name))
