"""An API server's refusal of an object contains none of its values: on localkube and on kube-apiserver."""

from collections.abc import AsyncIterator

import pytest

from kubebase.meta import JsonObject, Kind, Resource, raw
from kubebase.testing.servers import ApiServer
from kuberun.client import Client
from kuberun.config import load
from kuberun.errors import ApiError
from kuberun.testing.builders import CONFIG_MAPS, SECRETS
from kuberun.transport import AiohttpTransport

pytestmark = pytest.mark.live

PLANTED = "PLANTED0815"
SECRET, CONFIG = raw(SECRETS), raw(CONFIG_MAPS)
ROLE = raw(Resource("rbac.authorization.k8s.io", "v1", "roles", "Role"))
DOCKER = {"type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": PLANTED}}


@pytest.fixture
async def client(api_server: ApiServer) -> AsyncIterator[Client]:
    client = Client(AiohttpTransport(load(api_server.kubeconfig)))
    yield client
    await client.close()


def labelled(key: str, value: str) -> JsonObject:
    return {"metadata": {"labels": {key: value}}}


REFUSED = [
    pytest.param(SECRET, {"data": {f"{PLANTED} b": "eHg="}}, id="a key with a blank"),
    pytest.param(SECRET, {"data": {f"a/{PLANTED}": "eHg="}}, id="a key with a slash"),
    pytest.param(SECRET, {"data": {"a": f"{PLANTED}!"}}, id="data that is no base64"),
    pytest.param(SECRET, {"data": {"a": {PLANTED: PLANTED}}}, id="data that is a map"),
    pytest.param(SECRET, {"stringData": {f"{PLANTED} b": PLANTED}}, id="a key of text"),
    pytest.param(SECRET, DOCKER, id="content that does not fit the type"),
    pytest.param(SECRET, {"stringData": {"a": PLANTED * 100_000}}, id="too large"),
    pytest.param(SECRET, labelled("a", f"{PLANTED} b"), id="the value of a label"),
    pytest.param(SECRET, labelled("a", PLANTED * 8), id="a long label"),
    pytest.param(SECRET, labelled(f"{PLANTED} b", "a"), id="the key of a label"),
    pytest.param(SECRET, labelled(f"{PLANTED}/b", "a"), id="the prefix of a label"),
    pytest.param(SECRET, {"metadata": {"annotations": {f"{PLANTED} b": "a"}}}, id="the key of an annotation"),
    pytest.param(SECRET, {"metadata": {"finalizers": [f"{PLANTED} b"]}}, id="a finalizer"),
    pytest.param(CONFIG, {"data": {f"{PLANTED} b": "a"}}, id="a key of a ConfigMap"),
    pytest.param(CONFIG, {"data": {"a": {PLANTED: PLANTED}}}, id="a map in a ConfigMap"),
    pytest.param(ROLE, {"rules": [{"verbs": [PLANTED], "apiGroups": [PLANTED]}]}, id="a rule without resources"),
]


@pytest.mark.parametrize("verb", ["create", "apply"])
@pytest.mark.parametrize(("kind", "content"), REFUSED)
async def test_a_refusal_repeats_nothing_of_the_object(
    client: Client, namespace: str, kind: Kind[JsonObject], content: JsonObject, verb: str
) -> None:
    refused = {**content, "metadata": {**content.get("metadata", {}), "name": "refused", "namespace": namespace}}
    write = client.create(kind, refused) if verb == "create" else client.apply(kind, refused, field_manager="canary")

    with pytest.raises(ApiError) as raised:
        await write

    assert PLANTED.lower() not in f"{raised.value} {raised.value!r} {raised.value.details!r}".lower()
    assert raised.value.message
