"""Names, labels, annotations and the other fields of metadata: rejected values, and fields that the server sets."""

from __future__ import annotations

import re
import uuid
from datetime import datetime
from typing import Any

import pytest

from kuberun.testing.rawapi import RawApi

pytestmark = pytest.mark.live

SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
LABEL_KEY = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
LABEL_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
REFUSED = [
    pytest.param({"name": "A_b"}, "metadata.name", f'Invalid value: "A_b": {SUBDOMAIN}', id="a name in upper case"),
    pytest.param({"name": "-a"}, "metadata.name", f'Invalid value: "-a": {SUBDOMAIN}', id="a name with a leading dash"),
    pytest.param({"name": "a..b"}, "metadata.name", f'Invalid value: "a..b": {SUBDOMAIN}', id="a name with two dots"),
    pytest.param({"name": "é"}, "metadata.name", f'Invalid value: "é": {SUBDOMAIN}', id="a name beyond ASCII"),
    pytest.param(
        {"name": "a" * 254},
        "metadata.name",
        f'Invalid value: "{"a" * 254}": must be no more than 253 characters',
        id="a name of 254 characters",
    ),
    pytest.param(
        {"name": "a", "labels": {"no way": "v"}},
        "metadata.labels",
        f'Invalid value: "no way": {LABEL_KEY}',
        id="a label key with a space",
    ),
    pytest.param(
        {"name": "a", "labels": {"k": "no way"}},
        "metadata.labels",
        f'Invalid value: "no way": {LABEL_VALUE}',
        id="a label value with a space",
    ),
    pytest.param(
        {"name": "a", "labels": {"k": "v" * 64}},
        "metadata.labels",
        f'Invalid value: "{"v" * 64}": must be no more than 63 bytes',
        id="a label value of 64 characters",
    ),
    pytest.param(
        {"name": "a", "annotations": {"no way": "v"}},
        "metadata.annotations",
        f'Invalid value: "no way": {LABEL_KEY}',
        id="an annotation key with a space",
    ),
    pytest.param(
        {"name": "a", "finalizers": ["plain"]},
        "metadata.finalizers[0]",
        'Invalid value: "plain": name is neither a standard finalizer name nor is it fully qualified',
        id="a finalizer without a domain",
    ),
]


@pytest.mark.parametrize(("metadata", "field", "message"), REFUSED)
async def test_metadata_that_is_refused(
    api: RawApi, configmaps: str, metadata: dict[str, Any], field: str, message: str
) -> None:
    reply = await api.post(configmaps, {"metadata": metadata})

    assert (reply.status, reply.reason) == (422, "Invalid")
    assert reply.causes == [{"reason": "FieldValueInvalid", "message": message, "field": field}]
    assert reply.message == f'ConfigMap "{metadata["name"]}" is invalid: {field}: {message}'
    assert reply.body["details"]["kind"] == "ConfigMap"


async def test_a_custom_object_has_the_same_rules_for_metadata(api: RawApi, widgets: str, widget: Any) -> None:
    reply = await api.post(widgets, widget("A_b"))

    assert (reply.status, reply.reason) == (422, "Invalid")
    assert reply.body["details"]["group"] == "shop.example.com"
    assert reply.message == (
        f'Widget.shop.example.com "A_b" is invalid: metadata.name: Invalid value: "A_b": {SUBDOMAIN}'
    )


async def test_several_faults_are_reported_at_once(api: RawApi, configmaps: str) -> None:
    reply = await api.post(configmaps, {"metadata": {"name": "A", "labels": {"k": "no way"}}})

    assert reply.status == 422
    assert [cause["field"] for cause in reply.causes] == ["metadata.name", "metadata.labels"]
    assert reply.message.startswith('ConfigMap "A" is invalid: [metadata.name: ')
    assert reply.message.endswith("]")


async def test_a_name_or_generate_name_is_required(api: RawApi, configmaps: str) -> None:
    reply = await api.post(configmaps, {"metadata": {}})

    assert (reply.status, reply.reason) == (422, "Invalid")
    assert reply.causes == [
        {
            "reason": "FieldValueRequired",
            "message": "Required value: name or generateName is required",
            "field": "metadata.name",
        }
    ]


async def test_annotations_may_hold_256_kibibytes_in_total(api: RawApi, configmaps: str) -> None:
    fits = await api.post(configmaps, {"metadata": {"name": "a", "annotations": {"big": "v" * (256 * 1024 - 3)}}})
    over = await api.post(configmaps, {"metadata": {"name": "b", "annotations": {"big": "v" * (256 * 1024 - 2)}}})

    assert fits.status == 201
    assert over.status == 422
    assert over.causes == [
        {
            "reason": "FieldValueTooLong",
            "message": "Too long: may not be more than 262144 bytes",
            "field": "metadata.annotations",
        }
    ]


async def test_an_owner_reference_needs_a_name_and_a_uid(api: RawApi, configmaps: str) -> None:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "", "uid": ""}

    reply = await api.post(configmaps, {"metadata": {"name": "a", "ownerReferences": [owner]}})

    assert reply.status == 422
    assert [(cause["field"], cause["message"]) for cause in reply.causes] == [
        ("metadata.ownerReferences.name", 'Invalid value: "": must not be empty'),
        ("metadata.ownerReferences.uid", 'Invalid value: "": must not be empty'),
    ]


