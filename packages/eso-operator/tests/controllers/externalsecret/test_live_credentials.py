"""Whose Secrets a store may read for its credentials, seen from the provider that gets them. On a live API server."""

import base64
import secrets
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from eso_api.v2.secretstore import CLUSTER_SECRET_STORE_V2, SECRET_STORE_V2
from eso_testkit.operator.operators import BACKEND
from eso_testkit.operator.scenes import Scene
from kubebase.meta import JsonObject, Resource
from kuberun.testing.builders import NAMESPACES, SECRETS

pytestmark = [pytest.mark.live, pytest.mark.asyncio(loop_scope="module")]

ONE = {"password": "db"}
BACKENDS = BACKEND.resource()
STORES_V2 = SECRET_STORE_V2.resource()
CLUSTER_STORES_V2 = CLUSTER_SECRET_STORE_V2.resource()
TOKEN = {"name": "token", "key": "token"}
REF = {"kind": "Backend", "name": "config"}


@pytest_asyncio.fixture(loop_scope="module")
async def platform(stage: Scene) -> AsyncIterator[str]:
    """Another team's namespace, with a configuration and the token that it names."""
    name = f"platform-{secrets.token_hex(4)}"
    await stage.bench.api.post(NAMESPACES.path(), {"metadata": {"name": name}})
    await put(stage, SECRETS, "token", name, data={"token": base64.b64encode(b"of the platform").decode()})
    await put(stage, BACKENDS, "config", name, spec={"url": "https://platform", "auth": {"tokenSecretRef": TOKEN}})
    yield name
    await stage.bench.api.delete(NAMESPACES.path("", name))


async def put(stage: Scene, resource: Resource, name: str, namespace: str, **fields: JsonObject) -> None:
    body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, **fields}
    answer = await stage.bench.api.post(resource.path(namespace), body)
    assert answer.status == 201, answer.body


async def own_configuration(stage: Scene, **token: str) -> None:
    """A configuration in the team's namespace, and a token for it."""
    await stage.put_secret("token", {"token": "of the team"})
    reference = {"tokenSecretRef": {**TOKEN, **token}}
    await stage.bench.create(BACKENDS, "config", spec={"url": "https://team", "auth": reference})


def through(resource: Resource, name: str) -> JsonObject:
    return {"apiVersion": resource.api_version, "kind": resource.kind, "name": name}


@pytest.mark.parametrize("escape", ["the token", "the configuration"])
async def test_a_namespaced_store_reads_nothing_of_another_namespace(stage: Scene, platform: str, escape: str) -> None:
    """R114, R119, R130: neither the Secret nor the provider's own object; nothing is sent."""
    stage.backend(db="v1")
    there = {"namespace": platform}
    await own_configuration(stage, **(there if escape == "the token" else {}))
    ref = {**REF, **(there if escape == "the configuration" else {})}
    await stage.bench.create(STORES_V2, "store", spec={"providerConfig": {"providerRef": ref}})

    await stage.apply("db", ONE, secretStoreRef=through(STORES_V2, "store"))

    await stage.bench.ready(STORES_V2, "store", lambda condition: condition.reason == "CrossNamespaceDenied")
    await stage.broken("db", "store")
    assert stage.provider.credentials == []
    assert await stage.secret("db") is None


@pytest.mark.parametrize(
    ("scope", "sent"),
    [
        pytest.param("ProviderNamespace", b"of the platform", id="R131 its own credentials, of another namespace"),
        pytest.param("ManifestNamespace", b"of the team", id="R115 those of whoever uses it"),
    ],
)
async def test_a_cluster_store_sends_the_credentials_of_its_scope(
    stage: Scene, platform: str, scope: str, sent: bytes
) -> None:
    """R62, R89, R119."""
    stage.backend(db="v1")
    await own_configuration(stage)
    ref = {**REF, **({"namespace": platform} if scope == "ProviderNamespace" else {})}
    name = f"shared-{secrets.token_hex(4)}"
    spec = {"providerConfig": {"providerRef": ref}, "authenticationScope": scope}
    await stage.bench.create(CLUSTER_STORES_V2, name, spec=spec)
    try:
        await stage.sync("db", ONE, secretStoreRef=through(CLUSTER_STORES_V2, name))
    finally:
        await stage.bench.delete(CLUSTER_STORES_V2, name)

    assert await stage.data("db") == {"password": "v1"}
    assert set(stage.provider.credentials) == {(sent,)}
