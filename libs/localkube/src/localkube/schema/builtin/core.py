"""core/v1 (Namespace, Secret, ConfigMap, ServiceAccount, Service) and the Lease of coordination.k8s.io/v1."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from typing import Any, Final

from kubebase.meta import JsonObject, Resource
from localkube.errors import Cause
from localkube.model import ServedKind
from localkube.schema import causes, metadata
from localkube.schema.builtin.kinds import (
    CORE,
    LOCAL_REFERENCE,
    OBJECT_REFERENCE,
    age_column,
    anything,
    at,
    boolean,
    builtin_kind,
    column,
    conditions,
    int_or_text,
    integer,
    items,
    map_list,
    micro_time,
    secrets,
    struct,
    text,
    texts,
)

# --- Rules and defaults of core/v1 kinds beyond their schemas, and their table cells ----------------------------------

DATA_LIMIT: Final = 1024 * 1024
_IMMUTABLE: Final = "field is immutable when `immutable` is set"
_REQUIRED_KEYS: Final = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}
_JSON_KEYS: Final = (".dockerconfigjson", ".dockercfg")
_ACCOUNT_TOKEN: Final = "kubernetes.io/service-account-token"  # noqa: S105 - a type of Secret, not a secret
_ACCOUNT_NAME: Final = "kubernetes.io/service-account.name"
_NAME_LABEL: Final = "kubernetes.io/metadata.name"
_SERVICE_TYPES: Final = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_PROTOCOLS: Final = ("SCTP", "TCP", "UDP")


def prepare_namespace(new: JsonObject, old: JsonObject | None) -> list[Cause]:
    meta = new["metadata"]
    if meta.get("name"):
        meta.setdefault("labels", {})[_NAME_LABEL] = meta["name"]
    if old is None:
        new["spec"] = {"finalizers": ["kubernetes"]}
        new["status"] = {"phase": "Active"}
    return []


def prepare_secret(new: JsonObject, old: JsonObject | None) -> list[Cause]:
    _fold_string_data(new)
    new["type"] = new.get("type") or "Opaque"
    data: dict[str, str] = new.get("data") or {}
    found = [*_key_causes(data, "data"), *_secret_type_causes(new, data)]
    if sum(_decoded_size(value) for value in data.values()) > DATA_LIMIT:
        found.append(causes.too_long("data", DATA_LIMIT))
    if old is not None:
        if new["type"] != old.get("type"):
            found.append(causes.invalid("type", new["type"], "field is immutable"))
        found += _immutable_causes(new, old, ("data",))
    return found


def prepare_config_map(new: JsonObject, old: JsonObject | None) -> list[Cause]:
    data, binary = new.get("data") or {}, new.get("binaryData") or {}
    found = [
        causes.invalid(f"data[{key}]", key, "duplicate of key present in binaryData") for key in data if key in binary
    ]
    found += [*_key_causes(data, "data"), *_key_causes(binary, "binaryData")]
    size = sum(len(value.encode()) for value in data.values())
    if size + sum(_decoded_size(value) for value in binary.values()) > DATA_LIMIT:
        found.append(causes.too_long("[]", DATA_LIMIT))
    if old is not None:
        found += _immutable_causes(new, old, ("data", "binaryData"))
    return found


def prepare_service(new: JsonObject, old: JsonObject | None) -> list[Cause]:
    spec = new.setdefault("spec", {})
    new.setdefault("status", {"loadBalancer": {}})
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    if spec["sessionAffinity"] == "ClientIP":
        spec.setdefault("sessionAffinityConfig", {"clientIP": {"timeoutSeconds": 10800}})
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        if "port" in port:
            port.setdefault("targetPort", port["port"])
    found = list(_service_causes(spec))
    if not found and spec["type"] != "ExternalName":
        _assign_addresses(new, (old or {}).get("spec") or {})
    return found


def data_count(obj: JsonObject) -> int:
    return len(obj.get("data") or {}) + len(obj.get("binaryData") or {})


def external_ip(obj: JsonObject) -> str:
    spec = obj.get("spec") or {}
    if spec.get("type") == "ExternalName":
        return str(spec.get("externalName", ""))
    ingress = ((obj.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []
    found = [*(item.get("ip") or item.get("hostname") or "" for item in ingress), *(spec.get("externalIPs") or [])]
    if not found and spec.get("type") == "LoadBalancer":
        return "<pending>"
    return ",".join(found) or "<none>"


def port_list(obj: JsonObject) -> str:
    ports = (obj.get("spec") or {}).get("ports") or []
    shown = [
        f"{port.get('port')}:{port['nodePort']}/{port.get('protocol')}"
        if port.get("nodePort")
        else f"{port.get('port')}/{port.get('protocol')}"
        for port in ports
    ]
    return ",".join(shown) or "<none>"


def selector_text(obj: JsonObject) -> str:
    selector: dict[str, Any] = (obj.get("spec") or {}).get("selector") or {}
    return ",".join(f"{key}={value}" for key, value in sorted(selector.items())) or "<none>"


def _fold_string_data(secret: JsonObject) -> None:
    plain: dict[str, str] = secret.pop("stringData", None) or {}
    if plain:
        encoded = {key: base64.b64encode((value or "").encode()).decode() for key, value in plain.items()}
        secret["data"] = {**(secret.get("data") or {}), **encoded}


def _decoded_size(value: str | None) -> int:
    text = value or ""
    return len(text) // 4 * 3 - text.count("=")


def _key_causes(data: dict[str, str], field: str) -> Iterator[Cause]:
    for key in data:
        for message in metadata.config_key(key):
            yield causes.invalid(f"{field}[{key}]", key, message)


def _secret_type_causes(secret: JsonObject, data: dict[str, str]) -> Iterator[Cause]:
    kind = secret["type"]
    if kind == _ACCOUNT_TOKEN:
        if not (secret["metadata"].get("annotations") or {}).get(_ACCOUNT_NAME):
            yield causes.required(f"metadata.annotations[{_ACCOUNT_NAME}]")
    elif kind == "kubernetes.io/basic-auth" and "username" not in data and "password" not in data:
        yield causes.required("data[username]")
        yield causes.required("data[password]")
    for key in _REQUIRED_KEYS.get(kind, ()):
        if key not in data or (kind == "kubernetes.io/ssh-auth" and not data[key]):
            yield causes.required(f"data[{key}]")
        elif key in _JSON_KEYS and not _is_json(data[key]):
            yield causes.invalid(f"data[{key}]", "<secret contents redacted>", "invalid JSON")


def _is_json(value: str) -> bool:
    try:
        json.loads(base64.b64decode(value))
    except ValueError:
        return False
    return True


def _immutable_causes(new: JsonObject, old: JsonObject, fields: tuple[str, ...]) -> Iterator[Cause]:
    if not old.get("immutable"):
        return
    if not new.get("immutable"):
        yield causes.forbidden("immutable", _IMMUTABLE)
    for field in fields:
        if (new.get(field) or {}) != (old.get(field) or {}):
            yield causes.forbidden(field, _IMMUTABLE)


def _service_causes(spec: JsonObject) -> Iterator[Cause]:
    ports, kind = spec.get("ports") or [], spec["type"]
    if kind not in _SERVICE_TYPES:
        yield causes.not_supported("spec.type", kind, _SERVICE_TYPES)
    if kind == "ExternalName" and not spec.get("externalName"):
        yield causes.required("spec.externalName")
    if not ports and kind != "ExternalName" and spec.get("clusterIP") != "None":
        yield causes.required("spec.ports")
    names: set[str] = set()
    for index, port in enumerate(ports):
        yield from _port_causes(port, f"spec.ports[{index}]", names, single=len(ports) == 1)
    if spec["sessionAffinity"] not in {"ClientIP", "None"}:
        yield causes.not_supported("spec.sessionAffinity", spec["sessionAffinity"], ("ClientIP", "None"))


def _port_causes(port: JsonObject, path: str, names: set[str], *, single: bool) -> Iterator[Cause]:
    name = port.get("name") or ""
    if not name and not single:
        yield causes.required(f"{path}.name")
    elif name:
        for message in metadata.dns_label(name):
            yield causes.invalid(f"{path}.name", name, message)
        if name in names:
            yield causes.duplicate(f"{path}.name", name)
        names.add(name)
    yield from _number_causes(port.get("port") or 0, f"{path}.port")
    if port["protocol"] not in _PROTOCOLS:
        yield causes.not_supported(f"{path}.protocol", port["protocol"], _PROTOCOLS)
    target = port.get("targetPort")
    if isinstance(target, int):
        yield from _number_causes(target, f"{path}.targetPort")


def _number_causes(number: int, path: str) -> Iterator[Cause]:
    if not 1 <= number <= 65535:
        yield causes.invalid(path, number, "must be between 1 and 65535, inclusive")


def _assign_addresses(service: JsonObject, old: JsonObject) -> None:
    """Assign a stable address. Clients read the field; localkube routes no traffic."""
    spec = service["spec"]
    if not spec.get("clusterIP"):
        spec["clusterIP"] = old.get("clusterIP") or _made_up_address(service["metadata"])
    spec.setdefault("clusterIPs", [spec["clusterIP"]])
    dual = spec["clusterIP"] == "None" and not spec.get("selector")
    spec.setdefault("ipFamilies", ["IPv4", "IPv6"] if dual else ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "RequireDualStack" if dual else "SingleStack")
    spec.setdefault("internalTrafficPolicy", "Cluster")
    if spec["type"] in {"NodePort", "LoadBalancer"}:
        spec.setdefault("externalTrafficPolicy", "Cluster")


def _made_up_address(meta: JsonObject) -> str:
    digest = hashlib.sha256(f"{meta.get('namespace')}/{meta.get('name')}".encode()).digest()
    return f"10.{96 + digest[0] % 16}.{digest[1]}.{1 + digest[2] % 254}"


_NO_BULK_DELETE: Final = ("create", "delete", "get", "list", "patch", "update", "watch")


def core_kinds() -> list[ServedKind]:
    return [_namespace(), _secret(), _config_map(), _service_account(), _service()]


def _namespace() -> ServedKind:
    spec = struct(
        f"{CORE}.NamespaceSpec",
        "What a namespace wants.",
        {"finalizers": items({"type": "string"}, "Who must agree before the namespace is removed.")},
    )
    status = struct(
        f"{CORE}.NamespaceStatus",
        "State of a namespace.",
        {"phase": text("Active or Terminating."), "conditions": conditions(f"{CORE}.NamespaceCondition")},
    )
    return builtin_kind(
        Resource("", "v1", "namespaces", "Namespace", namespaced=False),
        f"{CORE}.Namespace",
        "A scope for names of other objects.",
        {"spec": spec, "status": status},
        name_rule=metadata.dns_label,
        prepare=prepare_namespace,
        short_names=("ns",),
        verbs=_NO_BULK_DELETE,
        subresources=frozenset({"status", "finalize"}),
        columns=(column("Status", at("status.phase", "")), age_column()),
        selectable={"status.phase": "status.phase"},
    )


def _secret() -> ServedKind:
    return builtin_kind(
        Resource("", "v1", "secrets", "Secret"),
        f"{CORE}.Secret",
        "Confidential data of a certain type.",
        {
            "data": secrets("The data, base64 encoded; keys consist of letters, digits, '-', '_' and '.'."),
            "stringData": texts("Data as plain text, for writing only; it is stored in data."),
            "immutable": boolean("If true, data can no longer be changed."),
            "type": text("What the data is for; Opaque by default.", go_type="v1.SecretType"),
        },
        prepare=prepare_secret,
        columns=(column("Type", at("type", "")), column("Data", data_count), age_column()),
        selectable={"type": "type"},
    )


def _config_map() -> ServedKind:
    return builtin_kind(
        Resource("", "v1", "configmaps", "ConfigMap"),
        f"{CORE}.ConfigMap",
        "Configuration for programs to read.",
        {
            "data": texts("The data, as text."),
            "binaryData": secrets("Data that is not text, base64 encoded; its keys must differ from those of data."),
            "immutable": boolean("If true, data can no longer be changed."),
        },
        prepare=prepare_config_map,
        short_names=("cm",),
        columns=(column("Data", data_count), age_column()),
    )


def _service_account() -> ServedKind:
    return builtin_kind(
        Resource("", "v1", "serviceaccounts", "ServiceAccount"),
        f"{CORE}.ServiceAccount",
        "An identity for programs.",
        {
            "secrets": map_list(OBJECT_REFERENCE, ["name"], "Secrets that programs with this identity may use."),
            "imagePullSecrets": items(LOCAL_REFERENCE, "Secrets to pull images with."),
            "automountServiceAccountToken": boolean("Whether pods get a token of this account."),
        },
        short_names=("sa",),
        subresources=frozenset({"token"}),
        columns=(age_column(),),
    )


def _service() -> ServedKind:
    return builtin_kind(
        Resource("", "v1", "services", "Service"),
        f"{CORE}.Service",
        "A name and ports under which a set of pods is reached.",
        {"spec": _service_spec(), "status": _service_status()},
        name_rule=metadata.dns_label,
        prepare=prepare_service,
        short_names=("svc",),
        categories=("all",),
        subresources=frozenset({"status"}),
        columns=(
            column("Type", at("spec.type", "")),
            column("Cluster-IP", at("spec.clusterIP", "<none>")),
            column("External-IP", external_ip),
            column("Port(s)", port_list),
            age_column(),
            column("Selector", selector_text, priority=1),
        ),
        selectable={"spec.clusterIP": "spec.clusterIP", "spec.type": "spec.type"},
    )


def _service_spec() -> JsonObject:
    port = struct(
        f"{CORE}.ServicePort",
        "A port of a service.",
        {
            "name": text("Name of the port; needed if there are several."),
            "protocol": {**text("TCP, UDP or SCTP; TCP by default.", go_type="v1.Protocol"), "default": "TCP"},
            "port": integer("The port of the service."),
            "targetPort": int_or_text("Number or name of the port of the pods; the same as port by default."),
            "nodePort": integer("The port on every node."),
            "appProtocol": text("The protocol that applications speak."),
        },
        required=["port"],
    )
    return struct(
        f"{CORE}.ServiceSpec",
        "What a service offers.",
        {
            "ports": map_list(port, ["port", "protocol"], "The ports.", merge_key="port"),
            "selector": {**texts("Labels of the pods."), "x-kubernetes-map-type": "atomic"},
            "type": text("ClusterIP, NodePort, LoadBalancer or ExternalName.", go_type="v1.ServiceType"),
            "clusterIP": text("Address of the service; None for a headless one."),
            "clusterIPs": items({"type": "string"}, "Addresses of the service."),
            "externalIPs": items({"type": "string"}, "Further addresses that lead to the service."),
            "externalName": text("Name that the service stands for, for type ExternalName."),
            "sessionAffinity": text("None or ClientIP.", go_type="v1.ServiceAffinity"),
            "sessionAffinityConfig": anything("Details of session affinity."),
            "ipFamilies": items({"type": "string"}, "IPv4, IPv6 or both."),
            "ipFamilyPolicy": text("SingleStack, PreferDualStack or RequireDualStack."),
            "internalTrafficPolicy": text("Cluster or Local."),
            "externalTrafficPolicy": text("Cluster or Local."),
            "loadBalancerIP": text("Wanted address of the load balancer."),
            "loadBalancerClass": text("Which load balancer is meant."),
            "loadBalancerSourceRanges": items({"type": "string"}, "Who may reach the load balancer."),
            "allocateLoadBalancerNodePorts": boolean("Whether a load balancer gets node ports."),
            "publishNotReadyAddresses": boolean("Whether pods are listed before they are ready."),
            "healthCheckNodePort": integer("Port of the health check of the load balancer."),
            "trafficDistribution": text("Preference for where traffic goes."),
        },
    )


def _service_status() -> JsonObject:
    return struct(
        f"{CORE}.ServiceStatus",
        "State of a service.",
        {
            "loadBalancer": anything("Addresses of the load balancer."),
            "conditions": conditions("io.k8s.apimachinery.pkg.apis.meta.v1.Condition"),
        },
    )


# --- coordination.k8s.io/v1: Lease ------------------------------------------------------------------------------------

_COORDINATION: Final = "io.k8s.api.coordination.v1"


def coordination_kinds() -> list[ServedKind]:
    spec = struct(
        f"{_COORDINATION}.LeaseSpec",
        "Who holds the lease, and for how long.",
        {
            "holderIdentity": text("Who holds the lease; empty if it is free."),
            "leaseDurationSeconds": integer("How long others wait after the last renewal."),
            "acquireTime": micro_time("When the holder took the lease."),
            "renewTime": micro_time("When the holder last renewed it."),
            "leaseTransitions": integer("How often the lease changed hands."),
            "preferredHolder": text("Who should take the lease next."),
            "strategy": text("How holders are chosen."),
        },
    )
    lease = builtin_kind(
        Resource("coordination.k8s.io", "v1", "leases", "Lease"),
        f"{_COORDINATION}.Lease",
        "A lock that expires.",
        {"spec": spec},
        prepare=_prepare_lease,
        columns=(column("Holder", at("spec.holderIdentity", "")), age_column()),
    )
    return [lease]


def _prepare_lease(new: JsonObject, _old: JsonObject | None) -> list[Cause]:
    spec = new.setdefault("spec", {})
    found: list[Cause] = []
    duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if duration is not None and duration <= 0:
        found.append(causes.invalid("spec.leaseDurationSeconds", duration, "must be greater than 0"))
    if transitions is not None and transitions < 0:
        found.append(causes.invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
    return found
