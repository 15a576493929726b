"""ClusterPushSecrets inside the whole operator, down to the backend; on a live API server."""

from __future__ import annotations

import base64
import secrets
from collections.abc import AsyncIterator
from typing import Any

import pytest

from eso_api.secretstore import CLUSTER_SECRET_STORE
from eso_operator.controllers.fanout.kinds import CLUSTER_PUSH_SECRETS
from eso_testkit.operator.operators import Bench
from eso_testkit.operator.pushsecrets import entry
from eso_testkit.operator.storingprovider import StoringProvider, storing
from kubebase.meta import JsonObject
from kubebase.testing.waiting import eventually
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


async def _furnish(pushing: Any, **passwords: bytes) -> None:
    """A store for all, and a source in each namespace."""
    await pushing.bench.create(CLUSTER_SECRET_STORE.resource(), pushing.name, spec=FAKE)
    for name, password in (passwords or {"a": b"p"}).items():
        (home,) = await pushing.namespaces(name)
        data = {"password": base64.b64encode(password).decode()}
        body = {"metadata": {"name": "source", "namespace": home}, "data": data}
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
    provider = storing(marks_owners=marks)
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


async def _holds(provider: StoringProvider, key: str, value: bytes = b"p") -> bool:
    return provider.values == {key: value}


@pytest.mark.parametrize("last", [b"p", b"q"], ids=["with one value", "with different values"])
async def test_children_of_several_namespaces_push_one_remote_key(pushing: Any, bench: Bench, last: bytes) -> None:
    """All of them are Ready and say that they share a place, whatever the values. It goes with the last child."""
    provider = storing()
    async with bench.operator():
        await bench.install(provider)
        await _furnish(pushing, a=b"p", b=last)
        await bench.create(PARENTS, pushing.name, spec=_spec(pushing))
        await pushing.provisioned("a", "b")

        for name in ("a", "b"):
            await pushing.child_is(name, _shares_a_place, f"the child in {name} does not say what it should")
        assert set(provider.values) == {pushing.mark}
        await pushing.label("a", None)
        await pushing.no_child("a")
        await eventually(lambda: _holds(provider, pushing.mark, last), "the value is lost")
        await bench.delete(PARENTS, pushing.name)
        await pushing.no_child("b")
        assert provider.values == {}
        await bench.delete(CLUSTER_SECRET_STORE.resource(), pushing.name)


def _shares_a_place(child: JsonObject) -> bool:
    found = {each["type"]: each for each in child.get("status", {}).get("conditions", [])}
    ready = found.get("Ready", {}).get("status") == "True"
    return ready and "an object in another namespace also writes it" in found.get("Contended", {}).get("message", "")


async def test_a_push_secret_of_another_owner_is_not_overwritten_and_is_reported(pushing: Any, bench: Bench) -> None:
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
    (ready,) = status["conditions"]
    assert (ready["status"], ready["reason"]) == ("False", "NamespacesFailed")
    assert ready["message"].startswith(f"one or more namespaces failed: {pushing.ns('a')}: push secret already exists")
    found = await pushing.child("a")
    assert found["spec"]["secretStoreRefs"] == []


async def _event_source(pushing: Any) -> bool:
    listed = await pushing.bench.api.get("/api/v1/namespaces/default/events")
    return any(
        (each["reason"], each["source"]["component"]) == ("Errored", "external-secrets-controller")
        for each in listed.body["items"]
        if each["involvedObject"]["name"] == pushing.name
    )
