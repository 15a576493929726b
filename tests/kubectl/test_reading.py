"""Creating objects and reading them in every form."""

from __future__ import annotations

import json

import pytest
import yaml

from kuberun.testing.kubectl import Kubectl, config_map, gadget

pytestmark = pytest.mark.live


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("secret", "generic", "s", "--from-literal=a=b"), "secret/s"),
        (("secret", "docker-registry", "r", "--docker-username=u", "--docker-password=p"), "secret/r"),
        (("configmap", "c", "--from-literal=a=b"), "configmap/c"),
        (("serviceaccount", "sa"), "serviceaccount/sa"),
        (("role", "r", "--verb=get", "--resource=secrets"), "role.rbac.authorization.k8s.io/r"),
        (("rolebinding", "rb", "--role=r", "--serviceaccount=x:y"), "rolebinding.rbac.authorization.k8s.io/rb"),
        (("deployment", "d", "--image=nginx", "--replicas=2", "--port=80"), "deployment.apps/d"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else "",
)
def test_create_commands(kubectl: Kubectl, arguments: tuple[str, ...], name: str) -> None:
    """Most of these send protobuf, as every typed Go client does."""
    assert kubectl("create", *arguments) == f"{name} created\n"
    assert kubectl("get", name, "--output", "name") == f"{name}\n"


def test_objects_that_a_typed_client_wrote_read_like_json(kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "d", "--image=nginx", "--replicas=2", "--port=80")

    spec = kubectl.json("get", "deployment", "d")["spec"]

    assert spec["replicas"] == 2
    assert spec["selector"] == {"matchLabels": {"app": "d"}}
    container = spec["template"]["spec"]["containers"][0]
    assert (container["name"], container["image"], container["ports"][0]["containerPort"]) == ("nginx", "nginx", 80)


def test_create_twice_says_already_exists(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "c")

    assert '"c" already exists' in kubectl.fails("create", "configmap", "c")


def test_get_prints_the_columns_of_the_definition(gadgets: Kubectl) -> None:
    status = {"conditions": [{"type": "Ready", "status": "True"}]}
    gadgets("apply", "--filename", "-", stdin=gadget(size=3, spec={"colour": "red"}))
    gadgets("patch", "gadget", "w", "--subresource=status", "--type=merge", "--patch", json.dumps({"status": status}))

    narrow = [line.split() for line in gadgets("get", "gadgets").splitlines()]
    wide = [line.split() for line in gadgets("get", "gd", "w", "--output", "wide").splitlines()]

    assert narrow == [["NAME", "SIZE", "READY"], ["w", "3", "True"]]
    assert wide == [["NAME", "SIZE", "COLOUR", "READY"], ["w", "3", "red", "True"]]


def test_get_in_every_output_format(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "c", "--from-literal=key=value")

    assert yaml.safe_load(kubectl("get", "cm", "c", "--output", "yaml"))["data"] == {"key": "value"}
    assert kubectl.json("get", "cm", "c")["data"] == {"key": "value"}
    assert kubectl("get", "cm", "c", "--output", "jsonpath={.data.key}") == "value"
    assert kubectl("get", "cm", "c", "--output", "name") == "configmap/c\n"
    assert kubectl("get", "cm", "c", "--no-headers").split()[:2] == ["c", "1"]
    assert kubectl("get", "cm", "c", "--output", "custom-columns=N:.metadata.name").split() == ["N", "c"]


def test_get_by_labels_and_across_namespaces(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "a")
    kubectl("create", "configmap", "b")
    kubectl("label", "configmap", "a", "tier=gold")

    assert kubectl("get", "cm", "--selector", "tier=gold", "--output", "name") == "configmap/a\n"
    everywhere = kubectl("get", "cm", "--all-namespaces", "--field-selector", "metadata.name=b", "--no-headers")
    assert [kubectl.namespace, "b"] in [line.split()[:2] for line in everywhere.splitlines()]


def test_get_in_chunks_is_complete(kubectl: Kubectl) -> None:
    documents = "---\n".join(config_map(f"c{n:02}") for n in range(25))
    kubectl("create", "--filename", "-", stdin=documents)

    names = kubectl("get", "cm", "--chunk-size=4", "--output", "name").splitlines()

    assert len([name for name in names if name.startswith("configmap/c")]) == 25


def test_a_missing_object_is_reported_as_not_found(kubectl: Kubectl) -> None:
    assert 'Error from server (NotFound): secrets "nope" not found' in kubectl.fails("get", "secret", "nope")
    assert "the server doesn't have a resource type" in kubectl.fails("get", "nopes")


def test_describe_shows_the_object(gadgets: Kubectl) -> None:
    gadgets("apply", "--filename", "-", stdin=gadget(size=7))
    gadgets("create", "secret", "generic", "s", "--from-literal=a=12345")

    assert "Size:  7" in gadgets("describe", "gadget", "w")
    described = gadgets("describe", "secret", "s")
    assert "a:  5 bytes" in described
    assert "12345" not in described
