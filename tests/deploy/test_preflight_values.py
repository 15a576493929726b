"""What `eso preflight` says about the chart is true of it: values, names, selectors and CRDs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from eso_api.kinds import provider_kinds
from eso_tools.preflight import ourchart
from eso_tools.preflight.chartvalues import VALUES
from eso_tools.preflight.ourchart import Installation, installations
from eso_tools.preflight.snapshot import Owner, Release, Snapshot, Workload, WorkloadRole
from kubebase.meta import JsonObject, ObjectKey
from kuberun.testing.helm import Helm, find_helm

CHART: Final = Path(__file__).resolve().parents[2] / "deploy" / "charts" / "external-secrets"
SCHEMA: Final = json.loads((CHART / "values.schema.json").read_text())
NAMESPACE: Final = "secrets"
IMAGE: Final = {"image": {"registry": "registry.example.com/eso"}}


def accepts(schema: dict[str, Any], path: list[str]) -> bool:
    """Return whether a value at this path may be set."""
    if not path:
        return True
    known = schema.get("properties", {})
    if path[0] in known:
        return accepts(known[path[0]], path[1:])
    return schema.get("additionalProperties") is not False


def test_the_chart_accepts_every_value_that_the_report_knows() -> None:
    assert [path for path in VALUES if not accepts(SCHEMA, path.split("."))] == []


def test_the_chart_refuses_a_value_that_neither_chart_knows() -> None:
    assert not accepts(SCHEMA, ["crds", "madeUp"])
    assert not accepts(SCHEMA, ["madeUp"])


def test_the_report_renders_names_with_the_template_of_the_chart() -> None:
    """The wheel of `eso` has a copy of it: copy the file again after a change."""
    copy = Path(ourchart.__file__).with_name(ourchart.NAMES)

    assert copy.read_text() == (CHART / "templates" / "_names.tpl").read_text()


# --- as Helm renders it -----------------------------------------------------------------------------------------------


@pytest.fixture
def helm(request: pytest.FixtureRequest, tmp_path: Path) -> Helm:
    binary = find_helm()
    if binary is None and request.config.getoption("--apiserver") != "kube":
        pytest.skip("no Helm in the cache: `make test-cluster` builds one (it needs Go once)")
    if binary is None:
        pytest.fail("no Helm in the cache: `make test-cluster` builds one (it needs Go once)", pytrace=False)
    return Helm(binary, tmp_path, namespace=NAMESPACE)


def expected(release: str, values: JsonObject) -> Installation:
    """Return what the report expects of a release with these values."""
    owner = Owner(NAMESPACE, release)
    operator = Workload(ObjectKey(NAMESPACE, "any"), WorkloadRole.GO_OPERATOR, owner=owner)
    (found,) = installations(Snapshot(workloads=(operator,), releases=(Release(owner, values=values),)))
    return found


LONG: Final = "a-name-that-is-longer-than-the-sixty-three-characters-of-a-label"


@pytest.mark.live
@pytest.mark.parametrize(
    ("release", "values"),
    [
        pytest.param("external-secrets", {}, id="the name of the chart"),
        pytest.param("eso", {}, id="another name"),
        pytest.param("my-external-secrets-2", {}, id="a name that contains the chart's"),
        pytest.param("eso", {"nameOverride": "operator"}, id="nameOverride"),
        pytest.param("eso", {"nameOverride": "eso"}, id="nameOverride in the name of the release"),
        pytest.param("eso", {"nameOverride": LONG}, id="a long nameOverride"),
        pytest.param("eso", {"fullnameOverride": "full"}, id="fullnameOverride"),
        pytest.param("eso", {"fullnameOverride": LONG, "nameOverride": "short"}, id="both, and one is long"),
        pytest.param("eso", {"namespaceOverride": "elsewhere", "nameOverride": ""}, id="namespaceOverride"),
        pytest.param("eso", {"commonLabels": {"team": "a"}, "podLabels": {"tier": "b"}}, id="more labels"),
    ],
)
def test_names_and_selectors_of_the_report_are_those_that_helm_renders(
    helm: Helm, release: str, values: JsonObject
) -> None:
    rendered = helm.template(release, CHART, **IMAGE, **values, installCRDs=False)
    (deployment,) = (each for each in rendered if each["kind"] == "Deployment")

    report = expected(release, values)

    metadata = deployment["metadata"]
    assert (report.deployment.namespace, report.deployment.name) == (metadata["namespace"], metadata["name"])
    assert report.selector == deployment["spec"]["selector"]


@pytest.mark.live
@pytest.mark.parametrize(
    "values",
    [
        pytest.param({}, id="no provider"),
        pytest.param({"providers": {"vault": {"enabled": True}, "aws": {"enabled": True}}}, id="two providers"),
        pytest.param({"providers": {"shared": {"enabled": True, "names": ["gcp", "generators"]}}}, id="shared ones"),
        pytest.param({"crds": {"providers": ["doppler"]}}, id="CRDs of a provider that runs elsewhere"),
        pytest.param(
            {"crds": {"createAllGenerators": False}, "providers": {"vault": {"enabled": True}}},
            id="generators of enabled providers only",
        ),
        *(pytest.param({"crds": {name: False}}, id=f"without {name}") for name in ourchart.SWITCHES),
    ],
)
def test_crds_of_the_report_are_those_that_helm_renders(helm: Helm, values: JsonObject) -> None:
    rendered = {
        each["metadata"]["name"]
        for each in helm.template("eso", CHART, **IMAGE, **values)
        if each["kind"] == "CustomResourceDefinition"
    }

    report = expected("eso", values)

    assert report.core_crds(()) | report.provider_crds(provider_kinds()) == rendered
