"""The charts, rendered as `helm template` would."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import pytest
import yaml

from eso_render.functions import functions
from gotmpl.template import Engine
from kubebase.meta import JsonObject

CHARTS = Path(__file__).resolve().parents[2] / "deploy" / "charts"


class Chart(Protocol):
    def __call__(self, *, release: str = "external-secrets", **values: Any) -> list[JsonObject]:
        """Its objects; `release` is the namespace it is installed in."""
        ...


@pytest.fixture
def operator_chart() -> Chart:
    return chart("eso-operator")


@pytest.fixture(params=["eso-operator", "eso-provider"])
def either_chart(request: pytest.FixtureRequest) -> Chart:
    return chart(request.param)


def chart(name: str) -> Chart:
    folder = CHARTS / name
    image = {"repository": f"registry.example.com/{name}", "tag": "0.1.0"}
    engine = Engine(functions(lambda: 0))

    def rendered(*, release: str = "external-secrets", **values: Any) -> list[JsonObject]:
        defaults = yaml.safe_load((folder / "values.yaml").read_text())
        named = {"name": defaults["name"] or "fake", "image": image}
        data = {"Values": merged(defaults, {**named, **values}), "Release": {"Namespace": release}}
        files = sorted(folder.glob("templates/*.yaml"))
        texts = [engine.render(path.read_text(), data, name=path.name) for path in files]
        return [document for text in texts for document in yaml.safe_load_all(text) if document]

    return rendered


def merged(defaults: JsonObject, values: JsonObject) -> JsonObject:
    """Maps are merged and lists replaced, as Helm does."""
    both = {key: merged(defaults[key], value) for key, value in values.items() if isinstance(defaults.get(key), dict)}
    return {**defaults, **values, **both}
