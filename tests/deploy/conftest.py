"""The charts, rendered as `helm template` would: with our own template engine, so that `make test` needs no Helm."""

from __future__ import annotations

import re
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Protocol

import pytest
import yaml

from eso_render.functions import functions
from gotmpl.run import MissingKey
from gotmpl.signatures import ANY, STRING, Func
from gotmpl.template import Engine
from kubebase.meta import JsonObject

CHARTS = Path(__file__).resolve().parents[2] / "deploy" / "charts"
METHODS = {r"\$?\w*\.Files\.(Get|Glob)": r"files\1", r"\$?\w*\.Capabilities\.APIVersions\.Has": "knows"}
"""Methods of Helm's objects, as functions: the engine has maps only."""

DEFINITION = r'^{{- define "([^"]+)" -}}.*?^{{- end }}$(?=\n*\Z|\n\n)'


class Chart(Protocol):
    def __call__(self, *, release: str = "external-secrets", **values: Any) -> list[JsonObject]:
        """Its objects; `release` is the namespace it is installed in."""
        ...


@pytest.fixture
def operator_chart() -> Chart:
    """The umbrella chart, without its CRDs."""
    return partial(rendered, CHARTS / "external-secrets", image={"registry": "registry.example.com/eso"})


@pytest.fixture
def provider_chart() -> Chart:
    image = {"repository": "registry.example.com/eso-provider-fake", "tag": "0.1.0"}
    return partial(rendered, CHARTS / "eso-provider", name="fake", image=image)


@pytest.fixture(params=["operator_chart", "provider_chart"])
def either_chart(request: pytest.FixtureRequest) -> Chart:
    chart: Chart = request.getfixturevalue(request.param)
    return chart


def rendered(
    folder: Path,
    *,
    release: str = "external-secrets",
    name_of_release: str = "external-secrets",
    notes: bool = False,
    **values: Any,
) -> Any:
    """Return the objects of a chart, or the text of its notes. CRDs are left out: reading them takes seconds."""
    chart = yaml.safe_load((folder / "Chart.yaml").read_text())
    data = {
        "Values": merged(yaml.safe_load((folder / "values.yaml").read_text()), values),
        "Chart": {key[0].upper() + key[1:]: value for key, value in chart.items()},
        "Release": {"Namespace": release, "Name": name_of_release, "Service": "Helm"},
        "Capabilities": {"KubeVersion": {"Version": "v1.36.0"}},
    }
    texts = templates(folder)
    if notes:
        return texts.render("NOTES.txt", data)
    files = sorted(path.name for path in folder.glob("templates/*.yaml") if path.name != "crds.yaml")
    parts = [texts.render(name, data) for name in files]
    return [document for text in parts for document in yaml.safe_load_all(text) if document]


class Templates:
    """The templates of one chart, with the functions that Helm adds to those of Go and sprig."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        partials = "\n".join(self._read(path.name) for path in sorted(folder.glob("templates/*.tpl")))
        self._partials = {found[1]: found[0] for found in re.finditer(DEFINITION, partials, re.MULTILINE | re.DOTALL)}
        own = {
            "include": Func("include", self._include, (STRING, ANY)),
            "tpl": Func("tpl", self._tpl, (STRING, ANY)),
            "filesGet": Func("filesGet", lambda path: (folder / path).read_text(encoding="utf-8"), (STRING,)),
            "filesGlob": Func("filesGlob", self._glob, (STRING,)),
            "knows": Func("knows", lambda kind: kind.startswith("monitoring"), (STRING,)),
        }
        self._engine = Engine({**functions(lambda: 0), **own}, missing=MissingKey.NOTHING)

    def render(self, name: str, data: JsonObject) -> str:
        return self._engine.render(self._read(name), data, name=name)

    def _read(self, name: str) -> str:
        text = (self._folder / "templates" / name).read_text(encoding="utf-8")
        for method, function in METHODS.items():
            text = re.sub(method, function, text)
        return text

    def _include(self, name: str, data: Any) -> str:
        return self._engine.render(f'{self._partials[name]}{{{{ template "{name}" . }}}}', data)

    def _tpl(self, text: str, data: Any) -> str:
        return self._engine.render(text, data)

    def _glob(self, pattern: str) -> dict[str, str]:
        return {str(path.relative_to(self._folder)): "" for path in sorted(self._folder.glob(pattern))}


@lru_cache
def templates(folder: Path) -> Templates:
    return Templates(folder)


def merged(defaults: JsonObject, values: JsonObject) -> JsonObject:
    """Maps are merged and lists replaced, as Helm does."""
    both = {key: merged(defaults[key], value) for key, value in values.items() if isinstance(defaults.get(key), dict)}
    return {**defaults, **values, **both}
