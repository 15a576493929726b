"""The same fan-out for another pair of kinds, and inside the whole operator; on a live API server."""

import secrets
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from eso_api.secretstore import SECRET_STORE
from eso_operator.controllers.fanout.kinds import CLUSTER_PUSH_SECRETS
from eso_operator.settings import Reconcilers
from eso_operator.wiring import Operator
from eso_testkit.operator.operators import Bench
from kubebase.testing.waiting import eventually

pytestmark = pytest.mark.live

STORES = SECRET_STORE.resource()
PUSH = {"secretStoreRefs": [{"name": "shared"}], "selector": {"secret": {"name": "db"}}, "refreshInterval": "1h"}


@pytest.fixture
async def pushing(fleet: Any) -> AsyncIterator[Any]:
    """A fleet of ClusterPushSecrets."""
    other = type(fleet)(fleet.bench, secrets.token_hex(4), CLUSTER_PUSH_SECRETS)
    yield other
    await other.clean()


async def test_a_cluster_push_secret_puts_a_push_secret_into_every_matching_namespace(pushing: Any) -> None:
    await pushing.namespaces("a", "b")
    spec = {"pushSecretSpec": PUSH, "pushSecretName": "db", "namespaceSelectors": [pushing.selector]}
    resource = CLUSTER_PUSH_SECRETS.parent.resource
    async with pushing.running():
        stored = await pushing.bench.create(resource, pushing.name, spec=spec)
        status = await pushing.provisioned("a", "b")
        child = await pushing.child("a", "db")

        await pushing.label("b", None)
        await pushing.provisioned("a")
        await pushing.no_child("b", "db")
        parent = await pushing.parent()
        await pushing.bench.delete(resource, pushing.name)

        await pushing.no_child("a", "db")
    assert status["pushSecretName"] == "db"
    assert child["spec"] == PUSH
    assert child["metadata"]["ownerReferences"][0]["uid"] == stored["metadata"]["uid"]
    assert "finalizers" not in parent["metadata"]


async def test_the_whole_operator_fans_out(fleet: Any, bench: Bench) -> None:
    """R27, R28."""
    await fleet.namespaces("a")
    async with bench.operator() as operator:
        await fleet.create()
        await fleet.provisioned("a")
        labels = f'condition="Ready",name="{fleet.name}",namespace="",status="True"'
        series = f"clusterexternalsecret_status_condition{{{labels}}} 1.0"
        await eventually(lambda: _exposes(operator, series), "the condition is not exposed")
        duration = f'clusterexternalsecret_reconcile_duration{{name="{fleet.name}",namespace=""}}'
        await eventually(lambda: _exposes(operator, duration), "the duration is not exposed")
        await bench.delete(fleet.fan_out.parent.resource, fleet.name)

        await fleet.no_child("a")


async def _exposes(operator: Operator, series: str) -> bool:
    return series in operator.metrics.exposition().decode()


async def test_an_operator_told_not_to_leaves_cluster_external_secrets_alone(fleet: Any, bench: Bench) -> None:
    await fleet.namespaces("a")
    stored = await fleet.create()
    settings = replace(bench.settings, reconcilers=Reconcilers(cluster_external_secret=False))
    async with bench.operator(settings):
        # Another controller is at work, so this one would be.
        await bench.create(STORES, "fake", spec={"provider": {"fake": {"data": [{"key": "a", "value": "b"}]}}})
        await bench.ready(STORES, "fake", lambda condition: bool(condition.status))

    assert await fleet.parent() == stored
    assert await fleet.child("a") is None
