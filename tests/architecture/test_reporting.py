"""Controllers say what came of a reconcile as a value; only `controllers/base.py` writes, records and counts it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

CONTROLLERS = Path(__file__).parents[2] / "packages/eso-operator/src/eso_operator/controllers"
FORBIDDEN = ("kuberun.status", "kuberun.events", "eso_operator.telemetry")
ALLOWED = frozenset(
    {
        "kuberun.events.EventType",
        "kuberun.status.ConditionStatus",
        "kuberun.status.find_condition",
        "kuberun.status.is_false",
        "kuberun.status.is_true",
        "kuberun.status.remove_condition",
        "kuberun.status.same_verdict",
        "kuberun.status.set_condition",
        "eso_operator.telemetry.subsystems.Subsystem",
    }
)
"""Words of a report, which do nothing by themselves."""


def imported(source: str) -> Iterator[str]:
    """Every name that a module imports, with the module it comes from."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{name.name}" for name in node.names)


def forbidden(source: str) -> list[str]:
    return [
        name
        for name in imported(source)
        if name not in ALLOWED and any(name == module or name.startswith(f"{module}.") for module in FORBIDDEN)
    ]


def test_no_controller_writes_a_status_records_an_event_or_counts_by_itself() -> None:
    modules = sorted(set(CONTROLLERS.rglob("*.py")) - {CONTROLLERS / "base.py"})
    found = {str(path.relative_to(CONTROLLERS)): names for path in modules if (names := forbidden(path.read_text()))}

    assert modules
    assert found == {}, "let the controller's Reporter do it (eso_operator/controllers/base.py)"


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("from kuberun.events import EventRecorder", id="events"),
        pytest.param("from kuberun.status import write_status", id="status"),
        pytest.param("from kuberun import status", id="the module of statuses"),
        pytest.param("import kuberun.status", id="the module of statuses by its path"),
        pytest.param("from eso_operator.telemetry.metrics import ObjectSeries", id="series of objects"),
        pytest.param("from eso_operator.telemetry.metrics import Metrics", id="all metrics"),
    ],
)
def test_imports_that_would_bypass_the_reporter_are_found(line: str) -> None:
    assert len(forbidden(line)) == 1


def test_words_of_a_report_may_be_imported() -> None:
    words = "from kuberun.events import EventType\nfrom eso_operator.telemetry.subsystems import Subsystem\n"

    assert forbidden(words) == []
