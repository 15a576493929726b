"""Information that kubectl shows about a server: versions, kinds, explanations."""

from __future__ import annotations

import pytest

from kuberun.testing.kubectl import Kubectl, gadget

pytestmark = pytest.mark.live


def test_version_and_cluster_info(kubectl: Kubectl) -> None:
    assert "Server Version: v1." in kubectl("version")
    assert "is running at" in kubectl("cluster-info")


def test_api_resources_list_short_names_and_kinds(gadgets: Kubectl) -> None:
    listed = [line.split() for line in gadgets("api-resources", "--no-headers").splitlines()]

    assert ["configmaps", "cm", "v1", "true", "ConfigMap"] in listed
    assert ["gadgets", "gd", "kubectl.example.com/v1", "true", "Gadget"] in listed
    assert ["namespaces", "ns", "v1", "false", "Namespace"] in listed


def test_api_versions(gadgets: Kubectl) -> None:
    versions = gadgets("api-versions").split()

    assert {"v1", "apps/v1", "rbac.authorization.k8s.io/v1", "kubectl.example.com/v1"} <= set(versions)


def test_categories_gather_kinds(gadgets: Kubectl) -> None:
    gadgets("create", "--filename", "-", stdin=gadget())

    assert "gadget.kubectl.example.com/w" in gadgets("get", "all-gadgets", "--output", "name")


def test_explain_describes_fields(explained: Kubectl) -> None:
    text = explained("explain", "gadget.spec.size")

    assert "FIELD: size <integer>" in text
    assert "How large it is." in text


def test_explain_recursive_lists_the_tree(explained: Kubectl) -> None:
    text = explained("explain", "gadgets", "--recursive")

    assert "colour\t<string>" in text
    assert "conditions\t<[]Object>" in text


@pytest.mark.parametrize("path", ["secret.data", "configmap", "deployment.spec.replicas", "namespace.metadata.labels"])
def test_explain_knows_built_in_kinds(kubectl: Kubectl, path: str) -> None:
    assert "VERSION:" in kubectl("explain", path)
