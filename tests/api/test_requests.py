"""Requests that are rejected before any object is read: bodies, media types, paths, methods, options."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kuberun.testing.rawapi import RawApi

pytestmark = pytest.mark.live

MALFORMED = [
    pytest.param("{not json", 400, "BadRequest", id="a body that is not JSON is a bad request"),
    pytest.param("", 400, "BadRequest", id="an empty body is a bad request"),
    pytest.param("[]", 400, "BadRequest", id="a JSON array is a bad request"),
    pytest.param('"text"', 400, "BadRequest", id="a JSON string is a bad request"),
    pytest.param("7", 400, "BadRequest", id="a JSON number is a bad request"),
    pytest.param('{"metadata": {"name": "a"}', 400, "BadRequest", id="a truncated object is a bad request"),
    pytest.param('{"metadata": "a"}', 400, "BadRequest", id="metadata of the wrong type is a bad request"),
    pytest.param('{"metadata": {"name": 5}}', 400, "BadRequest", id="a name that is a number is a bad request"),
    pytest.param(
        '{"metadata": {"name": "a", "labels": {"k": 1}}}', 400, "BadRequest", id="a label that is a number is refused"
    ),
    pytest.param('{"metadata": {"name": "a"}, "data": "x"}', 400, "BadRequest", id="data that is text is refused"),
    pytest.param('{"metadata": {"name": "a"}, "data": {"k": 1}}', 400, "BadRequest", id="a numeric value is refused"),
    pytest.param(
        '{"metadata": {"name": "a"}, "binaryData": {"k": "%%%"}}', 400, "BadRequest", id="bad base64 is refused"
    ),
    pytest.param(
        '{"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "a"}}',
        400,
        "BadRequest",
        id="another kind than the path's is refused",
    ),
    pytest.param(
        '{"kind": "ConfigMap", "apiVersion": "v2", "metadata": {"name": "a"}}',
        400,
        "BadRequest",
        id="another version than the path's is refused",
    ),
    pytest.param(
        '{"kind": "ConfigMap", "apiVersion": "a/b/c", "metadata": {"name": "a"}}',
        400,
        "BadRequest",
        id="an apiVersion with two slashes is refused",
    ),
]


@pytest.mark.parametrize(("body", "status", "reason"), MALFORMED)
async def test_a_malformed_body_on_create(api: RawApi, configmaps: str, body: str, status: int, reason: str) -> None:
    reply = await api.post(configmaps, body)

    assert (reply.status, reply.reason) == (status, reason)
    assert reply.body["kind"] == "Status"
    assert reply.body["status"] == "Failure"
    assert reply.body["code"] == status
    assert reply.message


@pytest.mark.parametrize(
    ("body", "text"),
    [
        pytest.param(
            "{not json", "couldn't get version/kind; json parse error", id="broken JSON names the parse error"
        ),
        pytest.param(
            '{"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "a"}}',
            'Secret in version "v1" cannot be handled as a ConfigMap',
            id="another kind is named",
        ),
        pytest.param(
            '{"kind": "ConfigMap", "apiVersion": "v2", "metadata": {"name": "a"}}',
            'ConfigMap in version "v2" cannot be handled as a ConfigMap',
            id="another version is named",
        ),
        pytest.param(
            '{"metadata": {"name": "a"}, "data": {"k": 1}}',
            "cannot unmarshal number into Go struct field ConfigMap.data of type string",
            id="a value of the wrong type names its field",
        ),
        pytest.param(
            '{"kind": "ConfigMap", "apiVersion": 1, "metadata": {"name": "a"}}',
            "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; "
            "json parse error: json: cannot unmarshal number into Go struct field .apiVersion of type string",
            id="a version that is no text",
        ),
    ],
)
async def test_the_message_of_a_malformed_body(api: RawApi, configmaps: str, body: str, text: str) -> None:
    reply = await api.post(configmaps, body)

    assert text in reply.message


async def test_kind_and_version_may_be_left_out_for_a_built_in_kind(api: RawApi, configmaps: str) -> None:
    reply = await api.post(configmaps, {"metadata": {"name": "a"}})

    assert reply.status == 201
    assert (reply.body["kind"], reply.body["apiVersion"]) == ("ConfigMap", "v1")


async def test_kind_is_required_for_a_custom_kind(api: RawApi, widgets: str) -> None:
    reply = await api.post(widgets, {"metadata": {"name": "a"}, "spec": {"size": 1}})

    assert (reply.status, reply.reason) == (400, "BadRequest")
    assert "Object 'Kind' is missing" in reply.message


async def test_another_kind_on_a_custom_path_is_invalid(api: RawApi, widgets: str) -> None:
    body = {"apiVersion": "shop.example.com/v1", "kind": "Gadget", "metadata": {"name": "a"}, "spec": {"size": 1}}

    reply = await api.post(widgets, body)

    assert (reply.status, reply.reason) == (422, "Invalid")
    assert reply.causes == [
        {"reason": "FieldValueInvalid", "message": 'Invalid value: "Gadget": must be Widget', "field": "kind"}
    ]


async def test_another_version_on_a_custom_path_is_refused(api: RawApi, widgets: str) -> None:
    body = {"apiVersion": "shop.example.com/v1beta1", "kind": "Widget", "metadata": {"name": "a"}, "spec": {"size": 1}}

    reply = await api.post(widgets, body)

    assert (reply.status, reply.reason) == (400, "BadRequest")
    assert reply.message == (
        "the API version in the data (shop.example.com/v1beta1) "
        "does not match the expected API version (shop.example.com/v1)"
    )


@pytest.mark.parametrize(
    ("method", "media"),
    [
        pytest.param("POST", "text/plain", id="create takes no plain text"),
        pytest.param("PUT", "application/xml", id="update takes no XML"),
        pytest.param("PATCH", "application/json", id="a patch must say which type it is"),
    ],
)
async def test_an_unknown_media_type_of_the_body(api: RawApi, configmaps: str, method: str, media: str) -> None:
    await api.post(configmaps, {"metadata": {"name": "a"}})
    path = configmaps if method == "POST" else f"{configmaps}/a"

    reply = await api.send(method, path, {"metadata": {"name": "a"}}, headers={"Content-Type": media})

    assert (reply.status, reply.reason) == (415, "UnsupportedMediaType")


async def test_a_strategic_merge_patch_of_a_custom_object_is_not_supported(
    api: RawApi, widgets: str, widget: Any
) -> None:
    await api.post(widgets, widget("a"))

    reply = await api.patch(f"{widgets}/a", {}, "application/strategic-merge-patch+json")

    assert (reply.status, reply.reason) == (415, "UnsupportedMediaType")
    assert reply.message == (
        "the body of the request was in an unknown format - accepted media types include: "
        "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
    )


async def test_yaml_bodies_are_accepted(api: RawApi, configmaps: str) -> None:
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  key: value\n"

    reply = await api.send("POST", configmaps, text, headers={"Content-Type": "application/yaml"})

    assert reply.status == 201
    assert reply.body["data"] == {"key": "value"}


async def test_an_unacceptable_answer_type_is_refused(api: RawApi, configmaps: str) -> None:
    await api.post(configmaps, {"metadata": {"name": "a"}})

    reply = await api.get(f"{configmaps}/a", accept="text/html")

    assert (reply.status, reply.reason) == (406, "NotAcceptable")


@pytest.mark.parametrize(
    "accept",
    [
        pytest.param("*/*", id="any type"),
        pytest.param("text/html, application/json;q=0.5", id="JSON as second choice"),
    ],
)
async def test_json_is_answered_when_the_client_accepts(api: RawApi, configmaps: str, accept: str) -> None:
    reply = await api.get(configmaps, accept=accept)

    assert reply.status == 200
    assert reply.headers["Content-Type"] == "application/json"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        pytest.param("PUT", "/api/v1/namespaces/default/configmaps", id="a collection cannot be replaced"),
        pytest.param("PATCH", "/api/v1/namespaces/default/configmaps", id="a collection cannot be patched"),
        pytest.param("POST", "/api/v1/namespaces/default/configmaps/a", id="nothing is created at an object's path"),
        pytest.param("POST", "/api/v1/configmaps", id="a namespaced object is not created across namespaces"),
        pytest.param("DELETE", "/api/v1/configmaps", id="collections are not deleted across namespaces"),
        pytest.param("DELETE", "/api/v1/namespaces", id="namespaces are not deleted as a collection"),
    ],
)
async def test_a_method_that_the_path_does_not_offer(api: RawApi, method: str, path: str) -> None:
    reply = await api.send(method, path, {}, headers={"Content-Type": "application/merge-patch+json"})

    assert (reply.status, reply.reason) == (405, "MethodNotAllowed")
    assert reply.message == "the server does not allow this method on the requested resource"


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("/api/v1/nothings", id="an unknown core resource"),
        pytest.param("/api/v1/namespaces/default/nothings", id="an unknown core resource in a namespace"),
        pytest.param("/apis/apps/v1/nothings", id="an unknown resource of a known group"),
        pytest.param("/api/v1/namespaces/default/configmaps/a/nothing", id="an unknown subresource"),
    ],
)
async def test_an_unknown_resource_is_a_not_found_status(api: RawApi, path: str) -> None:
    reply = await api.get(path)

    assert (reply.status, reply.reason) == (404, "NotFound")
    assert reply.message == "the server could not find the requested resource"


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("/nothing", id="an unknown path"),
        pytest.param("/apis/nothing.example.com/v1", id="an unknown group"),
        pytest.param("/apis/nothing.example.com/v1/things", id="a resource of an unknown group"),
        pytest.param("/apis/apps/v9", id="an unknown version of a known group"),
    ],
)
async def test_an_unknown_path_is_not_found(api: RawApi, path: str) -> None:
    reply = await api.get(path)

    assert reply.status == 404


@pytest.mark.parametrize(
    ("query", "field"),
    [
        pytest.param({"fieldValidation": "Perhaps"}, "fieldValidation", id="an unknown fieldValidation"),
        pytest.param({"dryRun": "Some"}, "dryRun", id="an unknown dryRun"),
        pytest.param({"fieldManager": "x" * 129}, "fieldManager", id="a field manager over 128 characters"),
    ],
)
async def test_a_bad_option_of_create_is_invalid(
    api: RawApi, configmaps: str, query: dict[str, str], field: str
) -> None:
    reply = await api.post(configmaps, {"metadata": {"name": "a"}}, **query)

    assert (reply.status, reply.reason) == (422, "Invalid")
    assert reply.body["details"]["kind"] == "CreateOptions"
    assert [cause["field"] for cause in reply.causes] == [field]


async def test_a_body_over_three_megabytes_is_too_large(api: RawApi, configmaps: str) -> None:
    body = json.dumps({"metadata": {"name": "a"}, "data": {"k": "x" * (3 * 1024 * 1024)}})

    reply = await api.post(configmaps, body)

    assert (reply.status, reply.reason) == (413, "RequestEntityTooLarge")
    assert "limit is 3145728" in reply.message


async def test_a_namespace_in_the_body_must_match_the_path(api: RawApi, configmaps: str) -> None:
    reply = await api.post(configmaps, {"metadata": {"name": "a", "namespace": "elsewhere"}})

    assert (reply.status, reply.reason) == (400, "BadRequest")
    assert reply.message == "the namespace of the provided object does not match the namespace sent on the request"


async def test_a_name_in_the_body_must_match_the_path_of_an_update(api: RawApi, configmaps: str) -> None:
    await api.post(configmaps, {"metadata": {"name": "a"}})

    reply = await api.put(f"{configmaps}/a", {"metadata": {"name": "b"}})

    assert (reply.status, reply.reason) == (400, "BadRequest")
    assert reply.message == "the name of the object (b) does not match the name on the URL (a)"


async def test_an_update_needs_a_name_in_the_body(api: RawApi, configmaps: str) -> None:
    await api.post(configmaps, {"metadata": {"name": "a"}})

    reply = await api.put(f"{configmaps}/a", {"data": {"k": "v"}})

    assert (reply.status, reply.reason) == (400, "BadRequest")
    assert "name must be provided" in reply.message
