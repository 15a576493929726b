"""All four types of patches, edit, label, status."""

from __future__ import annotations

import json

import pytest

from kuberun.testing.kubectl import Kubectl, config_map, gadget

pytestmark = pytest.mark.live


def test_a_merge_patch(gadgets: Kubectl) -> None:
    gadgets("apply", "--filename", "-", stdin=gadget(spec={"colour": "red"}))

    gadgets("patch", "gadget", "w", "--type=merge", "--patch", '{"spec":{"colour":null,"size":5}}')

    assert gadgets.json("get", "gadget", "w")["spec"] == {"size": 5}


def test_a_json_patch(gadgets: Kubectl) -> None:
    gadgets("apply", "--filename", "-", stdin=gadget(spec={"parts": ["a", "b"]}))
    patch = [{"op": "test", "path": "/spec/size", "value": 1}, {"op": "add", "path": "/spec/parts/1", "value": "x"}]

    gadgets("patch", "gadget", "w", "--type=json", "--patch", json.dumps(patch))

    assert gadgets.json("get", "gadget", "w")["spec"]["parts"] == ["a", "x", "b"]


def test_a_strategic_patch_merges_lists_by_their_key(kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "d", "--image=one")
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "extra", "image": "two"}]}}}}

    kubectl("patch", "deployment", "d", "--patch", json.dumps(patch))

    containers = kubectl.json("get", "deployment", "d")["spec"]["template"]["spec"]["containers"]
    assert sorted(container["name"] for container in containers) == ["extra", "one"]


def test_custom_objects_take_no_strategic_patch(gadgets: Kubectl) -> None:
    gadgets("apply", "--filename", "-", stdin=gadget())

    said = gadgets.fails("patch", "gadget", "w", "--type=strategic", "--patch", "{}")

    assert "strategic-merge-patch+json is not supported" in said


def test_edit_sends_a_patch_of_what_changed(kubectl: Kubectl) -> None:
    kubectl("create", "--filename", "-", stdin=config_map("c", a="before"))

    said = kubectl("edit", "configmap", "c", KUBE_EDITOR="sed -i s/before/after/")

    assert said == "configmap/c edited\n"
    assert kubectl.json("get", "cm", "c")["data"] == {"a": "after"}


def test_label_and_annotate(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "c")
    kubectl("label", "configmap", "c", "a=1")

    assert "--overwrite is false" in kubectl.fails("label", "configmap", "c", "a=2")
    kubectl("label", "configmap", "c", "a=2", "--overwrite")
    kubectl("annotate", "configmap", "c", "note=hello")
    kubectl("label", "configmap", "c", "a-")

    metadata = kubectl.json("get", "cm", "c")["metadata"]
    assert "labels" not in metadata
    assert metadata["annotations"] == {"note": "hello"}


def test_status_is_a_subresource_of_its_own(gadgets: Kubectl) -> None:
    gadgets("apply", "--filename", "-", stdin=gadget())
    status = {"conditions": [{"type": "Ready", "status": "True"}]}

    gadgets("patch", "gadget", "w", "--subresource=status", "--type=merge", "--patch", json.dumps({"status": status}))
    gadgets("patch", "gadget", "w", "--type=merge", "--patch", '{"status":null,"spec":{"size":9}}')

    obj = gadgets.json("get", "gadget", "w")
    assert (obj["status"], obj["spec"]["size"], obj["metadata"]["generation"]) == (status, 9, 2)
