"""ClusterPushSecrets inside the whole operator, down to the backend; on a live API server."""

from __future__ import annotations

import base64
import secrets
from collections.abc import AsyncIterator
from typing import Any

import pytest

from eso_api.clustersecretstore import CLUSTER_SECRET_STORE
from eso_operator.fanout.clusterpushsecret import CLUSTER_PUSH_SECRETS
from eso_operator.testing.keepingprovider import KeepingProvider, keeping
from eso_operator.testing.operators import Bench, eventually
from eso_operator.testing.pushsecrets import entry
from kuberun.meta import JsonObject
from kuberun.testing.builders import SECRETS, document

pytestmark = pytest.mark.live

PARENTS = CLUSTER_PUSH_SECRETS.parent.resource
FAKE: JsonObject = {"provider": {"fake": {"data": [{"key": "a", "value": "b"}]}}}


@pytest.fixture
async def pushing(fleet: Any) -> AsyncIterator[Any]:
    """A fleet of ClusterPushSecrets."""
    other = type(fleet)(fleet.bench, secrets.token_hex(4), CLUSTER_PUSH_SECRETS)
    yield other
    await other.clean()


async def _furnish(pushing: Any) -> None:
    """A store for all, and a source in one namespace."""
    (home,) = await pushing.namespaces("a")
    await pushing.bench.create(CLUSTER_SECRET_STORE.resource(), pushing.name, spec=FAKE)
    value = base64.b64encode(b"p").decode()
    body = {"metadata": {"name": "source", "namespace": home}, "data": {"password": value}}
    assert (await pushing.bench.api.post(SECRETS.path(home), body)).status == 201


def _spec(pushing: Any, **fields: Any) -> JsonObject:
    push = {
        "refreshInterval": "1s",
        "deletionPolicy": "Delete",
        "secretStoreRefs": [{"kind": "ClusterSecretStore", "name": pushing.name}],
        "selector": {"secret": {"name": "source"}},
        "data": [entry("password", pushing.mark)],
    }
    return {"pushSecretSpec": push, "namespaceSelectors": [pushing.selector], **fields}


@pytest.mark.parametrize("marks", [True, False], ids=["a backend that knows owners", "a backend that does not"])
async def test_children_that_get_another_name_do_not_take_the_value_along(
    pushing: Any, bench: Bench, marks: bool
) -> None:
    """The child of the old name goes with what it pushed, the new one pushes it: in the end it is there."""
    provider = keeping(marks_owners=marks)
    async with bench.operator():
        await bench.install(provider)
        await _furnish(pushing)
        await bench.create(PARENTS, pushing.name, spec=_spec(pushing))
        await pushing.provisioned("a")
        await eventually(lambda: _recorded(pushing, pushing.name), "the first child does not push")

        await pushing.patch({"spec": {"pushSecretName": "renamed"}})
        status = await pushing.status(lambda status: status.get("pushSecretName") == "renamed")
        await pushing.no_child("a")
        await eventually(lambda: _recorded(pushing, "renamed"), "the second child does not push")
        await eventually(lambda: _holds(provider, pushing.mark), "the value is lost")

        assert status["provisionedNamespaces"] == [pushing.ns("a")]
        await bench.delete(PARENTS, pushing.name)
        await pushing.no_child("a", "renamed")
        assert provider.values == {}
        await bench.delete(CLUSTER_SECRET_STORE.resource(), pushing.name)


async def _recorded(pushing: Any, name: str) -> bool:
    found = await pushing.child("a", name) or {}
    return bool(found.get("status", {}).get("syncedPushSecrets"))


async def _holds(provider: KeepingProvider, key: str) -> bool:
    return provider.values == {key: b"p"}


async def test_a_push_secret_of_somebody_else_is_not_overwritten_and_is_told_of(pushing: Any, bench: Bench) -> None:
    await pushing.namespaces("a")
    children = CLUSTER_PUSH_SECRETS.child.resource
    foreign = {"secretStoreRefs": [], "selector": {"secret": {"name": "x"}}}
    answer = await bench.api.post(
        children.path(pushing.ns("a")), document(children, pushing.name, pushing.ns("a"), spec=foreign)
    )
    assert answer.status == 201, answer.body
    async with bench.operator():
        await bench.create(PARENTS, pushing.name, spec=_spec(pushing))

        status = await pushing.failed()
        await eventually(lambda: _event_source(pushing), "no event")

    taken = {"namespace": pushing.ns("a"), "reason": "push secret already exists in namespace"}
    assert status["failedNamespaces"] == [taken]
    assert status["conditions"] == [{"type": "Ready", "status": "False", "message": "one or more namespaces failed"}]
    found = await pushing.child("a")
    assert found["spec"]["secretStoreRefs"] == []


async def _event_source(pushing: Any) -> bool:
    listed = await pushing.bench.api.get("/api/v1/namespaces/default/events")
    return any(
        (each["reason"], each["source"]["component"]) == ("Errored", "external-secrets-controller")
        for each in listed.body["items"]
        if each["involvedObject"]["name"] == pushing.name
    )
