"""Namespaced and cluster stores, both authentication scopes, gates on and off, with templates and refreshes (R144).

A store that its provider rejects is not ready, although the backend would answer; the gate decides whether it is read.
It is unknown whether a store works with the credentials of its users, and an unknown state does not close the gate.
"""

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from eso_api.v2.secretstore import CLUSTER_SECRET_STORE_V2, SECRET_STORE_V2
from eso_testkit.operator.operators import BACKEND
from eso_testkit.operator.scenes import Scene
from eso_wire import codec, paths
from eso_wire.values import Validation, ValidationState
from kubebase.meta import JsonObject, Resource

pytestmark = [pytest.mark.live, pytest.mark.asyncio(loop_scope="module")]

STORES_V2 = SECRET_STORE_V2.resource()
CLUSTER_STORES_V2 = CLUSTER_SECRET_STORE_V2.resource()
BOTH = {"user": "user", "password": "db"}
URL = {"template": {"data": {"url": "{{ .user }}:{{ .password }}"}}}
REF = {"kind": "Backend", "name": "config"}

Fields = Callable[[Scene], JsonObject]


def namespaced(_: Scene) -> JsonObject:
    return {"providerConfig": {"providerRef": REF}}


def pinned(stage: Scene) -> JsonObject:
    here = {"providerRef": {**REF, "namespace": stage.bench.namespace}}
    return {"providerConfig": here, "authenticationScope": "ProviderNamespace"}


def of_the_caller(_: Scene) -> JsonObject:
    return {"providerConfig": {"providerRef": REF}, "authenticationScope": "ManifestNamespace"}


@contextmanager
def disliked(stage: Scene) -> Iterator[None]:
    """Every validation fails; reads do not."""
    refused = codec.to_validate_response(Validation(ValidationState.INVALID)).SerializeToString()
    stage.provider.nonsense = lambda method, _: refused if method == paths.VALIDATE else None
    try:
        yield
    finally:
        stage.provider.nonsense = None


@pytest.mark.parametrize(
    ("resource", "fields", "gate", "served_while_disliked"),
    [
        pytest.param(STORES_V2, namespaced, "Enabled", False, id="namespaced, gate on"),
        pytest.param(STORES_V2, namespaced, "Disabled", True, id="namespaced, gate off"),
        pytest.param(CLUSTER_STORES_V2, pinned, "Enabled", False, id="cluster, its own credentials, gate on"),
        pytest.param(CLUSTER_STORES_V2, pinned, "Disabled", True, id="cluster, its own credentials, gate off"),
        pytest.param(CLUSTER_STORES_V2, of_the_caller, "Enabled", True, id="cluster, its users' credentials, gate on"),
        pytest.param(CLUSTER_STORES_V2, of_the_caller, "Disabled", True, id="cluster, users' credentials, gate off"),
    ],
)
async def test_every_kind_of_store_serves_templates_and_refreshes_and_heeds_its_gate(
    stage: Scene, resource: Resource, fields: Fields, gate: str, served_while_disliked: bool
) -> None:
    """R62, R80, R89, R112, R115, R125, R126."""
    name = f"matrix-{secrets.token_hex(4)}"
    reference = {"apiVersion": resource.api_version, "kind": resource.kind, "name": name}
    stage.backend(user="u1", db="v1")
    await stage.bench.create(BACKEND.resource(), "config", spec={"url": "https://backend"})
    await stage.bench.create(resource, name, spec={**fields(stage), "gatingPolicy": gate, "refreshInterval": "1s"})
    try:
        await stage.sync("plain", BOTH, secretStoreRef=reference, refreshInterval="1s")
        await stage.sync("templated", BOTH, secretStoreRef=reference, refreshInterval="1s", target=URL)
        stage.backend(db="v2")
        await stage.until("plain", {"user": "u1", "password": "v2"})
        await stage.until("templated", {"url": "u1:v2"})

        with disliked(stage):
            shown = "Unknown" if fields is of_the_caller else "False"
            await stage.bench.ready(resource, name, lambda condition: condition.status == shown)
            await stage.apply("late", BOTH, secretStoreRef=reference)
            if served_while_disliked:
                await stage.ready("late")
            else:
                await stage.broken("late", name)
                assert await stage.secret("late") is None

        await stage.ready("late")
        assert await stage.data("plain") == {"user": "u1", "password": "v2"}
    finally:
        await stage.bench.delete(resource, name)
