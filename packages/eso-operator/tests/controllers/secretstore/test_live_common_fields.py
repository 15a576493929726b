"""Fields that stores and generators have in common, namespaced or not, do the same for each of them."""

from typing import Any

import pytest

from eso_api.crd import CustomKind
from eso_api.v2.generator import CLUSTER_GENERATOR_V2, GENERATOR
from eso_api.v2.secretstore import CLUSTER_SECRET_STORE_V2, SECRET_STORE_V2
from eso_testkit.operator.operators import BACKEND, MAKER, Bench, scripted
from eso_wire.errors import ErrorReason, ProviderError
from kubebase.meta import Condition
from kubebase.testing.waiting import eventually

pytestmark = pytest.mark.live

TROUBLE = "away for a moment"
RETRIES = 6
"""More than are made unless a store asks for them."""
COMMON = {"refreshInterval": "1s", "retrySettings": {"maxRetries": RETRIES, "retryInterval": "10ms"}}


def valid(condition: Condition) -> bool:
    return (condition.status, condition.reason) == ("True", "Valid")


@pytest.mark.parametrize(
    ("kind", "config", "method"),
    [
        pytest.param(SECRET_STORE_V2, BACKEND, "Validate", id="SecretStore"),
        pytest.param(CLUSTER_SECRET_STORE_V2, BACKEND, "Validate", id="ClusterSecretStore"),
        pytest.param(GENERATOR, MAKER, "ValidateGenerator", id="Generator"),
        pytest.param(CLUSTER_GENERATOR_V2, MAKER, "ValidateGenerator", id="ClusterGenerator"),
    ],
)
async def test_controller_class_retries_and_interval_hold_for_stores_and_generators(
    bench: Bench, kind: CustomKind[Any], config: CustomKind[Any], method: str
) -> None:
    """R61, R78, R79, R81, R93."""
    resource, name, provider = kind.resource(), f"ours-{bench.namespace}", scripted()
    home = {} if resource.namespaced else {"namespace": bench.namespace}
    spec = {"providerConfig": {"providerRef": {"kind": config.name, "name": "one", **home}}, **COMMON}
    async with bench.operator():
        await bench.install(provider)
        await bench.create(config.resource(), "one", spec={"url": "https://backend"})
        provider.errors.extend(ProviderError(ErrorReason.BACKEND_UNAVAILABLE, TROUBLE) for _ in range(RETRIES))
        foreign = await bench.create(resource, f"not-{name}", spec={**spec, "controller": "another"})
        await bench.create(resource, name, spec=spec)
        try:
            await bench.ready(resource, name, valid)
            tries = provider.calls[method]

            async def again() -> bool:
                return provider.calls[method] >= tries + 2

            await eventually(again, "it is not validated again")
            said = await eventually(lambda: _said(bench, name), "its first verdict is not told")
            untouched = await bench.find(resource, f"not-{name}")
        finally:
            await bench.delete(resource, name)
            await bench.delete(resource, f"not-{name}")

    assert [message for message in said if TROUBLE in message] == [], "the retries of one validation were not enough"
    assert untouched == foreign


async def _said(bench: Bench, name: str) -> list[str]:
    """Return the event messages about an object, once one of them reports that it is valid."""
    namespaces = (bench.namespace, "default")
    lists = [await bench.api.get(f"/api/v1/namespaces/{namespace}/events") for namespace in namespaces]
    about = [event for each in lists for event in each.body["items"] if event["involvedObject"]["name"] == name]
    return [event["message"] for event in about] if "Valid" in {event["reason"] for event in about} else []
