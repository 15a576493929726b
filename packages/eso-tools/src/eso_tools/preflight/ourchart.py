"""Our chart as Helm would install it into this cluster: its release, Deployment, selector, providers and CRDs. Pure.

The Deployment's name and selector are rendered from the chart's own template `_names.tpl`. `chartnames.tpl` is a copy
of it, because the wheel of `eso` does not contain the chart; `tests/deploy` keeps both equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Final

from eso_api.externalsecret import CLUSTER_EXTERNAL_SECRET
from eso_api.generators.clustergenerator import CLUSTER_GENERATOR
from eso_api.kinds import GENERATOR_KINDS, KINDS, AnyKind
from eso_api.pushsecret import CLUSTER_PUSH_SECRET, PUSH_SECRET
from eso_api.secretstore import CLUSTER_SECRET_STORE
from eso_api.stores.projectproviders import GENERATORS
from eso_render.metering import wall_nanos
from eso_tools.preflight.helmrecords import CHART
from eso_tools.preflight.snapshot import Definition, Owner, Release, Snapshot, UnreadObject, Workload, WorkloadRole
from eso_tools.providers import wanted_by
from gotmpl.builtins import FUNCTIONS as BUILTINS
from gotmpl.functions import ANY, STRING, Func, LazyFunctions, family
from gotmpl.run import MissingKey
from gotmpl.sprig import families
from gotmpl.template import Engine
from kubebase.meta import JsonObject, ObjectKey
from kubebase.yamlvalues import read_first

Selector = Mapping[str, Any]

NAMES: Final = "chartnames.tpl"
_INSTANCE: Final = "app.kubernetes.io/instance"
_DEFAULT: Final = Owner(CHART, CHART)
"""The namespace and the release of the installation guide."""
SWITCHES: Final[Mapping[str, AnyKind]] = {
    "createClusterExternalSecret": CLUSTER_EXTERNAL_SECRET,
    "createClusterGenerator": CLUSTER_GENERATOR,
    "createClusterPushSecret": CLUSTER_PUSH_SECRET,
    "createClusterSecretStore": CLUSTER_SECRET_STORE,
    "createPushSecret": PUSH_SECRET,
}
"""The values under `crds` that leave out one CRD."""


@dataclass(frozen=True, slots=True)
class Installation:
    """One release of our chart: `helm upgrade RELEASE` of a release of the operator in Go, or a new one."""

    release: Owner
    record: Release | None = None
    """Helm's record of the release that would be upgraded."""
    values: JsonObject | None = field(default_factory=dict, repr=False)
    """None if Helm has values that could not be read."""
    providers: tuple[str, ...] = ()
    """The providers whose CRDs it has: those that the values name, and those that the objects of the cluster need."""

    @property
    def deployment(self) -> ObjectKey:
        """The Deployment of the operator."""
        return ObjectKey(self._rendered("eso.namespace"), self._rendered("eso.fullname"))

    @property
    def selector(self) -> Selector:
        """The `spec.selector` of that Deployment."""
        labels = read_first(self._rendered("eso.selector").encode())
        return {"matchLabels": {name: str(value) for name, value in labels.items()}}

    @property
    def installs_crds(self) -> bool:
        return (self.values or {}).get("installCRDs") is not False

    def core_crds(self, definitions: Iterable[Definition]) -> set[str]:
        """Return the names of the CRDs of the core that these values ask for."""
        switches = _map((self.values or {}).get("crds"))
        left_out = {kind.crd_name for name, kind in SWITCHES.items() if switches.get(name) is False}
        if switches.get("createAllGenerators") is False:
            served = {name for name, provider in GENERATORS.items() if provider in self.providers}
            left_out |= {kind.crd_name for kind in GENERATOR_KINDS if kind.name not in served}
            left_out -= {each.name for each in definitions if self.owns(each)}
        return {kind.crd_name for kind in KINDS} - left_out

    def provider_crds(self, of_providers: Mapping[str, tuple[AnyKind, ...]]) -> set[str]:
        """Return the names of the CRDs of its providers."""
        return {kind.crd_name for name in self.providers for kind in of_providers.get(name, ())}

    def owns(self, definition: Definition) -> bool:
        """Return whether Helm replaces this CRD for the release: its manifest has it, or the CRD names the release."""
        in_manifest = self.record is not None and definition.name in self.record.definitions
        return in_manifest or (definition.owner == self.release and definition.managed_by_helm)

    def _rendered(self, template: str) -> str:
        namespace, name = self.release
        chart = (self.record.part if self.record else "") or CHART
        data = {
            "Values": self.values or {},
            "Chart": {"Name": chart},
            "Release": {"Name": name, "Namespace": namespace},
        }
        return _include(template, data).strip()

    def __str__(self) -> str:
        return f"Helm release {self.release}"


def installations(snapshot: Snapshot) -> list[Installation]:
    """Return one installation for each release of an operator; a new release if there is none."""
    operators = [each for each in snapshot.workloads if each.role in {WorkloadRole.GO_OPERATOR, WorkloadRole.OURS}]
    owners = dict.fromkeys(_release_of(each) for each in operators)
    if not owners:
        owners = dict.fromkeys(each.owner for each in snapshot.releases if isinstance(each, Release) and each.part)
    return [_installation(owner, snapshot) for owner in owners or (_DEFAULT,)]


def _installation(owner: Owner, snapshot: Snapshot) -> Installation:
    found = next((each for each in snapshot.releases if each.owner == owner), None)
    record = found if isinstance(found, Release) else None
    values: JsonObject | None = record.values if record else {}
    if snapshot.values is not None:
        values = snapshot.values
    elif isinstance(found, UnreadObject):
        values = None
    return Installation(owner, record, values, tuple(sorted({*_enabled(values or {}), *_needed(snapshot)})))


def _release_of(workload: Workload) -> Owner:
    """Return the release of a Deployment. Tools that only render the chart leave its name in a label."""
    if workload.owner is not None:
        return workload.owner
    labels = _map(workload.selector.get("matchLabels"))
    return Owner(workload.key.namespace, str(labels.get(_INSTANCE) or CHART))


def _enabled(values: JsonObject) -> Iterator[str]:
    for name, settings in _map(values.get("providers")).items():
        if _map(settings).get("enabled") is True:
            yield from _map(settings).get("names") or () if name == "shared" else (name,)
    yield from _map(values.get("crds")).get("providers") or ()


def _needed(snapshot: Snapshot) -> Iterator[str]:
    for each in snapshot.objects:
        if (want := wanted_by(each.obj)) is not None and (name := snapshot.packages.get(want)):
            yield name


def _include(name: str, data: Any) -> str:
    """Render one template of the file. The empty lines between the templates of the file are not part of it."""
    return _engine().render(f'{_templates()}{{{{ template "{name}" . }}}}', data, name=NAMES).lstrip("\n")


@cache
def _templates() -> str:
    return files("eso_tools.preflight").joinpath(NAMES).read_text(encoding="utf-8")


@cache
def _engine() -> Engine:
    include = Func("include", _include, (STRING, ANY))
    own = [("include", lambda: {"include": include}), ("fromYaml toYaml", family("eso_render.functions.yaml"))]
    known = LazyFunctions([(" ".join(BUILTINS), lambda: BUILTINS), *families(wall_nanos), *own])
    return Engine(known, missing=MissingKey.NOTHING)


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
