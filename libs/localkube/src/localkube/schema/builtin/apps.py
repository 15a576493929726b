"""apps/v1: workloads as stored objects. They have no controller here; clients write their status."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from kubebase.meta import JsonObject, Resource
from localkube.errors import Cause
from localkube.model import Column, ServedKind
from localkube.schema import causes, metadata
from localkube.schema.builtin.kinds import (
    CORE,
    LABEL_SELECTOR,
    LOCAL_REFERENCE,
    Prepare,
    age_column,
    anything,
    at,
    boolean,
    builtin_kind,
    column,
    conditions,
    described,
    integer,
    items,
    map_list,
    struct,
    text,
    texts,
)

# --- Pod templates of workloads: typed where patches merge lists by key, open elsewhere; nothing here runs pods -------

_FILE_MODE: Final = 0o644
_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_POD_KEYS: Final = {
    "initContainers": ("name", "image"),
    "volumes": ("name",),
    "hostAliases": ("ip",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
}
_CONTAINER_KEYS: Final = {
    "env": ("name",),
    "ports": ("containerPort",),
    "volumeMounts": ("name", "mountPath"),
    "volumeDevices": ("name", "devicePath"),
}
_FILE_VOLUMES: Final = ("secret", "configMap", "downwardAPI", "projected")


def pod_template() -> JsonObject:
    return struct(
        f"{CORE}.PodTemplateSpec",
        "The pods to create.",
        {"metadata": metadata.OBJECT_META, "spec": _pod_spec()},
    )


def default_template(template: JsonObject) -> None:
    """Fill in the fields of a pod template that the real server fills in."""
    spec = template.setdefault("spec", {})
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
        _default_container(container)
    for volume in spec.get("volumes") or ():
        for kind in _FILE_VOLUMES:
            if isinstance(volume.get(kind), dict):
                volume[kind].setdefault("defaultMode", _FILE_MODE)


def template_causes(template: JsonObject, path: str) -> Iterator[Cause]:
    """Report the mistakes in the containers of a template."""
    containers = (template.get("spec") or {}).get("containers") or []
    if not containers:
        yield causes.required(f"{path}.spec.containers")
    names: set[str] = set()
    for index, container in enumerate(containers):
        where, name = f"{path}.spec.containers[{index}]", container.get("name") or ""
        if not name:
            yield causes.required(f"{where}.name")
        elif name in names:
            yield causes.duplicate(f"{where}.name", name)
        names.add(name)
        if not container.get("image"):
            yield causes.required(f"{where}.image")
        yield from _key_causes(container, _CONTAINER_KEYS, where)
    yield from _key_causes(template.get("spec") or {}, _POD_KEYS, f"{path}.spec")


def matches(selector: JsonObject | None, labels: dict[str, Any]) -> bool:
    """Return whether a label selector selects the labels; a missing or empty one selects nothing here."""
    if not selector:
        return False
    wanted = selector.get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    return all(_holds(requirement, labels) for requirement in selector.get("matchExpressions") or ())


def container_names(template: JsonObject) -> str:
    return ",".join(container.get("name", "") for container in (template.get("spec") or {}).get("containers") or ())


def container_images(template: JsonObject) -> str:
    return ",".join(container.get("image", "") for container in (template.get("spec") or {}).get("containers") or ())


def _key_causes(obj: JsonObject, keys: Mapping[str, Sequence[str]], path: str) -> Iterator[Cause]:
    """Report list items that lack a key field."""
    for name, needed in keys.items():
        for index, item in enumerate(obj.get(name) or ()):
            yield from (causes.required(f"{path}.{name}[{index}].{key}") for key in needed if not item.get(key))


def _holds(requirement: JsonObject, labels: dict[str, Any]) -> bool:
    key, values = requirement.get("key"), requirement.get("values") or []
    match requirement.get("operator"):
        case "In":
            return labels.get(str(key)) in values
        case "NotIn":
            return labels.get(str(key)) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case _:
            return False


def _default_container(container: JsonObject) -> None:
    container.setdefault("resources", {})
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    container.setdefault("imagePullPolicy", _pull_policy(container.get("image") or ""))
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
    for variable in container.get("env") or ():
        field = (variable.get("valueFrom") or {}).get("fieldRef")
        if isinstance(field, dict):
            field.setdefault("apiVersion", "v1")
    for kind in _PROBES:
        probe = container.get(kind)
        if isinstance(probe, dict):
            probe |= {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3} | probe


def _pull_policy(image: str) -> str:
    if "@" in image:
        return "IfNotPresent"
    tag = image.rpartition("/")[2].partition(":")[2] or "latest"
    return "Always" if tag == "latest" else "IfNotPresent"


def _pod_spec() -> JsonObject:
    container = _container()
    named = struct(f"{CORE}.Volume", "Files for the containers.", {"name": text("Name of the volume.")}, **_OPEN)
    alias = struct(f"{CORE}.HostAlias", "Names of an address.", {"ip": text("The address.")}, **_OPEN)
    spread = struct(
        f"{CORE}.TopologySpreadConstraint",
        "How pods spread.",
        {"topologyKey": text("Label of the domains."), "whenUnsatisfiable": text("DoNotSchedule or ScheduleAnyway.")},
        **_OPEN,
    )
    return struct(
        f"{CORE}.PodSpec",
        "What runs in a pod.",
        {
            "containers": map_list(container, ["name"], "The containers."),
            "initContainers": map_list(container, ["name"], "Containers that run before the others."),
            "volumes": map_list(named, ["name"], "Files for the containers.", strategy="merge,retainKeys"),
            "imagePullSecrets": map_list(LOCAL_REFERENCE, ["name"], "Secrets to pull images with."),
            "hostAliases": map_list(alias, ["ip"], "Further host names."),
            "topologySpreadConstraints": map_list(spread, ["topologyKey", "whenUnsatisfiable"], "How pods spread."),
            "tolerations": items(anything("A taint that is tolerated."), "Taints that are tolerated."),
            "serviceAccountName": text("Identity of the pod."),
            "serviceAccount": text("Old name of serviceAccountName."),
            "automountServiceAccountToken": boolean("Whether the pod gets a token."),
            "restartPolicy": text("Always, OnFailure or Never."),
            "nodeSelector": {**texts("Labels of the nodes."), "x-kubernetes-map-type": "atomic"},
            "nodeName": text("The node the pod runs on."),
            "terminationGracePeriodSeconds": integer("Seconds to end in peace.", "int64"),
            "activeDeadlineSeconds": integer("Seconds until the pod is ended.", "int64"),
            "hostNetwork": boolean("Whether the pod uses the network of its node."),
            "dnsPolicy": text("How names are resolved."),
            "priorityClassName": text("Priority of the pod."),
            "schedulerName": text("Who places the pod."),
        },
        required=["containers"],
        **_OPEN,
    )


def _container() -> JsonObject:
    variable = struct(
        f"{CORE}.EnvVar",
        "An environment variable.",
        {
            "name": text("Name of the variable."),
            "value": text("Its value."),
            "valueFrom": anything("Where it comes from.", go_type="v1.EnvVarSource"),
        },
        required=["name"],
    )
    port = struct(
        f"{CORE}.ContainerPort",
        "A port of a container.",
        {
            "name": text("Name of the port."),
            "containerPort": integer("Number of the port."),
            "hostPort": integer("The port on the node."),
            "hostIP": text("The address on the node."),
            "protocol": {**text("TCP, UDP or SCTP."), "default": "TCP"},
        },
        required=["containerPort"],
    )
    strings = {"type": "string"}
    return struct(
        f"{CORE}.Container",
        "A program with its image and settings.",
        {
            "name": text("Name of the container."),
            "image": text("The image."),
            "imagePullPolicy": text("Always, IfNotPresent or Never."),
            "command": items(strings, "Replaces the entry point of the image."),
            "args": items(strings, "Arguments of the entry point."),
            "workingDir": text("Directory the program starts in."),
            "env": map_list(variable, ["name"], "Environment variables."),
            "envFrom": items(anything("A source of variables."), "Sources of environment variables."),
            "ports": map_list(port, ["containerPort", "protocol"], "Ports.", merge_key="containerPort"),
            **_container_volumes(),
            "resources": described(anything(""), "CPU and memory."),
            "securityContext": anything("Rights of the program.", go_type="v1.SecurityContext"),
            **{name: anything("How the container is probed.") for name in _PROBES},
        },
        required=["name"],
        **_OPEN,
    )


def _container_volumes() -> dict[str, JsonObject]:
    mount = struct(
        f"{CORE}.VolumeMount",
        "A volume in the file system of a container.",
        {
            "name": text("Name of the volume."),
            "mountPath": text("Where it is seen."),
            "readOnly": boolean("Whether it is read-only."),
        },
        required=["name", "mountPath"],
        **_OPEN,
    )
    device = struct(
        f"{CORE}.VolumeDevice",
        "A block device in a container.",
        {"name": text("Name of the volume."), "devicePath": text("Where it is seen.")},
    )
    return {
        "volumeMounts": map_list(mount, ["mountPath"], "Volumes in the file system."),
        "volumeDevices": map_list(device, ["devicePath"], "Block devices."),
    }


_OPEN: Final[dict[str, Any]] = {"preserve_unknown_fields": True}


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
            "template": pod_template(),
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
        default_template(template)
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
    if not matches(selector, labels or {}):
        detail = "`selector` does not match template `labels`"
        yield causes.invalid("spec.template.metadata.labels", labels, detail)
    yield from template_causes(spec["template"], "spec.template")
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
        column("Containers", lambda obj: container_names(template(obj)), priority=1),
        column("Images", lambda obj: container_images(template(obj)), priority=1),
    )
