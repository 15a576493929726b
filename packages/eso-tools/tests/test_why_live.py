"""Every kind explained against an operator in this process: healthy objects, and a provider that does not answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from eso_api.crd import CustomKind
from eso_api.externalsecret import CLUSTER_EXTERNAL_SECRET, EXTERNAL_SECRET
from eso_api.generators.generatorstate import GENERATOR_STATE
from eso_api.generators.local import PASSWORD
from eso_api.pushsecret import PUSH_SECRET
from eso_api.secretstore import CLUSTER_SECRET_STORE, SECRET_STORE
from eso_api.v2.generator import GENERATOR
from eso_api.v2.providerclass import PROVIDER_CLASS
from eso_api.v2.secretstore import SECRET_STORE_V2
from eso_testkit.operator.operators import BACKEND_ID, LABEL, MAKER_ID, SERVICE, SERVICES, Bench, scripted
from eso_tools.why.explanation import Explanation, Mark, explanation_of
from eso_tools.why.inputs import gather
from kubebase.clock import SystemClock
from kubebase.meta import Condition, ObjectKey
from kuberun import config
from kuberun.client import Client
from kuberun.testing.builders import SECRETS
from kuberun.transport import AiohttpTransport

pytestmark = pytest.mark.live

FAKE: dict[str, Any] = {"provider": {"fake": {"data": []}}}
INLINE = {"providerConfig": {"inline": {"kind": "Backend", "spec": {}}}}
MAKES = {"providerConfig": {"inline": {"kind": "Maker", "spec": {}}}}
ENTRY = {"secretKey": "pw", "remoteRef": {"key": "db/pw"}}
READS = {"secretStoreRef": {"name": "store"}, "data": [ENTRY]}
PUSHES = {
    "secretStoreRefs": [{"name": "store"}],
    "selector": {"secret": {"name": "source"}},
    "data": [{"match": {"secretKey": "pw", "remoteRef": {"remoteKey": "db/pw"}}}],
}
KINDS_OF_PROVIDER = ",".join(f"{each.kind}.{each.version}.{each.group}" for each in (BACKEND_ID, MAKER_ID))


def ready(status: str) -> Any:
    def wanted(condition: Condition) -> bool:
        return condition.status == status

    return wanted


class Cluster:
    """One object of every kind that leads to the provider."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench

    async def build(self) -> None:
        create, home = self.bench.create, {"namespaces": [self.bench.namespace]}
        await create(SECRETS, "source", stringData={"pw": "x"})
        await create(SECRET_STORE.resource(), "store", spec=FAKE)
        await create(CLUSTER_SECRET_STORE.resource(), self.shared, spec=FAKE)
        await create(SECRET_STORE_V2.resource(), "store2", spec=INLINE)
        await create(GENERATOR.resource(), "maker", spec=MAKES)
        await create(EXTERNAL_SECRET.resource(), "db", spec=READS)
        await create(PUSH_SECRET.resource(), "up", spec=PUSHES)
        fan_out = {"externalSecretSpec": READS, "externalSecretName": "many", **home}
        await create(CLUSTER_EXTERNAL_SECRET.resource(), self.shared, spec=fan_out)

    @property
    def shared(self) -> str:
        """The name of the cluster-scoped objects, which tests must not share."""
        return self.bench.namespace

    async def explanation(self, kind: CustomKind[Any], name: str) -> Explanation:
        client = Client(AiohttpTransport(config.load(self.bench.kubeconfig)))
        try:
            inputs = await gather(client, kind, ObjectKey(self.bench.namespace, name))
        finally:
            await client.close()
        return explanation_of(inputs, SystemClock().now())


@pytest.fixture
async def cluster(bench: Bench) -> AsyncIterator[Cluster]:
    built = Cluster(bench)
    yield built
    for kind in (CLUSTER_EXTERNAL_SECRET, CLUSTER_SECRET_STORE):
        await bench.api.delete(kind.resource().path("", built.shared))


