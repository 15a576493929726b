"""Each of the 334 values of the chart in Go has a row in `go-rows.yaml`, and the row is true of what is rendered."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final, Protocol

import pytest
import yaml

from eso_api.kinds import KINDS, provider_kinds
from eso_operator.flags import parse
from eso_tools.preflight.chartvalues import VALUES as REPORTED
from eso_tools.preflight.chartvalues import Effect
from gotmpl.errors import TemplateError
from kubebase.meta import JsonObject
from kuberun.testing.helm import Helm, find_helm

CHART: Final = Path(__file__).resolve().parents[2] / "deploy" / "charts" / "external-secrets"
SCHEMA: Final = json.loads((CHART / "values.schema.json").read_text())
VERSION: Final = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
GO: Final = yaml.load(Path(__file__).with_name("go-values.yaml").read_text(), yaml.CSafeLoader)
ROWS: Final[dict[str, JsonObject]] = yaml.load(Path(__file__).with_name("go-rows.yaml").read_text(), yaml.CSafeLoader)
MARKS: Final = {"same", "same+", "different", "ignored", "stop"}
BASE: Final[JsonObject] = {
    "image": {"registry": "registry.example.com/eso"},
    "providers": {"fake": {"enabled": True}},
}
OPERATOR: Final = {
    "deployment": "Deployment/external-secrets",
    "pod": "Deployment/external-secrets spec template spec",
    "container": "Deployment/external-secrets spec template spec containers 0",
    "account": "ServiceAccount/external-secrets",
    "policy": "NetworkPolicy/external-secrets-network-policy",
}
PROVIDER: Final = {name: place.replace("external-secrets", "provider-fake") for name, place in OPERATOR.items()}
NOWHERE: Final = object()


class Chart(Protocol):
    def __call__(self, *, notes: bool = False, **values: Any) -> list[JsonObject]: ...


@pytest.fixture(scope="module")
def operator_chart(operator_chart: Chart) -> Chart:
    """Render equal values once: each row is compared with the chart without it."""

    @cache
    def rendered(values: str, *, notes: bool) -> list[JsonObject]:
        return operator_chart(notes=notes, **json.loads(values))

    return lambda *, notes=False, **values: rendered(json.dumps(values), notes=notes)


def leaves(value: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of all values; an empty map is one."""
    if not isinstance(value, dict) or not value:
        yield path
        return
    for key, below in value.items():
        yield from leaves(below, f"{path}.{key}" if path else key)


def row_of(path: str) -> str:
    """Return the longest row that covers a path, empty if none does."""
    covering = [row for row in ROWS if path == row or path.startswith(f"{row}.")]
    return max(covering, key=len, default="")


def merged(one: JsonObject, other: JsonObject) -> JsonObject:
    both = {key: merged(one[key], other[key]) for key in one.keys() & other.keys() if isinstance(one[key], dict)}
    return {**one, **other, **both}


def nested(path: str, value: Any) -> JsonObject:
    for key in reversed(path.split(".")):
        value = {key: value}
    return dict(value)


def values_of(path: str) -> JsonObject:
    values = merged(BASE, nested(path, ROWS[path]["set"]))
    for other, value in ROWS[path].get("with", {}).items():
        values = merged(values, nested(other, value))
    return values


def at(objects: list[JsonObject], place: str, names: dict[str, str]) -> Any:
    """Return what is rendered at a place, or NOWHERE."""
    first, *steps = place.split()
    name, *more = names.get(first, first).split()
    held: Any = next((each for each in objects if f"{each['kind']}/{each['metadata']['name']}" == name), NOWHERE)
    for step in (*more, *steps):
        if isinstance(held, list):
            held = held[int(step)] if int(step) < len(held) else NOWHERE
        else:
            held = held.get(step, NOWHERE) if isinstance(held, dict) else NOWHERE
    return held


