"""apps/v1: workloads as stored objects. They have no controller here; clients write their status."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from kubebase.meta import JsonObject, Resource
from localkube.errors import Cause
from localkube.model import Column, ServedKind
from localkube.schema import causes
from localkube.schema.builtin import pods
from localkube.schema.builtin.kinds import Prepare, age_column, at, builtin_kind, column
from localkube.schema.builtin.parts import (
    LABEL_SELECTOR,
    anything,
    boolean,
    conditions,
    described,
    integer,
    items,
    struct,
    text,
)

_APPS: Final = "io.k8s.api.apps.v1"
_FIRST_STATUS: Final = {
    "Deployment": (),
    "StatefulSet": ("replicas", "availableReplicas"),
    "DaemonSet": ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady"),
    "ReplicaSet": ("replicas",),
}
"""Counters that are 0 before a controller has written a status."""
_STATEFUL_MUTABLE: Final = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)


def apps_kinds() -> list[ServedKind]:
    return [_deployment(), _stateful_set(), _daemon_set(), _replica_set()]


def _deployment() -> ServedKind:
    strategy = struct(
        f"{_APPS}.DeploymentStrategy",
        "How pods are replaced.",
        {"type": text("Recreate or RollingUpdate."), "rollingUpdate": anything("Details of a rolling update.")},
        patch_strategy="retainKeys",
    )
    return _workload(
        Resource("apps", "v1", "deployments", "Deployment"),
        "Keeps a number of equal pods running and replaces them on change.",
        {
            "replicas": integer("Wanted number of pods."),
            "strategy": strategy,
            "minReadySeconds": integer("Seconds a new pod must be ready to count."),
            "revisionHistoryLimit": integer("How many old ReplicaSets are kept."),
            "progressDeadlineSeconds": integer("Seconds until a rollout counts as failed."),
            "paused": boolean("Whether changes are held back."),
        },
        "deploy",
        _prepared(_default_deployment, _deployment_causes),
        (
            column("Ready", lambda obj: _ready(obj, "readyReplicas")),
            column("Up-to-date", at("status.updatedReplicas", 0)),
            column("Available", at("status.availableReplicas", 0)),
            age_column(),
            *_template_columns(),
            column("Selector", _selector, priority=1),
        ),
    )


def _stateful_set() -> ServedKind:
    return _workload(
        Resource("apps", "v1", "statefulsets", "StatefulSet"),
        "Keeps numbered pods with stable names and storage running.",
        {
            "replicas": integer("Wanted number of pods."),
            "serviceName": text("Service that gives the pods their names."),
            "podManagementPolicy": text("OrderedReady or Parallel."),
            "updateStrategy": anything("How pods are replaced."),
            "revisionHistoryLimit": integer("How many old revisions are kept."),
            "minReadySeconds": integer("Seconds a new pod must be ready to count."),
            "volumeClaimTemplates": items(anything("A claim."), "Claims that every pod gets."),
            "persistentVolumeClaimRetentionPolicy": anything("What happens to claims of pods that go."),
            "ordinals": anything("Where numbers start."),
        },
        "sts",
        _prepared(_default_stateful_set, _stateful_causes),
        (column("Ready", lambda obj: _ready(obj, "readyReplicas")), age_column(), *_template_columns()),
    )


def _daemon_set() -> ServedKind:
    counts = (
        ("Desired", "desiredNumberScheduled"),
        ("Current", "currentNumberScheduled"),
        ("Ready", "numberReady"),
        ("Up-to-date", "updatedNumberScheduled"),
        ("Available", "numberAvailable"),
    )
    return _workload(
        Resource("apps", "v1", "daemonsets", "DaemonSet"),
        "Keeps one pod on every node running.",
        {
            "updateStrategy": anything("How pods are replaced."),
            "minReadySeconds": integer("Seconds a new pod must be ready to count."),
            "revisionHistoryLimit": integer("How many old revisions are kept."),
        },
        "ds",
        _prepared(_default_daemon_set, _no_causes),
        (
            *(column(name, at(f"status.{field}", 0), type="integer") for name, field in counts),
            column("Node Selector", _node_selector),
            age_column(),
            *_template_columns(),
            column("Selector", _selector, priority=1),
        ),
    )


def _replica_set() -> ServedKind:
    return _workload(
        Resource("apps", "v1", "replicasets", "ReplicaSet"),
        "Keeps a number of equal pods running.",
        {
            "replicas": integer("Wanted number of pods."),
            "minReadySeconds": integer("Seconds a new pod must be ready to count."),
        },
        "rs",
        _prepared(lambda obj: obj["spec"].setdefault("replicas", 1), _no_causes),
        (
            column("Desired", at("spec.replicas", 0), type="integer"),
            column("Current", at("status.replicas", 0), type="integer"),
            column("Ready", at("status.readyReplicas", 0), type="integer"),
            age_column(),
            *_template_columns(),
            column("Selector", _selector, priority=1),
        ),
    )


def _workload(  # noqa: PLR0917 - a row of a table; names at four calls would only repeat the types
    resource: Resource,
    description: str,
    fields: dict[str, JsonObject],
    short_name: str,
    prepare: Prepare,
    columns: tuple[Column, ...],
) -> ServedKind:
    spec = struct(
        f"{_APPS}.{resource.kind}Spec",
        "What the workload wants.",
        {
            "selector": described(LABEL_SELECTOR, "Selects the pods; must match the labels of the template."),
            "template": pods.pod_template(),
            **fields,
        },
        required=["selector", "template"],
        preserve_unknown_fields=True,
    )
    status = struct(
        f"{_APPS}.{resource.kind}Status",
        "State of the workload.",
        {
            "observedGeneration": integer("The generation the status is about.", "int64"),
            "conditions": conditions(f"{_APPS}.{resource.kind}Condition"),
        },
        preserve_unknown_fields=True,
    )
    return builtin_kind(
        resource,
        f"{_APPS}.{resource.kind}",
        description,
        {"spec": spec, "status": status},
        prepare=prepare,
        short_names=(short_name,),
        categories=("all",),
        subresources=frozenset({"status"}),
        columns=columns,
    )


_Causes = Callable[[JsonObject, JsonObject | None], Iterator[Cause]]


def _prepared(default: Callable[[JsonObject], Any], own_causes: _Causes) -> Prepare:
    def prepare(new: JsonObject, old: JsonObject | None) -> list[Cause]:
        spec = new.setdefault("spec", {})
        template = spec.setdefault("template", {})
        pods.default_template(template)
        default(new)
        new.setdefault("status", dict.fromkeys(_FIRST_STATUS[new["kind"]], 0))
        return [*_common_causes(spec, old), *own_causes(spec, (old or {}).get("spec"))]

    return prepare


def _common_causes(spec: JsonObject, old: JsonObject | None) -> Iterator[Cause]:
    replicas, selector = spec.get("replicas", 0), spec.get("selector")
    if replicas < 0:
        yield causes.invalid("spec.replicas", replicas, "must be greater than or equal to 0")
    if not selector:
        yield causes.required("spec.selector")
    labels = (spec["template"].get("metadata") or {}).get("labels")
    if not pods.matches(selector, labels or {}):
        detail = "`selector` does not match template `labels`"
        yield causes.invalid("spec.template.metadata.labels", labels, detail)
    yield from pods.template_causes(spec["template"], "spec.template")
    if old is not None and selector != (old.get("spec") or {}).get("selector"):
        yield causes.invalid("spec.selector", selector, "field is immutable")


def _no_causes(_spec: JsonObject, _old: JsonObject | None) -> Iterator[Cause]:
    return iter(())


def _default_deployment(obj: JsonObject) -> None:
    spec = obj["spec"]
    spec.setdefault("replicas", 1)
    strategy = spec.setdefault("strategy", {})
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)


def _deployment_causes(spec: JsonObject, _old: JsonObject | None) -> Iterator[Cause]:
    strategy = spec["strategy"]
    if strategy["type"] not in {"Recreate", "RollingUpdate"}:
        shown = causes.Verbatim('{"Type":' + causes.go_quote(strategy["type"]) + ',"RollingUpdate":null}')
        yield causes.not_supported("spec.strategy", shown, ("Recreate", "RollingUpdate"))


def _default_stateful_set(obj: JsonObject) -> None:
    spec = obj["spec"]
    spec.setdefault("replicas", 1)
    spec.setdefault("podManagementPolicy", "OrderedReady")
    strategy = spec.setdefault("updateStrategy", {})
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        strategy.setdefault("rollingUpdate", {}).setdefault("partition", 0)
    spec.setdefault("revisionHistoryLimit", 10)
    retention = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
    retention.setdefault("whenDeleted", "Retain")
    retention.setdefault("whenScaled", "Retain")


def _stateful_causes(spec: JsonObject, old: JsonObject | None) -> Iterator[Cause]:
    if old is None:
        return
    if any(spec.get(name) != old.get(name) for name in {*spec, *old} - set(_STATEFUL_MUTABLE)):
        listed = ", ".join(f"'{name}'" for name in _STATEFUL_MUTABLE[:-1])
        detail = (
            f"updates to statefulset spec for fields other than {listed} and '{_STATEFUL_MUTABLE[-1]}' are forbidden"
        )
        yield causes.forbidden("spec", detail)


def _default_daemon_set(obj: JsonObject) -> None:
    spec = obj["spec"]
    strategy = spec.setdefault("updateStrategy", {})
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", 1)
        rolling.setdefault("maxSurge", 0)
    spec.setdefault("revisionHistoryLimit", 10)
    annotations = obj["metadata"].setdefault("annotations", {})
    annotations.setdefault("deprecated.daemonset.template.generation", "1")


def _ready(obj: JsonObject, field: str) -> str:
    return f"{at(f'status.{field}', 0)(obj)}/{at('spec.replicas', 0)(obj)}"


def _selector(obj: JsonObject) -> str:
    labels: dict[str, str] = at("spec.selector.matchLabels", {})(obj)
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items())) or "<none>"


def _node_selector(obj: JsonObject) -> str:
    labels: dict[str, str] = at("spec.template.spec.nodeSelector", {})(obj)
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items())) or "<none>"


def _template_columns() -> tuple[Column, ...]:
    def template(obj: JsonObject) -> JsonObject:
        found: JsonObject = at("spec.template", {})(obj)
        return found

    return (
        column("Containers", lambda obj: pods.container_names(template(obj)), priority=1),
        column("Images", lambda obj: pods.container_images(template(obj)), priority=1),
    )