async def test_a_provider_that_does_not_answer_is_the_cause_for_every_kind(cluster: Cluster) -> None:
    bench = cluster.bench
    annotations = {
        "external-secrets.io/provider-kinds": KINDS_OF_PROVIDER,
        "external-secrets.io/provider-v1-keys": "fake",
    }
    ports = {"ports": [{"name": "grpc", "port": 8080}]}
    await bench.create(SERVICES, SERVICE, metadata={"labels": LABEL, "annotations": annotations}, spec=ports)
    await cluster.build()

    async with bench.operator(bench.impatient):
        await bench.ready(PROVIDER_CLASS.resource(), SERVICE, ready("False"))
        await bench.ready(SECRET_STORE.resource(), "store", ready("False"))
        for name in ("db", "many"):
            await bench.ready(EXTERNAL_SECRET.resource(), name, ready("False"))
        for kind, name in ((SECRET_STORE_V2, "store2"), (GENERATOR, "maker"), (PUSH_SECRET, "up")):
            await bench.ready(kind.resource(), name, ready("False"))
        await bench.ready(CLUSTER_SECRET_STORE.resource(), cluster.shared, ready("False"))
        explanations = {
            f"{kind.name}.{kind.group}": await cluster.explanation(kind, name)
            for kind, name in (
                (EXTERNAL_SECRET, "db"),
                (PUSH_SECRET, "up"),
                (SECRET_STORE, "store"),
                (CLUSTER_SECRET_STORE, cluster.shared),
                (SECRET_STORE_V2, "store2"),
                (GENERATOR, "maker"),
                (CLUSTER_EXTERNAL_SECRET, cluster.shared),
            )
        }

    causes = {
        name: (explanation.cause.name, explanation.cause.subject)
        for name, explanation in explanations.items()
        if explanation.cause
    }
    assert causes == dict.fromkeys(explanations, ("provider", f"provider ProviderClass {SERVICE}"))
    for name, explanation in explanations.items():
        messages = [finding.message for step in explanation.steps for finding in step if finding.message]
        assert len(set(messages)) == len(messages), name


async def test_everything_is_in_order_for_every_kind_that_a_provider_serves(cluster: Cluster) -> None:
    bench = cluster.bench
    await cluster.build()
    made_by = {"apiVersion": GENERATOR.resource().api_version, "kind": "Generator", "metadata": {"name": "maker"}}
    await bench.create(GENERATOR_STATE.resource(), "made", spec={"resource": {**made_by, "spec": MAKES}, "state": {}})
    await bench.create(PASSWORD.resource(), "strong", spec={"length": 8, "allowRepeat": True, "noUpper": False})

    async with bench.operator():
        await bench.install(scripted(data={"db/pw": b"x"}))
        for name in ("db", "many"):
            await bench.ready(EXTERNAL_SECRET.resource(), name, ready("True"))
        for kind, name in ((SECRET_STORE_V2, "store2"), (CLUSTER_SECRET_STORE, cluster.shared), (GENERATOR, "maker")):
            await bench.ready(kind.resource(), name, ready("True"))
        await bench.ready(PROVIDER_CLASS.resource(), SERVICE, ready("True"))
        explanations = {
            f"{kind.name}.{kind.group}": await cluster.explanation(kind, name)
            for kind, name in (
                (EXTERNAL_SECRET, "db"),
                (SECRET_STORE, "store"),
                (CLUSTER_SECRET_STORE, cluster.shared),
                (SECRET_STORE_V2, "store2"),
                (CLUSTER_EXTERNAL_SECRET, cluster.shared),
                (GENERATOR, "maker"),
                (GENERATOR_STATE, "made"),
                (PASSWORD, "strong"),
                (PROVIDER_CLASS, SERVICE),
            )
        }

    unserved = explanations.pop(f"{PASSWORD.name}.{PASSWORD.group}").cause
    assert unserved is not None
    assert unserved.state == "ProviderNotInstalled"
    assert {name: explanation.cause for name, explanation in explanations.items()} == dict.fromkeys(explanations)
    found = explanations[f"{EXTERNAL_SECRET.name}.{EXTERNAL_SECRET.group}"]
    assert [(finding.name, finding.mark) for step in found.steps for finding in step][:2] == [
        ("provider", Mark.GOOD),
        ("store", Mark.GOOD),
    ]
