"""The official Python client against the server: typed, custom-object and dynamic calls, and watches."""

from __future__ import annotations

import base64
import importlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubebase.testing.servers import ApiServer

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the client's own imports warn
    kubernetes: Any = importlib.import_module("kubernetes")
    """Any, because its annotations call every field of every object optional."""
    dynamic: Any = importlib.import_module("kubernetes.dynamic")
client, config, watch = kubernetes.client, kubernetes.config, kubernetes.watch
ApiException = client.exceptions.ApiException

pytestmark = pytest.mark.live

GROUP, VERSION, PLURAL = "official.example.com", "v1", "officials"
DEFINITION: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"{PLURAL}.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"plural": PLURAL, "singular": "official", "kind": "Official"},
        "versions": [
            {
                "name": VERSION,
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {"type": "object", "properties": {"size": {"type": "integer"}}},
                            "status": {"type": "object", "properties": {"done": {"type": "boolean"}}},
                        },
                    }
                },
            }
        ],
    },
}


@pytest.fixture
def api_client(api_server: ApiServer) -> Iterator[Any]:
    settings = client.Configuration()
    config.load_kube_config(str(api_server.kubeconfig), client_configuration=settings)
    with client.ApiClient(settings) as made:
        yield made


@pytest.fixture
def core(api_client: Any) -> Any:
    return client.CoreV1Api(api_client)


@pytest.fixture
def officials(api_client: Any) -> Any:
    """Custom objects, on a server that serves officials."""
    definitions = client.ApiextensionsV1Api(api_client)
    name = DEFINITION["metadata"]["name"]
    if name not in {item.metadata.name for item in definitions.list_custom_resource_definition().items}:
        definitions.create_custom_resource_definition(DEFINITION)
    for event in watch.Watch().stream(
        definitions.list_custom_resource_definition,
        field_selector=f"metadata.name={name}",
        timeout_seconds=20,
    ):
        conditions = event["object"].status.conditions or []
        if any(one.type == "Established" and one.status == "True" for one in conditions):
            break
    return client.CustomObjectsApi(api_client)


def official(name: str = "g", size: int = 1) -> dict[str, Any]:
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Official", "metadata": {"name": name}, "spec": {"size": size}}


def test_the_version_is_readable(api_client: Any) -> None:
    assert client.VersionApi(api_client).get_code().major == "1"


def test_a_secret_from_birth_to_death(core: Any, namespace: str) -> None:
    body = client.V1Secret(metadata=client.V1ObjectMeta(name="s"), string_data={"user": "admin"})

    created = core.create_namespaced_secret(namespace, body)
    patched = core.patch_namespaced_secret("s", namespace, {"metadata": {"labels": {"a": "b"}}})
    listed = core.list_namespaced_secret(namespace, label_selector="a=b")
    deleted = core.delete_namespaced_secret("s", namespace)

    assert base64.b64decode(created.data["user"]) == b"admin"
    assert (created.type, patched.metadata.labels) == ("Opaque", {"a": "b"})
    assert [item.metadata.name for item in listed.items] == ["s"]
    assert (deleted.status, deleted.details.name) == ("Success", "s")


def test_failures_carry_status_and_reason(core: Any, namespace: str) -> None:
    with pytest.raises(ApiException) as missing:
        core.read_namespaced_config_map("nope", namespace)
    with pytest.raises(ApiException) as nowhere:
        core.create_namespaced_config_map(
            "no-such-namespace", client.V1ConfigMap(metadata=client.V1ObjectMeta(name="c"))
        )

    assert (missing.value.status, missing.value.reason) == (404, "Not Found")
    assert '"namespaces \\"no-such-namespace\\" not found"' in nowhere.value.body


def test_a_stale_update_conflicts(core: Any, namespace: str) -> None:
    made = core.create_namespaced_config_map(namespace, client.V1ConfigMap(metadata=client.V1ObjectMeta(name="c")))
    core.patch_namespaced_config_map("c", namespace, {"data": {"a": "1"}})

    made.data = {"b": "2"}
    with pytest.raises(ApiException) as caught:
        core.replace_namespaced_config_map("c", namespace, made)

    assert caught.value.status == 409


