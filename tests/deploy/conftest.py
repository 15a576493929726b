"""The chart of the operator, rendered as `helm template` would."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import pytest
import yaml

from eso_render.functions import functions
from gotmpl.template import Engine
from kuberun.meta import JsonObject

CHART = Path(__file__).resolve().parents[2] / "deploy" / "charts" / "eso-operator"


class OperatorChart(Protocol):
    def __call__(self, *, release: str = "external-secrets", **values: Any) -> list[JsonObject]:
        """Its objects; `release` is the namespace it is installed in."""
        ...


@pytest.fixture
def operator_chart() -> OperatorChart:
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    image = {"repository": "registry.example.com/eso-operator", "tag": "0.1.0"}
    engine = Engine(functions(lambda: 0))

    def rendered(*, release: str = "external-secrets", **values: Any) -> list[JsonObject]:
        data = {"Values": {**defaults, "image": image, **values}, "Release": {"Namespace": release}}
        files = sorted(CHART.glob("templates/*.yaml"))
        texts = [engine.render(path.read_text(), data, name=path.name) for path in files]
        return [document for text in texts for document in yaml.safe_load_all(text) if document]

    return rendered
