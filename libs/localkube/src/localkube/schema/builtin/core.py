"""core/v1: Namespace, Secret, ConfigMap, ServiceAccount, Service."""

from __future__ import annotations

from typing import Final

from kubebase.meta import JsonObject, Resource
from localkube.model import ServedKind
from localkube.schema import names
from localkube.schema.builtin import core_rules
from localkube.schema.builtin.kinds import age_column, at, builtin_kind, column
from localkube.schema.builtin.parts import (
    CORE,
    LOCAL_REFERENCE,
    OBJECT_REFERENCE,
    anything,
    boolean,
    conditions,
    int_or_text,
    integer,
    items,
    map_list,
    secrets,
    struct,
    text,
    texts,
)

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
        name_rule=names.dns_label,
        prepare=core_rules.prepare_namespace,
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
        prepare=core_rules.prepare_secret,
        columns=(column("Type", at("type", "")), column("Data", core_rules.data_count), age_column()),
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
        prepare=core_rules.prepare_config_map,
        short_names=("cm",),
        columns=(column("Data", core_rules.data_count), age_column()),
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
        name_rule=names.dns_label,
        prepare=core_rules.prepare_service,
        short_names=("svc",),
        categories=("all",),
        subresources=frozenset({"status"}),
        columns=(
            column("Type", at("spec.type", "")),
            column("Cluster-IP", at("spec.clusterIP", "<none>")),
            column("External-IP", core_rules.external_ip),
            column("Port(s)", core_rules.port_list),
            age_column(),
            column("Selector", core_rules.selector_text, priority=1),
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
