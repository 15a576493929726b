"""Rules of the built-in kinds that an operator meets: Secret, ConfigMap, Service, Event, Lease, roles, workloads."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest

from kuberun.testing.rawapi import RawApi

pytestmark = pytest.mark.live


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


class TestSecrets:
    async def test_string_data_becomes_data(self, api: RawApi, secrets: str) -> None:
        reply = await api.post(secrets, {"metadata": {"name": "a"}, "stringData": {"k": "välue"}})

        assert reply.status == 201
        assert reply.body["data"] == {"k": encoded("välue")}
        assert "stringData" not in reply.body
        assert reply.body["type"] == "Opaque"

    async def test_string_data_beats_data(self, api: RawApi, secrets: str) -> None:
        body = {"metadata": {"name": "a"}, "data": {"k": encoded("old"), "l": encoded("l")}, "stringData": {"k": "new"}}

        reply = await api.post(secrets, body)

        assert reply.body["data"] == {"k": encoded("new"), "l": encoded("l")}

    async def test_a_patch_of_string_data_merges_into_data(self, api: RawApi, secrets: str) -> None:
        await api.post(secrets, {"metadata": {"name": "a"}, "stringData": {"k": "1"}})

        reply = await api.patch(f"{secrets}/a", {"stringData": {"l": "2"}})

        assert reply.body["data"] == {"k": encoded("1"), "l": encoded("2")}

    async def test_values_must_be_base64(self, api: RawApi, secrets: str) -> None:
        reply = await api.post(secrets, {"metadata": {"name": "a"}, "data": {"k": "not base64!"}})

        assert (reply.status, reply.reason) == (400, "BadRequest")
        assert "illegal base64 data" in reply.message

    @pytest.mark.parametrize("key", ["no way", "a/b", "..", "ü", "a" * 254])
    async def test_a_bad_key_is_invalid(self, api: RawApi, secrets: str, key: str) -> None:
        reply = await api.post(secrets, {"metadata": {"name": "a"}, "stringData": {key: "v"}})

        assert (reply.status, reply.reason) == (422, "Invalid")
        assert {cause["field"] for cause in reply.causes} == {f"data[{key}]"}

    async def test_the_type_is_immutable(self, api: RawApi, secrets: str) -> None:
        await api.post(secrets, {"metadata": {"name": "a"}, "type": "example.com/one"})

        reply = await api.patch(f"{secrets}/a", {"type": "example.com/two"})

        assert (reply.status, reply.reason) == (422, "Invalid")
        assert reply.causes == [
            {
                "reason": "FieldValueInvalid",
                "message": 'Invalid value: "example.com/two": field is immutable',
                "field": "type",
            }
        ]

    @pytest.mark.parametrize(
        ("kind", "data", "field"),
        [
            pytest.param("kubernetes.io/tls", {"tls.crt": "x"}, "data[tls.key]", id="TLS needs a key"),
            pytest.param("kubernetes.io/tls", {"tls.key": "x"}, "data[tls.crt]", id="TLS needs a certificate"),
            pytest.param("kubernetes.io/ssh-auth", {}, "data[ssh-privatekey]", id="SSH needs a key"),
            pytest.param(
                "kubernetes.io/dockerconfigjson", {}, "data[.dockerconfigjson]", id="Docker needs its configuration"
            ),
            pytest.param(
                "kubernetes.io/dockerconfigjson",
                {".dockerconfigjson": "{"},
                "data[.dockerconfigjson]",
                id="Docker configuration is JSON",
            ),
            pytest.param(
                "kubernetes.io/basic-auth", {}, "data[username]", id="basic authentication needs a name or a password"
            ),
        ],
    )
    async def test_a_known_type_needs_its_keys(
        self, api: RawApi, secrets: str, kind: str, data: dict[str, str], field: str
    ) -> None:
        reply = await api.post(secrets, {"metadata": {"name": "a"}, "type": kind, "stringData": data})

        assert (reply.status, reply.reason) == (422, "Invalid")
        assert field in {cause["field"] for cause in reply.causes}

    async def test_more_than_a_mebibyte_is_too_long(self, api: RawApi, secrets: str) -> None:
        reply = await api.post(secrets, {"metadata": {"name": "a"}, "stringData": {"k": "x" * (1024 * 1024 + 1)}})

        assert (reply.status, reply.reason) == (422, "Invalid")
        assert [(cause["reason"], cause["field"]) for cause in reply.causes] == [("FieldValueTooLong", "data")]

    async def test_an_empty_value_is_kept(self, api: RawApi, secrets: str) -> None:
        reply = await api.post(secrets, {"metadata": {"name": "a"}, "data": {"k": ""}})

        assert reply.body["data"] == {"k": ""}


@pytest.mark.parametrize("plural", ["configmaps", "secrets"])
class TestImmutable:
    async def test_data_cannot_change(self, api: RawApi, namespace: str, plural: str) -> None:
        path = f"/api/v1/namespaces/{namespace}/{plural}"
        await api.post(path, {"metadata": {"name": "a"}, "data": {"k": encoded("v")}, "immutable": True})

        reply = await api.patch(f"{path}/a", {"data": {"k": encoded("w")}})

        assert (reply.status, reply.reason) == (422, "Invalid")
        assert reply.causes == [
            {
                "reason": "FieldValueForbidden",
                "message": "Forbidden: field is immutable when `immutable` is set",
                "field": "data",
            }
        ]

    async def test_the_mark_cannot_be_removed(self, api: RawApi, namespace: str, plural: str) -> None:
        path = f"/api/v1/namespaces/{namespace}/{plural}"
        await api.post(path, {"metadata": {"name": "a"}, "immutable": True})

        reply = await api.patch(f"{path}/a", {"immutable": False})

        assert reply.status == 422
        assert [cause["field"] for cause in reply.causes] == ["immutable"]

    async def test_metadata_may_change(self, api: RawApi, namespace: str, plural: str) -> None:
        path = f"/api/v1/namespaces/{namespace}/{plural}"
        await api.post(path, {"metadata": {"name": "a"}, "immutable": True})

        reply = await api.patch(f"{path}/a", {"metadata": {"labels": {"k": "v"}}})

        assert reply.status == 200


class TestConfigMaps:
    async def test_a_key_cannot_be_text_and_binary(self, api: RawApi, configmaps: str) -> None:
        body = {"metadata": {"name": "a"}, "data": {"k": "v"}, "binaryData": {"k": encoded("v")}}

        reply = await api.post(configmaps, body)

        assert (reply.status, reply.reason) == (422, "Invalid")
        assert "data[k]" in {cause["field"] for cause in reply.causes}

    async def test_binary_data_is_kept(self, api: RawApi, configmaps: str) -> None:
        value = base64.b64encode(bytes(range(256))).decode()

        reply = await api.post(configmaps, {"metadata": {"name": "a"}, "binaryData": {"k": value}})

        assert reply.body["binaryData"] == {"k": value}

    async def test_more_than_a_mebibyte_is_too_long(self, api: RawApi, configmaps: str) -> None:
        reply = await api.post(configmaps, {"metadata": {"name": "a"}, "data": {"k": "x" * (1024 * 1024 + 1)}})

        assert reply.status == 422
        assert [cause["reason"] for cause in reply.causes] == ["FieldValueTooLong"]


class TestServices:
    async def test_defaults(self, api: RawApi, namespace: str) -> None:
        reply = await api.post(
            f"/api/v1/namespaces/{namespace}/services",
            {
                "metadata": {"name": "a"},
                "spec": {"clusterIP": "None", "selector": {"app": "a"}, "ports": [{"port": 80}]},
            },
        )

        assert reply.status == 201
        assert reply.body["spec"]["type"] == "ClusterIP"
        assert reply.body["spec"]["sessionAffinity"] == "None"
        assert reply.body["spec"]["ports"] == [{"protocol": "TCP", "port": 80, "targetPort": 80}]

    async def test_ports_are_required(self, api: RawApi, namespace: str) -> None:
        reply = await api.post(f"/api/v1/namespaces/{namespace}/services", {"metadata": {"name": "a"}, "spec": {}})

        assert (reply.status, reply.reason) == (422, "Invalid")
        assert ("FieldValueRequired", "spec.ports") in {(one["reason"], one["field"]) for one in reply.causes}


class TestEvents:
    async def test_an_event_about_an_object(self, api: RawApi, namespace: str) -> None:
        events = f"/api/v1/namespaces/{namespace}/events"
        about = {"kind": "ConfigMap", "namespace": namespace, "name": "a", "uid": "1", "apiVersion": "v1"}
        for name, reason in (("a.1", "Synced"), ("a.2", "Failed")):
            body = {"metadata": {"name": name}, "involvedObject": about, "reason": reason, "type": "Normal", "count": 1}
            assert (await api.post(events, body)).status == 201

        reply = await api.get(events, fieldSelector="involvedObject.name=a,reason=Failed")

        assert [item["metadata"]["name"] for item in reply.body["items"]] == ["a.2"]

    async def test_an_event_must_be_in_the_namespace_of_its_object(self, api: RawApi, namespace: str) -> None:
        body = {
            "metadata": {"name": "a"},
            "involvedObject": {"kind": "ConfigMap", "namespace": "elsewhere", "name": "a"},
        }

        reply = await api.post(f"/api/v1/namespaces/{namespace}/events", body)

        assert (reply.status, reply.reason) == (422, "Invalid")
        assert [cause["field"] for cause in reply.causes] == ["involvedObject.namespace"]

    async def test_both_event_groups_show_the_same_objects(self, api: RawApi, namespace: str) -> None:
        about = {"kind": "ConfigMap", "namespace": namespace, "name": "a", "apiVersion": "v1"}
        body = {"metadata": {"name": "a"}, "involvedObject": about, "reason": "Synced", "message": "all well"}
        await api.post(f"/api/v1/namespaces/{namespace}/events", body)

        reply = await api.get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events/a")

        assert reply.status == 200
        assert reply.body["apiVersion"] == "events.k8s.io/v1"
        assert (reply.body["note"], reply.body["regarding"]["name"]) == ("all well", "a")


class TestLeases:
    @pytest.fixture
    def leases(self, namespace: str) -> str:
        return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"

    async def test_times_keep_microseconds(self, api: RawApi, leases: str) -> None:
        spec = {"holderIdentity": "me", "leaseDurationSeconds": 15, "renewTime": "2030-01-02T03:04:05.678901Z"}

        reply = await api.post(leases, {"metadata": {"name": "a"}, "spec": spec})

        assert reply.body["spec"] == spec

    async def test_one_of_two_candidates_takes_the_lease(self, api: RawApi, leases: str) -> None:
        created = await api.post(leases, {"metadata": {"name": "a"}, "spec": {"leaseDurationSeconds": 15}})
        claims = [{**created.body, "spec": {"holderIdentity": who, "leaseDurationSeconds": 15}} for who in ("x", "y")]

        replies = await asyncio.gather(*(api.put(f"{leases}/a", claim) for claim in claims))

        assert sorted(reply.status for reply in replies) == [200, 409]

    @pytest.mark.parametrize(
        ("spec", "field"),
        [
            pytest.param({"leaseDurationSeconds": 0}, "spec.leaseDurationSeconds", id="no duration"),
            pytest.param({"leaseTransitions": -1}, "spec.leaseTransitions", id="negative transitions"),
        ],
    )
    async def test_bad_numbers_are_invalid(self, api: RawApi, leases: str, spec: dict[str, Any], field: str) -> None:
        reply = await api.post(leases, {"metadata": {"name": "a"}, "spec": spec})

        assert (reply.status, reply.reason) == (422, "Invalid")
        assert [cause["field"] for cause in reply.causes] == [field]

    async def test_a_bad_time_is_a_bad_request(self, api: RawApi, leases: str) -> None:
        reply = await api.post(leases, {"metadata": {"name": "a"}, "spec": {"renewTime": "yesterday"}})

        assert (reply.status, reply.reason) == (400, "BadRequest")


class TestWorkloads:
    def deployment(self, **spec: Any) -> dict[str, Any]:
        template = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        return {
            "metadata": {"name": "a"},
            "spec": {"selector": {"matchLabels": {"app": "a"}}, "template": template, **spec},
        }

    @pytest.fixture
    def deployments(self, namespace: str) -> str:
        return f"/apis/apps/v1/namespaces/{namespace}/deployments"

    async def test_a_deployment_is_stored_with_defaults(self, api: RawApi, deployments: str) -> None:
        reply = await api.post(deployments, self.deployment())

        assert reply.status == 201
        assert reply.body["spec"]["replicas"] == 1
        assert reply.body["spec"]["strategy"]["type"] == "RollingUpdate"
        assert reply.body["metadata"]["generation"] == 1

    async def test_annotations_of_the_template_raise_the_generation(self, api: RawApi, deployments: str) -> None:
        await api.post(deployments, self.deployment())

        reply = await api.patch(
            f"{deployments}/a", {"spec": {"template": {"metadata": {"annotations": {"restarted": "now"}}}}}
        )

        assert reply.body["metadata"]["generation"] == 2

    async def test_the_selector_is_required(self, api: RawApi, deployments: str) -> None:
        reply = await api.post(deployments, self.deployment(selector=None))

        assert (reply.status, reply.reason) == (422, "Invalid")
        assert ("FieldValueRequired", "spec.selector") in {(one["reason"], one["field"]) for one in reply.causes}

    async def test_the_selector_must_match_the_template(self, api: RawApi, deployments: str) -> None:
        reply = await api.post(deployments, self.deployment(selector={"matchLabels": {"app": "b"}}))

        assert (reply.status, reply.reason) == (422, "Invalid")
        assert "spec.template.metadata.labels" in {cause["field"] for cause in reply.causes}

    async def test_the_selector_is_immutable(self, api: RawApi, deployments: str) -> None:
        await api.post(deployments, self.deployment())

        reply = await api.patch(f"{deployments}/a", {"spec": {"selector": {"matchLabels": {"app": "b"}}}})

        assert (reply.status, reply.reason) == (422, "Invalid")
        assert "spec.selector" in {cause["field"] for cause in reply.causes}

    async def test_scale_reads_replicas(self, api: RawApi, deployments: str, differs: Any) -> None:
        await api.post(deployments, self.deployment())

        reply = await api.get(f"{deployments}/a/scale")

        assert reply.status == differs("scale of workloads", localkube=404, kube=200)


async def test_a_service_account_is_stored(api: RawApi, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts"

    reply = await api.post(path, {"metadata": {"name": "robot"}, "imagePullSecrets": [{"name": "pull"}]})

    assert reply.status == 201
    assert reply.body["imagePullSecrets"] == [{"name": "pull"}]


@pytest.mark.parametrize(
    ("rules", "field"),
    [
        pytest.param([{"apiGroups": [""], "resources": ["pods"]}], "rules[0].verbs", id="no verbs"),
        pytest.param([{"apiGroups": [""], "verbs": ["get"]}], "rules[0].resources", id="no resources"),
        pytest.param([{"resources": ["pods"], "verbs": ["get"]}], "rules[0].apiGroups", id="no groups"),
    ],
)
async def test_a_rule_of_a_role_needs_every_part(
    api: RawApi, namespace: str, rules: list[dict[str, Any]], field: str
) -> None:
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles"

    reply = await api.post(path, {"metadata": {"name": "a"}, "rules": rules})

    assert (reply.status, reply.reason) == (422, "Invalid")
    assert ("FieldValueRequired", field) in {(one["reason"], one["field"]) for one in reply.causes}