def test_pages_of_a_list(core: Any, namespace: str) -> None:
    for number in range(7):
        core.create_namespaced_config_map(
            namespace, client.V1ConfigMap(metadata=client.V1ObjectMeta(name=f"c{number}"))
        )

    names: list[str] = []
    token = None
    while True:
        page = core.list_namespaced_config_map(namespace, limit=3, _continue=token)
        names += [item.metadata.name for item in page.items]
        token = page.metadata._continue
        if not token:
            break

    assert [name for name in names if name.startswith("c")] == [f"c{number}" for number in range(7)]


def test_a_watch_sees_every_change_in_order(core: Any, namespace: str) -> None:
    version = core.list_namespaced_config_map(namespace).metadata.resource_version
    core.create_namespaced_config_map(namespace, client.V1ConfigMap(metadata=client.V1ObjectMeta(name="c")))
    core.patch_namespaced_config_map("c", namespace, {"data": {"a": "1"}})
    core.delete_namespaced_config_map("c", namespace)

    seen = []
    watching = watch.Watch()
    for event in watching.stream(
        core.list_namespaced_config_map, namespace, resource_version=version, timeout_seconds=20
    ):
        if event["object"].metadata.name == "c":
            seen.append(event["type"])
        if len(seen) == 3:
            watching.stop()

    assert seen == ["ADDED", "MODIFIED", "DELETED"]


def test_custom_objects_with_status(officials: Any, namespace: str) -> None:
    made = officials.create_namespaced_custom_object(GROUP, VERSION, namespace, PLURAL, official())
    officials.patch_namespaced_custom_object(GROUP, VERSION, namespace, PLURAL, "g", {"spec": {"size": 2}})
    officials.patch_namespaced_custom_object_status(GROUP, VERSION, namespace, PLURAL, "g", {"status": {"done": True}})

    found = officials.get_namespaced_custom_object(GROUP, VERSION, namespace, PLURAL, "g")

    assert (made["metadata"]["generation"], found["metadata"]["generation"]) == (1, 2)
    assert (found["spec"], found["status"]) == ({"size": 2}, {"done": True})


def test_the_dynamic_client_discovers_and_applies(
    api_client: Any, officials: Any, namespace: str, tmp_path: Path
) -> None:
    del officials
    discovering = dynamic.DynamicClient(api_client, cache_file=str(tmp_path / "cache"))
    resource = discovering.resources.get(api_version=f"{GROUP}/{VERSION}", kind="Official")

    applied = resource.server_side_apply(namespace=namespace, body=official(size=5), name="g", field_manager="suite")

    assert applied.spec.size == 5
    assert [item.metadata.name for item in resource.get(namespace=namespace).items] == ["g"]


def test_access_reviews(api_client: Any, namespace: str) -> None:
    attributes = client.V1ResourceAttributes(verb="get", resource="secrets", namespace=namespace)
    spec = client.V1SubjectAccessReviewSpec(user="stranger", resource_attributes=attributes)

    answer = client.AuthorizationV1Api(api_client).create_subject_access_review(client.V1SubjectAccessReview(spec=spec))

    assert answer.status.allowed is False


def test_a_requested_token_is_recognised(api_client: Any, core: Any, namespace: str) -> None:
    core.create_namespaced_service_account(namespace, client.V1ServiceAccount(metadata=client.V1ObjectMeta(name="sa")))
    request = client.AuthenticationV1TokenRequest(spec=client.V1TokenRequestSpec(audiences=["vault"]))
    token = core.create_namespaced_service_account_token("sa", namespace, request).status.token
    reviews = client.AuthenticationV1Api(api_client)

    good = reviews.create_token_review(
        client.V1TokenReview(spec=client.V1TokenReviewSpec(token=token, audiences=["vault"]))
    )
    other = reviews.create_token_review(client.V1TokenReview(spec=client.V1TokenReviewSpec(token=token)))

    assert (good.status.authenticated, good.status.audiences) == (True, ["vault"])
    assert good.status.user.username == f"system:serviceaccount:{namespace}:sa"
    assert not other.status.authenticated
