"""Built-in kinds: rejected, defaulted and unreadable fields, as in a real kube-apiserver."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from kubebase.meta import JsonObject
from localkube.model import ServedKind
from localkube.schema.builtin import builtin_kinds

OBSERVED = Path(__file__).parent / "observed"
KINDS = {(kind.resource.api_version, kind.resource.kind): kind for kind in builtin_kinds()}


def rows(name: str) -> list[Any]:
    return [pytest.param(row, id=row["id"]) for row in json.loads((OBSERVED / name).read_text())]


def kind_of(obj: JsonObject) -> ServedKind:
    return KINDS[obj["apiVersion"], obj["kind"]]


def written(obj: JsonObject, old: JsonObject | None) -> tuple[JsonObject, list[list[str]]]:
    """Return the object as the verbs would store it, and its problems."""
    obj = copy.deepcopy(obj)
    kind = kind_of(obj)
    meta = obj.setdefault("metadata", {})
    if kind.resource.namespaced:
        meta.setdefault("namespace", "default")
    kind.schema.prune(obj)
    causes = kind.prepare(obj, old) if kind.prepare else []
    causes += kind.schema.validate(obj, old)
    return obj, sorted([cause.field, cause.message, cause.reason] for cause in causes)


def without_addresses(obj: JsonObject) -> JsonObject:
    """Addresses of services are made up."""
    spec = obj.get("spec") or {}
    if spec.get("clusterIP") not in (None, "None"):
        spec |= {"clusterIP": "assigned", "clusterIPs": ["assigned"]}
    return obj


@pytest.mark.parametrize("row", rows("builtin_create.json"))
def test_a_new_object_gets_the_answer_of_the_real_server(row: JsonObject) -> None:
    unreadable = kind_of(row["object"]).schema.decode_error(row["object"])
    stored, causes = written(row["object"], None)

    if row["code"] == 400:
        assert unreadable == row["message"]
        return
    assert unreadable is None
    if row.get("own_words"):  # the real message repeats a character of the secret
        assert [cause[0] for cause in causes] == [cause[0] for cause in row["causes"]]
    else:
        assert causes == sorted(row.get("causes", []))
    if row["code"] == 201:
        assert without_addresses(stored) == without_addresses(row["stored"])


@pytest.mark.parametrize("row", rows("builtin_update.json"))
def test_an_update_gets_the_answer_of_the_real_server(row: JsonObject) -> None:
    old, _ = written(row["old"], None)

    _, causes = written(row["object"], old)

    assert causes == sorted(row.get("causes", []))


@pytest.mark.parametrize("row", rows("builtin_unreadable.json"))
def test_a_field_of_a_wrong_type_is_named_in_the_words_of_the_real_server(row: JsonObject) -> None:
    kind = kind_of(row["object"])

    message = kind.schema.decode_error(row["object"])

    assert message == row["message"]


def test_unknown_fields_are_dropped_and_named() -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x", "colour": "red"}, "spec": {}, "type": "a"}

    dropped = KINDS["v1", "Secret"].schema.prune(secret)

    assert dropped == ["metadata.colour", "spec"]
    assert secret == {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}, "type": "a"}


def test_too_much_data_is_refused() -> None:
    big = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}, "stringData": {"a": "x" * 1_048_577}}

    _, causes = written(big, None)

    assert causes == [["data", "Too long: may not be more than 1048576 bytes", "FieldValueTooLong"]]


def test_a_service_keeps_its_address_when_an_update_leaves_it_out() -> None:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "x"},
        "spec": {"ports": [{"port": 80}]},
    }
    old, _ = written(service, None)
    old["spec"]["clusterIP"] = "10.96.0.10"

    new, causes = written(service, old)

    assert causes == []
    assert new["spec"]["clusterIP"] == "10.96.0.10"


@pytest.mark.parametrize(
    ("api_version", "kind", "obj", "cells"),
    [
        pytest.param("v1", "Secret", {"type": "Opaque", "data": {"a": ""}}, ["Opaque", 1, None], id="secret"),
        pytest.param("v1", "Namespace", {"status": {"phase": "Active"}}, ["Active", None], id="namespace"),
        pytest.param("v1", "ConfigMap", {"data": {"a": ""}, "binaryData": {"b": ""}}, [2, None], id="config map"),
        pytest.param("v1", "ServiceAccount", {}, [None], id="service account"),
        pytest.param(
            "v1",
            "Service",
            {"spec": {"type": "ClusterIP", "clusterIP": "10.0.0.1", "ports": [{"port": 443, "protocol": "TCP"}]}},
            ["ClusterIP", "10.0.0.1", "<none>", "443/TCP", None, "<none>"],
            id="service",
        ),
        pytest.param("coordination.k8s.io/v1", "Lease", {"spec": {"holderIdentity": "me"}}, ["me", None], id="lease"),
        pytest.param(
            "apps/v1",
            "Deployment",
            {"spec": {"replicas": 2}, "status": {"readyReplicas": 1, "updatedReplicas": 2}},
            ["1/2", 2, 0, None, "", "", "<none>"],
            id="deployment",
        ),
        pytest.param(
            "rbac.authorization.k8s.io/v1",
            "RoleBinding",
            {
                "roleRef": {"kind": "Role", "name": "r"},
                "subjects": [{"kind": "ServiceAccount", "namespace": "n", "name": "s"}],
            },
            ["Role/r", None, "", "", "n/s"],
            id="role binding",
        ),
        pytest.param(
            "v1",
            "Event",
            {"involvedObject": {"kind": "Pod", "name": "p"}, "type": "Normal", "reason": "R", "message": "m\n"},
            [None, "Normal", "R", "pod/p", "", "", "m", None, 1, "x"],
            id="event",
        ),
    ],
)
def test_tables_show_what_kubectl_users_know(api_version: str, kind: str, obj: JsonObject, cells: list[Any]) -> None:
    columns = KINDS[api_version, kind].columns

    shown = [column.read({"metadata": {"name": "x"}, **obj}) for column in columns]

    assert shown == cells


def test_every_list_that_patches_merge_says_by_which_key() -> None:
    template = KINDS["apps/v1", "Deployment"].schema.openapi["properties"]["spec"]["properties"]["template"]
    pod = template["properties"]["spec"]["properties"]
    container = pod["containers"]["items"]["properties"]

    merge_keys = {
        name: schema["x-kubernetes-patch-merge-key"]
        for name, schema in {**pod, **container}.items()
        if "x-kubernetes-patch-merge-key" in schema
    }

    assert merge_keys == {
        "containers": "name",
        "initContainers": "name",
        "volumes": "name",
        "imagePullSecrets": "name",
        "hostAliases": "ip",
        "topologySpreadConstraints": "topologyKey",
        "env": "name",
        "ports": "containerPort",
        "volumeMounts": "mountPath",
        "volumeDevices": "devicePath",
    }


def test_nulls_read_as_a_go_decoder_reads_them() -> None:
    config: JsonObject = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "x", "finalizers": [None]},
        "data": {"a": None},
        "binaryData": None,
    }

    KINDS["v1", "ConfigMap"].schema.prune(config)

    assert config["data"] == {"a": ""}
    assert config["metadata"] == {"name": "x", "finalizers": [""]}
    assert "binaryData" not in config
