"""Everything that the checks of `eso preflight` judge, gathered once and frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, NamedTuple

from eso_api.kinds import AnyKind
from eso_api.references import CORE_GROUP
from eso_tools.providers import Want
from kubebase.meta import JsonObject, ObjectKey, Resource, meta_of

DEFINITIONS: Final = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", "Deployment")
WEBHOOKS: Final = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
)


def is_ours(group: str) -> bool:
    """Return whether a group belongs to External Secrets: all of them end with the name of the core group."""
    return group == CORE_GROUP or group.endswith(f".{CORE_GROUP}")


class Owner(NamedTuple):
    """A Helm release."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Stored:
    """One object of a kind that this operator serves, from the cluster or (`where` is file:line) from a file."""

    custom: AnyKind
    obj: JsonObject = field(repr=False)
    where: str = ""

    @property
    def key(self) -> ObjectKey:
        return meta_of(self.obj).key

    @property
    def api_version(self) -> str:
        return str(self.obj.get("apiVersion", ""))

    def __str__(self) -> str:
        named = f"{self.custom.name} {self.key}"
        return f"{named} ({self.where})" if self.where else named


@dataclass(frozen=True, slots=True)
class Definition:
    """A CustomResourceDefinition of a group of External Secrets."""

    name: str
    served: tuple[str, ...] = ()
    storage: str = ""
    """The version in which the API server stores objects today."""
    stored_versions: tuple[str, ...] = ()
    conversion: str = ""
    """The Service `namespace/name` of its conversion webhook; empty without one."""
    owner: Owner | None = None
    """The Helm release that its annotations name."""
    managed_by_helm: bool = False
    """Whether its label says so too: Helm takes over only what has the annotations and the label."""
    is_retained: bool = False
    """Whether the live object carries `helm.sh/resource-policy: keep`."""
    kind: str = ""
    namespaced: bool = True

    @property
    def group(self) -> str:
        return self.name.partition(".")[2]


class WorkloadRole(Enum):
    """What a Deployment runs."""

    GO_OPERATOR = "operator in Go"
    GO_WEBHOOK = "webhook of the operator in Go"
    GO_CERTIFICATES = "certificate controller of the operator in Go"
    OURS = "this operator"


@dataclass(frozen=True, slots=True)
class Workload:
    """A Deployment of one of the operators."""

    key: ObjectKey
    role: WorkloadRole
    replicas: int = 1
    arguments: tuple[str, ...] = field(default=(), repr=False)
    selector: Mapping[str, Any] = field(default_factory=dict)
    """`spec.selector`, which cannot be changed."""
    owner: Owner | None = None

    def __str__(self) -> str:
        return f"Deployment {self.key}"


@dataclass(frozen=True, slots=True)
class Webhook:
    """A ValidatingWebhookConfiguration that is called for kinds of External Secrets."""

    name: str
    services: tuple[str, ...] = ()
    """The Services that serve it, `namespace/name`."""
    owner: Owner | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """The newest record of a Helm release."""

    owner: Owner
    chart: str = ""
    values: JsonObject = field(default_factory=dict, repr=False)
    """The values that users set for the chart external-secrets."""
    definitions: Mapping[str, bool] = field(default_factory=dict)
    """The CRDs in its stored manifest, each with whether `helm.sh/resource-policy: keep` is there."""
    converted: frozenset[str] = frozenset()
    """Those of them that have a conversion webhook there."""
    part: str = ""
    """The name of the chart external-secrets in this release: its own, or that of a dependency; empty without it."""
    version: str = ""
    """The version of the release's chart."""


@dataclass(frozen=True, slots=True)
class UnreadObject:
    """A Helm release whose record could not be read."""

    owner: Owner
    why: str


@dataclass(frozen=True, slots=True)
class Running:
    """A provider in the cluster: a labelled Service, or a class. `name` is the package's, by the Service's name."""

    what: str
    serves: frozenset[Want] = frozenset()
    name: str = ""


@dataclass(frozen=True, slots=True)
class SnapshotGap:
    """Objects that were not looked at."""

    what: str
    """The resource, such as `deployments.apps`."""
    why: str
    partly: bool = False
    """Whether some of them were looked at."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`version` is that of the API server; empty if no cluster was asked."""

    version: str = ""
    objects: tuple[Stored, ...] = ()
    definitions: tuple[Definition, ...] = ()
    workloads: tuple[Workload, ...] = ()
    webhooks: tuple[Webhook, ...] = ()
    releases: tuple[Release | UnreadObject, ...] = ()
    running: tuple[Running, ...] = ()
    unknown: Mapping[str, int] = field(default_factory=dict)
    """The number of objects of each CRD of External Secrets that neither the core nor an installed provider has."""
    gaps: tuple[SnapshotGap, ...] = ()
    unread_files: tuple[str, ...] = ()
    """Files of a folder that are not YAML, each as `file:line: problem`."""
    packages: Mapping[Want, str] = field(default_factory=dict)
    """What the providers that are installed beside the CLI serve, and their names."""
    provider_kinds: Mapping[str, tuple[AnyKind, ...]] = field(default_factory=dict)
    """The kinds that each of these providers defines."""
    maturities: Mapping[str, str] = field(default_factory=dict)
    """The maturity of each of these providers."""
    values: JsonObject | None = field(default=None, repr=False)
    """The content of `--values`."""

    def sees(self, resource: Resource) -> bool:
        """Return whether a cluster was asked for this resource, and listed it."""
        hidden = {gap.what for gap in self.gaps if not gap.partly}
        return bool(self.version) and str(resource) not in hidden

    def of(self, *roles: WorkloadRole) -> list[Workload]:
        """Return the Deployments of these roles that have replicas."""
        return [each for each in self.workloads if each.role in roles and each.replicas > 0]
