"""Pod templates of workloads: typed where patches merge lists by key, open elsewhere; nothing here runs pods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from kubebase.meta import JsonObject
from localkube.errors import Cause
from localkube.schema import causes, metadata
from localkube.schema.builtin.parts import (
    CORE,
    LOCAL_REFERENCE,
    anything,
    boolean,
    described,
    integer,
    items,
    map_list,
    struct,
    text,
    texts,
)

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
    seen: set[str] = set()
    for index, container in enumerate(containers):
        where, name = f"{path}.spec.containers[{index}]", container.get("name") or ""
        if not name:
            yield causes.required(f"{where}.name")
        elif name in seen:
            yield causes.duplicate(f"{where}.name", name)
        seen.add(name)
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
