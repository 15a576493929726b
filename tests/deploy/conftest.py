"""The charts, rendered as `helm template` would: with our own template engine, so that `make test` needs no Helm.

And a release of the umbrella chart whose pods run as local processes, with a real OpenBao.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Protocol

import pytest
import yaml

from eso_provider_vault.testing.openbao import OpenBao
from eso_render.functions import functions
from eso_render.functions.yaml import from_yaml
from gotmpl.functions import ANY, STRING, Func
from gotmpl.run import MissingKey
from gotmpl.template import Engine
from kubebase.meta import JsonObject
from kubebase.testing.servers import ApiServer, ServerFailedError
from kuberun.testing.helm import Helm, find_helm
from kuberun.testing.kubeapiserver import KubeApiserver, find_assets
from kuberun.testing.kubectl import Kubectl
from kuberun.testing.kubelet import Kubelet, Pod
from kuberun.testing.localserver import LocalServer

CHARTS = Path(__file__).resolve().parents[2] / "deploy" / "charts"
METHODS = {r"\$?\w*\.Files\.(Get|Glob)": r"files\1", r"\$?\w*\.Capabilities\.APIVersions\.Has": "knows"}
"""Methods of Helm's objects, as functions: the engine has maps only."""

DEFINITION = r'^{{- define "([^"]+)" -}}.*?^{{- end }}$(?=\n*\Z|\n\n)'


class Chart(Protocol):
    def __call__(self, *, release: str = "external-secrets", **values: Any) -> list[JsonObject]:
        """Its objects; `release` is the namespace it is installed in."""
        ...


@pytest.fixture(scope="session")
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
    hooks: bool = False,
    **values: Any,
) -> Any:
    """Return the objects of a chart, its hooks, or its notes. CRDs are left out: reading them takes seconds."""
    chart, defaults = (parsed((folder / name).read_text())[0] for name in ("Chart.yaml", "values.yaml"))
    data = {
        "Values": merged(defaults, values),
        "Chart": {key[0].upper() + key[1:]: value for key, value in chart.items()},
        "Release": {"Namespace": release, "Name": name_of_release, "Service": "Helm"},
        "Capabilities": {"KubeVersion": {"Version": "v1.36.0"}},
    }
    texts = templates(folder)
    if notes:
        return texts.render("NOTES.txt", data)
    files = sorted(path.name for path in folder.glob("templates/*.yaml") if path.name != "crds.yaml")
    parts = [texts.render(name, data) for name in files]
    documents = [document for text in parts for document in parsed(text)]
    return [each for each in documents if hooks == ("helm.sh/hook" in each["metadata"].get("annotations", {}))]


def parsed(text: str) -> list[Any]:
    """Return the documents of a YAML text."""
    return [document for document in yaml.load_all(text, Loader=yaml.CSafeLoader) if document]


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
            "lookup": Func("lookup", lambda *_: {}, (STRING, STRING, STRING, STRING)),
            "fromYaml": Func("fromYaml", lambda text: deepcopy(read_once(text)), (STRING,)),
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
def read_once(text: str) -> dict[str, Any]:
    """Read a text as `fromYaml` does; a chart reads its own defaults a dozen times."""
    return from_yaml(text)


@lru_cache
def templates(folder: Path) -> Templates:
    return Templates(folder)


def merged(defaults: JsonObject, values: JsonObject) -> JsonObject:
    """Maps are merged and lists replaced, as Helm does."""
    both = {key: merged(defaults[key], value) for key, value in values.items() if isinstance(defaults.get(key), dict)}
    return {**defaults, **values, **both}


# --- a release that runs ---------------------------------------------------------------------------------------------

UMBRELLA = CHARTS / "external-secrets"
NAMESPACE = RELEASE = "external-secrets"
VALUES: JsonObject = {"image": {"registry": "registry.example.com/eso"}, "providers": {"vault": {"enabled": True}}}
PATIENCE = "--timeout=100s"


@dataclass(frozen=True, slots=True)
class Installed:
    """A release whose pods run."""

    kubelet: Kubelet
    kubectl: Kubectl
    helm: Helm | None
    operator: Pod
    provider: Pod
    notes: str

    def apply(self, *documents: JsonObject) -> None:
        self.kubectl("apply", "--namespace=team-a", "-f", "-", stdin=yaml.safe_dump_all(documents))

    @property
    def scraped(self) -> tuple[str, str]:
        """Return where metrics of operator and provider are served, which in a pod nobody else reaches."""
        return f"127.0.0.1:{self.operator.ports['8080']}", f"127.0.0.1:{self.provider.ports['8081']}"

    def ready(self, what: str) -> None:
        done = self.kubectl.run("wait", "--for=condition=Ready", PATIENCE, what, "--namespace=team-a")
        assert done.returncode == 0, f"{done.stderr}\n{self.operator.log[-3000:]}\n{self.provider.log[-3000:]}"


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """A server of its own: the release owns CRDs."""
    folder = tmp_path_factory.mktemp("release-server")
    made: ApiServer
    try:
        real = request.config.getoption("--apiserver") == "kube"
        made = KubeApiserver(folder, find_assets()) if real else LocalServer(folder)
    except ServerFailedError as failure:
        pytest.fail(str(failure), pytrace=False)
    yield made
    made.stop()


@pytest.fixture(scope="session")
def release(
    server: ApiServer, operator_chart: Chart, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Helm | None, str]:
    """Install the release and return its notes; the embedded server knows no NetworkPolicy, so Helm cannot do it."""
    folder = tmp_path_factory.mktemp("helm")
    if server.name != "kube":
        kubectl = Kubectl(server, folder)
        objects = [each for each in operator_chart(**VALUES) if each["kind"] != "NetworkPolicy"]
        home = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        kubectl("create", "-f", str(CHARTS.parent / "crds"))
        kubectl("create", "-f", "-", stdin=yaml.safe_dump_all([home, *objects]))
        return None, str(operator_chart(notes=True, **VALUES))
    binary = find_helm()
    if binary is None:
        pytest.fail("no Helm in the cache: `make test-cluster` builds one (it needs Go once)", pytrace=False)
    helm = Helm(binary, folder, kubeconfig=server.kubeconfig, namespace=NAMESPACE)
    return helm, helm("install", RELEASE, str(UMBRELLA), "--create-namespace", values=VALUES)


@pytest.fixture(scope="session")
def installed(
    server: ApiServer, release: tuple[Helm | None, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installed]:
    folder = tmp_path_factory.mktemp("pods")
    kubectl = Kubectl(server, folder, namespace=NAMESPACE)
    kubelet = Kubelet(server, kubectl, folder)
    operator, provider = kubelet.pod("external-secrets"), kubelet.pod("provider-vault")
    try:
        # The flag stands for the cluster's DNS, which would lead to the pods behind the Service.
        operator.start(f"--trusted-provider={NAMESPACE}/provider-vault={provider.address('grpc')}")
        provider.start("--allow-address=loopback")  # where the backend is
        operator.wait_until_ready()
        provider.wait_until_ready()
        yield Installed(kubelet, kubectl, release[0], operator, provider, release[1])
    finally:
        operator.stop()
        provider.stop()


@pytest.fixture(scope="session")
def bao(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenBao]:
    with OpenBao.started(tmp_path_factory.mktemp("openbao")) as running:
        running.enable("secret")
        running.put("secret", "database", {"password": "correct-horse"})
        yield running
