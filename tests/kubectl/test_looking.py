"""What kubectl finds out about a server: versions, kinds, explanations."""

from __future__ import annotations

import pytest

from kuberun.testing.kubectl import Kubectl, widget

pytestmark = pytest.mark.live


def test_version_and_cluster_info(kubectl: Kubectl) -> None:
    assert "Server Version: v1." in kubectl("version")
    assert "is running at" in kubectl("cluster-info")


def test_api_resources_list_short_names_and_kinds(widgets: Kubectl) -> None:
    listed = [line.split() for line in widgets("api-resources", "--no-headers").splitlines()]

    assert ["configmaps", "cm", "v1", "true", "ConfigMap"] in listed
    assert ["widgets", "wd", "kubectl.example.com/v1", "true", "Widget"] in listed
    assert ["namespaces", "ns", "v1", "false", "Namespace"] in listed


def test_api_versions(widgets: Kubectl) -> None:
    versions = widgets("api-versions").split()

    assert {"v1", "apps/v1", "rbac.authorization.k8s.io/v1", "kubectl.example.com/v1"} <= set(versions)


def test_categories_gather_kinds(widgets: Kubectl) -> None:
    widgets("create", "--filename", "-", stdin=widget())

    assert "widget.kubectl.example.com/w" in widgets("get", "all-widgets", "--output", "name")


def test_explain_describes_fields(widgets: Kubectl) -> None:
    text = widgets("explain", "widget.spec.size")

    assert "FIELD: size <integer>" in text
    assert "How large it is." in text


def test_explain_recursive_lists_the_tree(widgets: Kubectl) -> None:
    text = widgets("explain", "widgets", "--recursive")

    assert "colour\t<string>" in text
    assert "conditions\t<[]Object>" in text


@pytest.mark.parametrize("path", ["secret.data", "configmap", "deployment.spec.replicas", "namespace.metadata.labels"])
def test_explain_knows_built_in_kinds(kubectl: Kubectl, path: str) -> None:
    assert "VERSION:" in kubectl("explain", path)
