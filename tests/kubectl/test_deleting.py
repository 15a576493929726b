"""delete with finalizers, owners, labels and namespaces."""

from __future__ import annotations

import pytest
import yaml

from kuberun.testing.kubectl import Kubectl

pytestmark = pytest.mark.live


def test_delete_waits_for_finalizers(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "c")
    kubectl("patch", "configmap", "c", "--type=merge", "--patch", '{"metadata":{"finalizers":["example.com/hold"]}}')
    deleting = kubectl.start("delete", "configmap", "c")
    kubectl("wait", "configmap/c", "--for=jsonpath={.metadata.deletionTimestamp}", "--timeout=60s")

    kubectl("patch", "configmap", "c", "--type=merge", "--patch", '{"metadata":{"finalizers":null}}')

    assert deleting.wait(40) == 0
    assert deleting.stdout is not None
    deleting.stdout.close()
    assert "not found" in kubectl.fails("get", "configmap", "c")


def owned(kubectl: Kubectl, name: str) -> str:
    """A ConfigMap that belongs to the ConfigMap `owner`."""
    uid = kubectl("get", "configmap", "owner", "--output", "jsonpath={.metadata.uid}")
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid, "blockOwnerDeletion": True}
    metadata = {"name": name, "ownerReferences": [reference]}
    return yaml.safe_dump({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})


@pytest.mark.parametrize("cascade", ["background", "foreground"])
def test_delete_takes_dependents_along(kubectl: Kubectl, cascade: str) -> None:
    kubectl("create", "configmap", "owner")
    kubectl("create", "--filename", "-", stdin=owned(kubectl, "child"))

    kubectl("delete", "configmap", "owner", f"--cascade={cascade}")

    kubectl("wait", "configmap/child", "--for=delete", "--timeout=60s")
    assert "not found" in kubectl.fails("get", "configmap", "child")


def test_delete_can_leave_dependents_behind(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "owner")
    kubectl("create", "--filename", "-", stdin=owned(kubectl, "child"))

    kubectl("delete", "configmap", "owner", "--cascade=orphan")

    kubectl("wait", "configmap/owner", "--for=delete", "--timeout=60s")
    assert "ownerReferences" not in kubectl.json("get", "configmap", "child")["metadata"]


def test_delete_many_by_label(kubectl: Kubectl) -> None:
    for name in ("a", "b", "c"):
        kubectl("create", "configmap", name)
    kubectl("label", "configmap", "a", "b", "drop=yes")

    kubectl("delete", "configmap", "--selector", "drop=yes")

    assert "configmap/c" in kubectl("get", "configmap", "--output", "name").splitlines()
    assert "not found" in kubectl.fails("get", "configmap", "a")


def test_delete_a_namespace_with_what_is_in_it(kubectl: Kubectl) -> None:
    kubectl("create", "namespace", f"{kubectl.namespace}-inner")
    kubectl("create", "secret", "generic", "s", "--namespace", f"{kubectl.namespace}-inner")

    kubectl("delete", "namespace", f"{kubectl.namespace}-inner", "--timeout=90s")

    assert "not found" in kubectl.fails("get", "namespace", f"{kubectl.namespace}-inner")
