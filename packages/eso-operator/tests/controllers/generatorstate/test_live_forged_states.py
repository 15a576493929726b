"""GeneratorStates that a tenant wrote: the clean-up of a cluster-scoped generator does not run on them.

Such a clean-up has the credentials of the generator's owner. It may only remove what the generator made for the
ExternalSecret or PushSecret that the state belongs to, so the operator recognises its own states by their seals.
"""

from __future__ import annotations

from typing import Any

import pytest

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.generators.generatorstate import GENERATOR_STATE
from eso_api.v2.generator import CLUSTER_GENERATOR_V2
from eso_operator.generators.ledger import FINALIZER, IDEMPOTENCY_KEY
from eso_operator.generators.seals import SEAL, SECRET_NAME
from eso_testkit.operator.generatingprovider import generating
from eso_testkit.operator.operators import MAKER, Bench
from kubebase.meta import JsonObject
from kubebase.testing.waiting import eventually
from kuberun.testing.builders import SECRETS

pytestmark = pytest.mark.live

ES = EXTERNAL_SECRET.resource()
STATES = GENERATOR_STATE.resource()
CLUSTER_GENERATORS = CLUSTER_GENERATOR_V2.resource()
MAKERS = MAKER.resource()
CONFIG: JsonObject = {"url": "https://maker.example.com", "auth": {"tokenSecretRef": {"name": "token", "key": "t"}}}


async def an_administrators_generator(bench: Bench) -> str:
    """It takes its configuration and credentials from the administrator's namespace, for all namespaces."""
    name = f"gen-{bench.namespace}"
    await bench.create(SECRETS, "token", data={"t": "b3duZXJz"})
    await bench.create(MAKERS, "config", spec=CONFIG)
    ref = {"apiVersion": MAKERS.api_version, "kind": "Maker", "name": "config", "namespace": bench.namespace}
    spec = {"providerConfig": {"providerRef": ref}, "authenticationNamespace": "ProviderReference"}
    await bench.create(CLUSTER_GENERATORS, name, spec=spec)
    return name


def forged(generator: str, state: JsonObject, **metadata: Any) -> JsonObject:
    resource = {"apiVersion": CLUSTER_GENERATORS.api_version, "kind": CLUSTER_GENERATORS.kind}
    return {
        "metadata": {"finalizers": [FINALIZER], **metadata},
        "spec": {
            "resource": {**resource, "metadata": {"name": generator}, "spec": {}},
            "state": state,
            "garbageCollectionDeadline": "2020-01-01T00:00:00Z",
        },
    }


async def refused(tenant: Bench, name: str) -> None:
    """Told by an event, without a call."""

    async def told() -> bool:
        listed = await tenant.api.get(f"/api/v1/namespaces/{tenant.namespace}/events")
        return any(
            each["involvedObject"]["name"] == name and "did not write this" in each["message"]
            for each in listed.body["items"]
        )

    await eventually(told, f"nothing is said about {name}")


async def let_go(tenant: Bench) -> None:
    """The API server of other tests goes on."""
    for state in (await tenant.api.get(STATES.path(tenant.namespace))).body["items"]:
        name = state["metadata"]["name"]
        await tenant.patch(STATES, name, {"metadata": {"finalizers": None}})


async def ours(tenant: Bench, generator: str) -> JsonObject:
    """A state that the operator wrote for this tenant."""
    ref = {"apiVersion": CLUSTER_GENERATORS.api_version, "kind": CLUSTER_GENERATORS.kind, "name": generator}
    spec = {"refreshInterval": "0", "dataFrom": [{"sourceRef": {"generatorRef": ref}}]}
    await tenant.create(ES, "db", spec=spec)
    await tenant.ready(ES, "db", lambda condition: condition.status == "True")
    (state,) = (await tenant.api.get(STATES.path(tenant.namespace))).body["items"]
    return dict(state)


@pytest.mark.parametrize(
    "annotations",
    [
        pytest.param({}, id="without a seal"),
        pytest.param({SEAL: "0" * 64}, id="with an invented seal"),
        pytest.param({IDEMPOTENCY_KEY: "of-another-owner"}, id="by the key of a call"),
    ],
)
async def test_a_state_that_a_tenant_wrote_removes_nothing(workshop: Any, annotations: dict[str, str]) -> None:
    provider = generating()
    provider.books[7] = b"of another writer"
    async with workshop(provider) as shop:
        generator = await an_administrators_generator(shop.bench)
        tenant = await shop.bench.tenant()
        try:
            await tenant.create(STATES, "forged", **forged(generator, {"number": 7}, annotations=annotations))
            await refused(tenant, "forged")
        finally:
            await let_go(tenant)
            await shop.bench.delete(CLUSTER_GENERATORS, generator)

    assert provider.cleaned == []
    assert 7 in provider.books


async def test_a_seal_holds_for_what_was_sealed_only(workshop: Any) -> None:
    """Neither another state under the same seal, nor the same state in another namespace."""
    async with workshop() as shop:
        generator = await an_administrators_generator(shop.bench)
        tenant, other = await shop.bench.tenant(), await shop.bench.tenant("other")
        try:
            state = await ours(tenant, generator)
            seal = {SEAL: state["metadata"]["annotations"][SEAL]}
            owners = state["metadata"]["ownerReferences"]
            shop.provider.books[7] = b"of another writer"
            another = forged(generator, {"number": 7}, annotations=seal, ownerReferences=owners)
            await tenant.create(STATES, "another", **another)
            await other.create(STATES, "moved", **forged(generator, state["spec"]["state"], annotations=seal))

            await refused(tenant, "another")
            await refused(other, "moved")
            assert shop.provider.cleaned == []
        finally:
            await let_go(tenant)
            await let_go(other)
            await shop.bench.delete(CLUSTER_GENERATORS, generator)


async def test_states_of_the_operator_are_cleaned_up_by_the_next_operator(workshop: Any) -> None:
    """The key outlives the process, and only the operator's namespace has it."""
    provider = generating()
    async with workshop(provider) as shop:
        generator = await an_administrators_generator(shop.bench)
        tenant = await shop.bench.tenant()
        state = await ours(tenant, generator)
    assert await shop.bench.find(SECRETS, SECRET_NAME) is not None
    assert await tenant.find(SECRETS, SECRET_NAME) is None

    async with workshop(provider) as shop:
        try:
            await tenant.delete(STATES, state["metadata"]["name"])

            async def clean() -> bool:
                return not provider.books

            await eventually(clean, "what the first operator made is not cleaned up")
        finally:
            await shop.bench.delete(CLUSTER_GENERATORS, generator)

    assert provider.cleaned[0].credentials == (b"owners",)