async def test_an_owner_reference_of_nothing_lacks_everything(api: RawApi, configmaps: str, widgets: str) -> None:
    body = {"metadata": {"name": "a", "ownerReferences": [None]}}

    plain = await api.post(configmaps, body)
    custom = await api.post(
        widgets, {**body, "apiVersion": "shop.example.com/v1", "kind": "Widget", "spec": {"size": 1}}
    )

    lacking = [f"metadata.ownerReferences.{field}" for field in ("apiVersion", "kind", "name", "uid")]
    assert [reply.status for reply in (plain, custom)] == [422, 422]
    assert [[cause["field"] for cause in reply.causes] for reply in (plain, custom)] == [lacking, lacking]


async def test_only_one_owner_may_be_the_controller(api: RawApi, configmaps: str) -> None:
    owners = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": str(uuid.uuid4()), "controller": True}
        for _ in range(2)
    ]

    reply = await api.post(configmaps, {"metadata": {"name": "a", "ownerReferences": owners}})

    assert reply.status == 422
    assert [cause["field"] for cause in reply.causes] == ["metadata.ownerReferences"]
    assert "Only one reference can have Controller set to true" in reply.message


async def test_generate_name_adds_five_characters(api: RawApi, configmaps: str) -> None:
    reply = await api.post(configmaps, {"metadata": {"generateName": "job-"}})

    assert reply.status == 201
    assert reply.body["metadata"]["generateName"] == "job-"
    assert re.fullmatch(r"job-[bcdfghjklmnpqrstvwxz2456789]{5}", reply.body["metadata"]["name"])


async def test_generate_name_is_shortened_to_leave_room(api: RawApi, configmaps: str) -> None:
    reply = await api.post(configmaps, {"metadata": {"generateName": "a" * 100}})

    assert reply.status == 201
    assert re.fullmatch(r"a{58}[a-z0-9]{5}", reply.body["metadata"]["name"])


async def test_a_name_beats_generate_name(api: RawApi, configmaps: str) -> None:
    reply = await api.post(configmaps, {"metadata": {"name": "a", "generateName": "job-"}})

    assert reply.status == 201
    assert reply.body["metadata"]["name"] == "a"


async def test_identity_and_creation_time_come_from_the_server(api: RawApi, configmaps: str, namespace: str) -> None:
    claimed = {"name": "a", "uid": "mine", "creationTimestamp": "2001-01-01T00:00:00Z", "selfLink": "/x"}

    reply = await api.post(configmaps, {"metadata": claimed})

    metadata = reply.body["metadata"]
    assert reply.status == 201
    assert str(uuid.UUID(metadata["uid"])) == metadata["uid"]
    assert datetime.fromisoformat(metadata["creationTimestamp"]).year > 2001
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", metadata["creationTimestamp"])
    assert metadata["namespace"] == namespace


async def test_a_deletion_timestamp_cannot_be_set_on_create(api: RawApi, configmaps: str) -> None:
    claimed = {"name": "a", "deletionTimestamp": "2001-01-01T00:00:00Z", "deletionGracePeriodSeconds": 5}

    reply = await api.post(configmaps, {"metadata": claimed})

    assert reply.status == 201
    assert "deletionTimestamp" not in reply.body["metadata"]
    assert "deletionGracePeriodSeconds" not in reply.body["metadata"]


async def test_a_resource_version_is_refused_on_create(api: RawApi, configmaps: str) -> None:
    reply = await api.post(configmaps, {"metadata": {"name": "a", "resourceVersion": "1"}})

    assert reply.status == 500
    assert reply.message == "resourceVersion should not be set on objects to be created"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        pytest.param("uid", None, id="the uid"),
        pytest.param("creationTimestamp", None, id="the creation time"),
        pytest.param("namespace", None, id="the namespace"),
    ],
)
async def test_an_update_without_a_server_field_keeps_it(
    api: RawApi, configmaps: str, field: str, value: object
) -> None:
    created = await api.post(configmaps, {"metadata": {"name": "a"}})

    updated = await api.put(f"{configmaps}/a", {"metadata": {"name": "a", field: value}, "data": {"k": "v"}})

    assert updated.status == 200
    assert updated.body["metadata"][field] == created.body["metadata"][field]


async def test_another_uid_in_an_update_is_a_conflict(api: RawApi, configmaps: str) -> None:
    await api.post(configmaps, {"metadata": {"name": "a"}})

    reply = await api.put(f"{configmaps}/a", {"metadata": {"name": "a", "uid": str(uuid.uuid4())}})

    assert (reply.status, reply.reason) == (409, "Conflict")
    assert "Precondition failed: UID in precondition" in reply.message


async def test_unicode_survives_in_values(api: RawApi, configmaps: str) -> None:
    text = "żółć 漢字 🔑 \u0000 \u2028 \\ \" ' <&>"

    await api.post(configmaps, {"metadata": {"name": "a", "annotations": {"note": text}}, "data": {"k": text}})
    reply = await api.get(f"{configmaps}/a")

    assert reply.body["data"] == {"k": text}
    assert reply.body["metadata"]["annotations"] == {"note": text}


@pytest.mark.parametrize(
    "namespace_name",
    [
        pytest.param("A", id="upper case"),
        pytest.param("a.b", id="a dot"),
        pytest.param("a" * 64, id="64 characters"),
    ],
)
async def test_a_namespace_name_is_a_dns_label(api: RawApi, namespace_name: str) -> None:
    reply = await api.post("/api/v1/namespaces", {"metadata": {"name": namespace_name}})

    assert (reply.status, reply.reason) == (422, "Invalid")
    assert "metadata.name" in [cause["field"] for cause in reply.causes]
