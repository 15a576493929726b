"""Objects of any kind as a store: keys by scope, properties, the whitelist, and rejected requests."""

from __future__ import annotations

import json
from typing import Any

import pytest

from eso_provider_kubernetes.objectstore import CustomResourceStore
from eso_sdk.testing import call_context
from eso_wire.values import Operation, ValidationMode, ValidationState

pytestmark = pytest.mark.live

CONFIG_MAP = {"version": "v1", "kind": "ConfigMap"}
TOKEN_REF = {"name": "credentials", "key": "token", "namespace": "team"}


@pytest.fixture
async def objects(kube: Any, remote: Any) -> Any:
    """Opens stores of one kind; the objects of the test are ConfigMaps."""
    for name, text in (("app", "blue"), ("db", "green")):
        labels = {"tier": name, "test": remote.namespace}
        body = {"metadata": {"name": name, "labels": labels}, "data": {"color": text, "json": '{"a":[1]}'}}
        assert (await remote.api.post(f"/api/v1/namespaces/{remote.namespace}/configmaps", body)).status == 201

    def opened(*, cluster: bool = False, token: str = "", **spec: Any) -> Any:
        namespace = "" if cluster else remote.namespace
        ref = TOKEN_REF if cluster else {"name": "credentials", "key": "token"}
        spec = {
            "server": remote.connection,
            "auth": {"token": {"bearerToken": ref}},
            "resource": CONFIG_MAP,
            **spec,
        }
        shown = {"/auth/token/bearerToken": token or remote.server.token}
        store = kube.store({}, {}, namespace=namespace)
        context = call_context(
            CustomResourceStore,
            spec,
            shown,
            namespace=namespace,
            store=store.context.store,
            caller=store.context.caller,
        )
        return type(store)(kube.client, context)

    return opened


async def test_a_namespaced_store_reads_objects_of_its_own_namespace_by_name(objects: Any) -> None:
    store = objects()

    assert await store.read("app", property="data.color") == "blue"
    assert json.loads(await store.read("app"))["data"]["color"] == "blue"
    assert "managedFields" not in await store.read("app")
    assert (await store.read_map("app"))["kind"] == "ConfigMap"
    assert (await store.read("absent")).reason.value == "SECRET_NOT_FOUND"
    assert (await store.read("app", property="data.absent")).reason.value == "PROPERTY_NOT_FOUND"


async def test_a_namespaced_store_cannot_name_another_namespace(objects: Any) -> None:
    error = await objects().read("default/app")

    assert error.reason.value == "INVALID_REQUEST"
    assert "write NAME" in error.message


async def test_a_cluster_scoped_store_names_namespace_and_object(objects: Any, remote: Any) -> None:
    store = objects(cluster=True)

    assert await store.read(f"{remote.namespace}/db", property="data.color") == "green"
    assert (await store.read("db")).reason.value == "INVALID_REQUEST"
    assert set(await store.find(tags={"tier": "db", "test": remote.namespace})) == {f"{remote.namespace}/db"}


async def test_a_cluster_scoped_store_reads_cluster_scoped_kinds_by_name(objects: Any, remote: Any) -> None:
    store = objects(cluster=True, resource={"version": "v1", "kind": "Namespace"})

    assert await store.read(remote.namespace, property="metadata.name") == remote.namespace


async def test_a_namespaced_store_does_not_read_cluster_scoped_kinds(objects: Any, remote: Any) -> None:
    error = await objects(resource={"version": "v1", "kind": "Namespace"}).read(remote.namespace)

    assert error.reason.value == "CONFIG_INVALID"
    assert "cluster-scoped" in error.message


async def test_find_lists_matching_objects(objects: Any) -> None:
    found = await objects().find(name_regexp="^(app|db)$")

    assert {name: json.loads(text)["data"]["color"] for name, text in found.items()} == {"app": "blue", "db": "green"}


@pytest.mark.parametrize(
    ("rules", "key", "prop", "allowed"),
    [
        pytest.param([], "app", "", True, id="no rules allow everything"),
        pytest.param([{"name": "^app$"}], "app", "data.color", True, id="a rule for the name"),
        pytest.param([{"name": "^app$"}], "db", "data.color", False, id="another name"),
        pytest.param([{"name": "x"}, {"name": "^db$"}], "db", "", True, id="one of several rules is enough"),
        pytest.param([{"properties": ["^data\\."]}], "app", "data.color", True, id="an allowed property"),
        pytest.param([{"properties": ["^data\\."]}], "app", "metadata.uid", False, id="another property"),
        pytest.param(
            [{"properties": ["^data\\."]}], "app", "", False, id="the whole object, when properties are named"
        ),
        pytest.param([{"name": "^app$", "namespace": "^nowhere$"}], "app", "", False, id="all parts have to match"),
    ],
)
async def test_the_whitelist_decides_what_is_read(objects: Any, rules: Any, key: str, prop: str, allowed: bool) -> None:
    outcome = await objects(whitelist={"rules": rules}).read(key, property=prop)

    assert isinstance(outcome, str) is allowed
    assert allowed or outcome.reason.value == "PERMISSION_DENIED"


async def test_find_leaves_out_what_the_whitelist_does_not_allow(objects: Any) -> None:
    assert set(await objects(whitelist={"rules": [{"name": "^app$"}]}).find(name_regexp="^(app|db)$")) == {"app"}


@pytest.mark.parametrize(
    ("spec", "pointer"),
    [
        pytest.param({"resource": {"version": "v1", "kind": "Secret"}}, "/resource/kind", id="Secrets"),
        pytest.param({"resource": {"group": "../..", "version": "v1", "kind": "X"}}, "/resource/group", id="no group"),
        pytest.param({"resource": {"version": "v1/../..", "kind": "X"}}, "/resource/version", id="no version"),
        pytest.param({"whitelist": {"rules": [{"name": "("}]}}, "/whitelist/rules/0/name", id="no expression"),
        pytest.param({"auth": None}, "/auth", id="no credentials"),
    ],
)
async def test_a_wrong_configuration_is_refused(objects: Any, kube: Any, spec: Any, pointer: str) -> None:
    validation = await kube.client.validate(objects(**spec).context, ValidationMode.STATIC)

    assert validation.state is ValidationState.INVALID
    assert validation.error.message.startswith(f"{pointer}: ")


async def test_a_kind_that_the_server_does_not_serve_is_named(objects: Any, kube: Any) -> None:
    for resource in ({"group": "no.such", "version": "v1", "kind": "X"}, {"version": "v1", "kind": "NoSuchKind"}):
        validation = await kube.client.validate(objects(resource=resource).context)

        assert validation.state is ValidationState.INVALID
        assert validation.error.message.startswith("/resource: ")


async def test_rights_are_reviewed_for_the_kind_and_missing_ones_are_named(
    objects: Any, kube: Any, remote: Any
) -> None:
    token = await remote.token(("list",), resources=["configmaps"])
    store = objects(token=token)

    validation = await kube.client.validate(store.context)
    error = await store.read("app")

    assert validation.state is ValidationState.INVALID
    for said in (validation.error, error):
        assert 'grant the verb "get" on "configmaps"' in said.message


def test_the_kind_offers_no_writes() -> None:
    assert not CustomResourceStore.OPERATIONS & {Operation.PUSH, Operation.DELETE, Operation.PUSH_WHOLE_SECRET}
    assert Operation.SUBSCRIBE in CustomResourceStore.OPERATIONS
