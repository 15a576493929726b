"""The alerts and the dashboard of `deploy/monitoring`: every query parses, and uses series and labels that exist."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from eso_testkit.operator.promql import PromqlError, parse

ROOT: Final = Path(__file__).resolve().parents[2]
RULES: Final = yaml.safe_load((ROOT / "deploy" / "monitoring" / "rules.yaml").read_text())
DASHBOARD: Final = json.loads((ROOT / "deploy" / "monitoring" / "dashboard.json").read_text())
REFERENCE: Final = (ROOT / "docs" / "reference" / "metrics.md").read_text()
ALL_RULES: Final = [rule for group in RULES["spec"]["groups"] for rule in group["rules"]]
ALERTS: Final = {rule["alert"]: rule for rule in ALL_RULES if "alert" in rule}
OF_THE_SCRAPE: Final = {"pod", "service", "job", "instance", "le", "exported_namespace", "exported_service"}
"""Labels that Prometheus adds, and new names of those that it then finds twice."""
DURATION: Final = re.compile(r"\d+[smhd]")


def documented() -> dict[str, set[str]]:
    """The labels of each series of the reference page, and of the series that the rules record."""
    series: dict[str, set[str]] = {rule["record"]: set() for rule in ALL_RULES if "record" in rule}
    kinds = re.findall(r"`(\w+)`", REFERENCE.partition("`KIND` is one of ")[2].partition("\n")[0])
    for name, kind, labels in re.findall(r"^\| `(\w+)` \| (\w+) \| (.*?) \|", REFERENCE, re.MULTILINE):
        names = [name.replace("KIND", each) for each in kinds] if name.startswith("KIND_") else [name]
        ends = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
        series |= {f"{each}{end}": set(re.findall(r"`(\w+)`", labels)) for each in names for end in ends}
    return series


SERIES: Final = documented()


def panels() -> Iterator[dict[str, Any]]:
    return (panel for panel in DASHBOARD["panels"] if panel["type"] != "row")


def queries() -> Iterator[Any]:
    for rule in ALL_RULES:
        name = rule.get("alert") or rule["record"]
        yield pytest.param(rule["expr"], id=name)
    for panel in panels():
        for target in panel["targets"]:
            yield pytest.param(target["expr"], id=f"panel {panel['id']}{target['refId']}: {panel['title']}")


@pytest.mark.parametrize("query", list(queries()))
def test_a_query_uses_series_and_labels_that_exist(query: str) -> None:
    parsed = parse(query)

    assert parsed.selectors
    unknown = {name for name, _ in parsed.selectors} - set(SERIES)
    assert not unknown
    for name, labels in parsed.selectors:
        assert labels <= SERIES[name] | OF_THE_SCRAPE
    shared = set.intersection(*(SERIES[name] for name, _ in parsed.selectors))
    assert parsed.groupings <= shared | OF_THE_SCRAPE


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_says_what_happened_and_what_to_do(name: str) -> None:
    alert = ALERTS[name]

    assert alert["labels"]["severity"] in ("warning", "critical")
    assert alert["annotations"]["summary"]
    assert alert["annotations"]["action"]
    assert DURATION.fullmatch(alert.get("for", "0s"))
    used = set(re.findall(r"\$labels\.(\w+)", " ".join(alert["annotations"].values())))
    assert used <= set.union(*(SERIES[series] for series, _ in parse(alert["expr"]).selectors)) | OF_THE_SCRAPE


def test_the_objectives_have_alerts() -> None:
    assert set(ALERTS) >= {
        "ObjectsOverdue",
        "StoreNotReady",
        "ProviderCertificateExpires",
        "CallBudgetExhausted",
        "SyncErrorBudgetExhausted",
        "SyncsWaitTooLong",
        "SyncsTakeTooLong",
        "OperatorUnavailable",
        "AvailabilityBudgetExhausted",
        "PushLag",
    }
    assert (RULES["apiVersion"], RULES["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")


def test_every_alert_and_objective_is_explained() -> None:
    guide = (ROOT / "docs" / "howto" / "alerting.md").read_text()

    assert [name for name in ALERTS if f"`{name}`" not in guide] == []
    shown = {target["expr"] for panel in panels() for target in panel["targets"]}
    for objective in re.findall(r"^\| [^|]+ \| `(eso:\S+)` \|", guide, re.MULTILINE):
        assert objective in shown
        assert objective in SERIES


def test_the_chart_renders_the_same_rules(operator_chart: Any) -> None:
    on = {"enabled": True, "additionalLabels": {"release": "prometheus"}, "namespace": "monitoring"}
    (rule,) = (each for each in operator_chart(prometheusRule=on) if each["kind"] == "PrometheusRule")

    assert rule["spec"] == RULES["spec"]
    assert (rule["metadata"]["namespace"], rule["metadata"]["labels"]["release"]) == ("monitoring", "prometheus")
    assert [each for each in operator_chart() if each["kind"] == "PrometheusRule"] == []


def test_the_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    every = DASHBOARD["panels"]
    places = [each["gridPos"] for each in every]

    assert len({each["id"] for each in every}) == len(every)
    for one, other in itertools.combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below
    assert all(panel["datasource"]["uid"] == "${datasource}" for panel in panels())


def test_the_variables_ask_for_labels_that_exist() -> None:
    (controller,) = [each for each in DASHBOARD["templating"]["list"] if each["name"] == "controller"]
    found = re.fullmatch(r"label_values\((\w+), (\w+)\)", controller["query"])

    assert found is not None
    assert found[2] in SERIES[found[1]]


@pytest.mark.parametrize(
    "query",
    [
        pytest.param("sum(rate(a[5m])", id="a parenthesis is missing"),
        pytest.param("a{b=c}", id="a value without quotes"),
        pytest.param("a b", id="an operator is missing"),
        pytest.param("rat(a[5m])", id="an unknown function"),
        pytest.param("a > ", id="an operand is missing"),
        pytest.param("a[5x]", id="an unknown unit"),
    ],
)
def test_a_query_that_is_not_promql_is_found(query: str) -> None:
    with pytest.raises(PromqlError):
        parse(query)