def grants(objects: list[JsonObject]) -> set[str]:
    return {
        f"{group} {resource} {verb}"
        for each in objects
        if each["kind"] in ("Role", "ClusterRole") and each["metadata"]["name"].endswith("-controller")
        for rule in each["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def named(objects: list[JsonObject]) -> set[str]:
    return {f"{each['kind']}/{each['metadata']['name']}" for each in objects}


def test_every_value_of_the_chart_in_go_has_a_row_and_every_row_a_value() -> None:
    paths = list(leaves(GO))

    assert len(paths) == 334
    assert [path for path in paths if not row_of(path)] == []
    assert set(ROWS) == {row_of(path) for path in paths}
    assert {row["mark"] for row in ROWS.values()} == MARKS
    ours = merged(GO, yaml.safe_load((CHART / "values.yaml").read_text()))
    assert [path for path, row in ROWS.items() if row["set"] == _default(ours, path)] == []


def _default(values: JsonObject, path: str) -> Any:
    held: Any = values
    for key in path.split("."):
        held = held[key]
    return held


PLACES: Final = [
    pytest.param(path, names, id=f"{path} of a provider" if names is PROVIDER else path)
    for path, row in ROWS.items()
    for names in ((OPERATOR, PROVIDER) if row["mark"] == "same+" else (OPERATOR,))
    if row["mark"] not in ("ignored", "stop") and {"at", "lacks", "env", "volume", "mount"} & set(row)
    if names is OPERATOR or str(row.get("at", row.get("lacks", ""))).split(" ")[0] in {*PROVIDER, ""}
]


@pytest.mark.parametrize(("path", "names"), PLACES)
def test_a_value_is_rendered_where_its_row_says(operator_chart: Chart, path: str, names: dict[str, str]) -> None:
    row, objects = ROWS[path], operator_chart(**values_of(path))
    wanted = json.loads(json.dumps(row.get("gives", row["set"])).replace("VERSION", VERSION))
    lists = {"env": "container env", "volume": "pod volumes", "mount": "container volumeMounts"}

    if "at" in row:
        assert at(objects, row["at"], names) == wanted
    if "lacks" in row:
        assert at(objects, row["lacks"], names) is NOWHERE
        assert at(operator_chart(**BASE), row["lacks"], names) is not NOWHERE
    for key in lists.keys() & row.keys():
        assert row[key] in at(objects, lists[key], names)


@pytest.mark.parametrize(
    "path", [path for path, row in ROWS.items() if {"flag", "noflag", "object", "gone", "rule", "norule"} & set(row)]
)
def test_a_value_changes_the_flags_objects_and_rights_that_its_row_names(operator_chart: Chart, path: str) -> None:
    row, before, after = ROWS[path], operator_chart(**BASE), operator_chart(**values_of(path))
    flags = [at(objects, "container args", OPERATOR) for objects in (before, after)]

    if "flag" in row:
        assert row["flag"] not in flags[0]
        assert row["flag"] in flags[1]
        parse(flags[1], {})
    if "noflag" in row:
        assert row["noflag"] in flags[0]
        assert row["noflag"] not in flags[1]
    assert set(row.get("object", ())) <= named(after)
    assert set(row.get("gone", ())) <= named(before) - named(after)
    assert {row[key] for key in ("rule",) if key in row} <= grants(after) - grants(before)
    assert {row[key] for key in ("norule",) if key in row} <= grants(before) - grants(after)


@pytest.mark.parametrize("path", [path for path, row in ROWS.items() if row["mark"] == "ignored"])
def test_an_ignored_value_changes_nothing_and_is_named_in_the_notes(operator_chart: Chart, path: str) -> None:
    (named_there,) = re.findall(
        r"^Without effect here: (.*)$", str(operator_chart(notes=True, **values_of(path))), re.MULTILINE
    )

    assert operator_chart(**values_of(path)) == operator_chart(**BASE)
    assert ROWS[path]["says"] in named_there.split(", ") or ROWS[path]["says"] == named_there


@pytest.mark.parametrize("path", [path for path, row in ROWS.items() if row["mark"] == "different" and "says" in row])
def test_notes_say_what_differs(operator_chart: Chart, path: str) -> None:
    said = ROWS[path]["says"]

    assert said in str(operator_chart(notes=True, **values_of(path)))
    assert said not in str(operator_chart(notes=True, **BASE))


@pytest.mark.parametrize(
    ("names", "said"),
    [
        pytest.param(["vault"], [], id="a stable provider needs no remark"),
        pytest.param(["vault", "gcp"], ["Beta, not tested with each change"], id="beta"),
        pytest.param(["doppler", "github"], ["Unproven, tested only against a stand-in"], id="unproven"),
        pytest.param(["doppler", "gcp"], ["Beta, not tested with each change", "Unproven"], id="both"),
    ],
)
def test_notes_say_how_far_providers_were_tested(operator_chart: Chart, names: list[str], said: list[str]) -> None:
    notes = str(operator_chart(notes=True, providers={name: {"enabled": True} for name in names}))

    told = [line for line in notes.splitlines() if line.startswith(("Beta", "Unproven"))]

    assert [line[: len(begin)] for line, begin in zip(told, said, strict=True)] == said
    assert all(name in " ".join(told) for name in names if name != "vault")


@pytest.mark.parametrize("path", [path for path, row in ROWS.items() if row["mark"] == "stop"])
def test_a_value_that_cannot_be_taken_over_stops_with_the_way_out(operator_chart: Chart, path: str) -> None:
    with pytest.raises(TemplateError, match=re.escape(ROWS[path]["says"])):
        operator_chart(**values_of(path))


def test_the_report_before_a_migration_says_the_same() -> None:
    """`eso preflight` has a table of its own, for people without this chart at hand."""
    fates = {
        Effect.SAME: {"same", "same+"},
        Effect.DIFFERENT: {"different", "stop", "same+", "same"},
        Effect.WITHOUT_FUNCTION: {"ignored", "different"},
    }
    for path in set(leaves(GO)) - {"extraArgs"}:  # the report goes through its flags one by one
        covering = [row for row in REPORTED if path == row or path.startswith(f"{row}.")]
        reported = REPORTED[max(covering, key=len)]
        if reported.flag:
            continue  # the operator's own table of flags decides
        part_of_another = {"ignored"} if path == "bitwarden-sdk-server.namespaceOverride" else set()
        assert ROWS[row_of(path)]["mark"] in fates[reported.effect] | part_of_another, path


# --- with Helm --------------------------------------------------------------------------------------------------------


@pytest.fixture
def helm(request: pytest.FixtureRequest, tmp_path: Path) -> Helm:
    binary = find_helm()
    if binary is None and request.config.getoption("--apiserver") != "kube":
        pytest.skip("no Helm in the cache: `make test-cluster` builds one (it needs Go once)")
    if binary is None:
        pytest.fail("no Helm in the cache: `make test-cluster` builds one (it needs Go once)", pytrace=False)
    return Helm(binary, tmp_path, namespace="external-secrets")


@pytest.mark.live
def test_the_schema_takes_every_value_of_the_chart_in_go(helm: Helm) -> None:
    """The defaults all at once, as an upgrade with --reuse-values brings them; and another value for each."""
    others: JsonObject = {}
    for path, row in ROWS.items():
        if row["mark"] != "stop":
            others = merged(others, nested(path, row["set"]))
    off: JsonObject = {"installCRDs": False, "image": {"registry": "r", "repository": ""}}

    for values in (merged(GO, off), merged(merged(GO, others), {**off, "processClusterPushSecret": False})):
        assert helm("template", "x", str(CHART), values=values)


@pytest.mark.live
@pytest.mark.parametrize("path", [path for path, row in ROWS.items() if "crd" in row])
def test_a_switch_of_crds_leaves_out_that_crd(helm: Helm, path: str) -> None:
    found = {
        each["metadata"]["name"]: each["metadata"]["annotations"]
        for each in helm.template("x", CHART, **values_of(path))
        if each["kind"] == "CustomResourceDefinition"
    }
    files = {kind.crd_name for kind in (*KINDS, *provider_kinds()["fake"])}
    gone = files if path == "installCRDs" else set(ROWS[path]["crd"])

    assert set(found) == files - gone
    if path == "crds.annotations":
        kept = {"argocd.argoproj.io/sync-options": "Prune=false", "helm.sh/resource-policy": "keep"}
        assert {json.dumps(each, sort_keys=True) for each in found.values()} == {json.dumps({"a": "b", **kept})}
