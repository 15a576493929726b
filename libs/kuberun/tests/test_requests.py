"""Verb to HTTP, as a table."""

import json
from typing import Any

import pytest

from kubebase.meta import ObjectKey, Resource
from kuberun import requests
from kuberun.requests import (
    DeleteOptions,
    FieldValidation,
    Metadata,
    PatchType,
    Propagation,
    Request,
    Selection,
    WriteOptions,
)
from kuberun.testing.builders import NAMESPACES, SECRETS, WIDGETS, key

ROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
CAREFUL = WriteOptions(field_manager="me", field_validation=FieldValidation.STRICT, dry_run=True)


@pytest.mark.parametrize(
    ("request_", "method", "target"),
    [
        pytest.param(
            requests.get(SECRETS, key("a", "ns")), "GET", "/api/v1/namespaces/ns/secrets/a", id="get in the core group"
        ),
        pytest.param(
            requests.get(WIDGETS, key("a", "ns"), subresource="status"),
            "GET",
            "/apis/example.com/v1/namespaces/ns/widgets/a/status",
            id="get of a subresource",
        ),
        pytest.param(
            requests.get(NAMESPACES, ObjectKey("", "ns")), "GET", "/api/v1/namespaces/ns", id="get of a cluster object"
        ),
        pytest.param(
            requests.get(ROLES, ObjectKey("", "system:node é")),
            "GET",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node%20%C3%A9",
            id="names are encoded",
        ),
        pytest.param(
            requests.get(NAMESPACES, ObjectKey("ignored", "ns")),
            "GET",
            "/api/v1/namespaces/ns",
            id="a cluster object has no namespace",
        ),
        pytest.param(requests.list_page(SECRETS), "GET", "/api/v1/secrets", id="list of everything"),
        pytest.param(
            requests.list_page(SECRETS, Selection("ns", "a=b,c", "metadata.name=x"), limit=500, resource_version="7"),
            "GET",
            "/api/v1/namespaces/ns/secrets?labelSelector=a%3Db,c&fieldSelector=metadata.name%3Dx&limit=500"
            "&resourceVersion=7",
            id="list of a selection",
        ),
        pytest.param(
            requests.list_page(SECRETS, limit=500, continue_token="to/ken", resource_version="7"),
            "GET",
            "/api/v1/secrets?limit=500&continue=to%2Fken",
            id="a continued list names no version",
        ),
        pytest.param(
            requests.watch(WIDGETS, Selection("ns", "a"), resource_version="7", timeout_seconds=290),
            "GET",
            "/apis/example.com/v1/namespaces/ns/widgets?labelSelector=a&watch=true&resourceVersion=7"
            "&timeoutSeconds=290&allowWatchBookmarks=true",
            id="watch",
        ),
        pytest.param(
            requests.watch(WIDGETS, resource_version="", timeout_seconds=5, allow_bookmarks=False),
            "GET",
            "/apis/example.com/v1/widgets?watch=true&timeoutSeconds=5",
            id="watch without bookmarks",
        ),
        pytest.param(
            requests.create(SECRETS, "ns", b"{}"), "POST", "/api/v1/namespaces/ns/secrets", id="create in a namespace"
        ),
        pytest.param(
            requests.create(NAMESPACES, "", b"{}"), "POST", "/api/v1/namespaces", id="create of a cluster object"
        ),
        pytest.param(
            requests.create(SECRETS, "ns", b"{}", options=CAREFUL),
            "POST",
            "/api/v1/namespaces/ns/secrets?dryRun=All&fieldManager=me&fieldValidation=Strict",
            id="create with all options",
        ),
        pytest.param(
            requests.create_subresource(SECRETS, key("a", "ns"), "token", b"{}"),
            "POST",
            "/api/v1/namespaces/ns/secrets/a/token",
            id="create on a subresource",
        ),
        pytest.param(
            requests.update(SECRETS, key("a", "ns"), b"{}", options=CAREFUL),
            "PUT",
            "/api/v1/namespaces/ns/secrets/a?dryRun=All&fieldManager=me&fieldValidation=Strict",
            id="update",
        ),
        pytest.param(
            requests.update(WIDGETS, key("a", "ns"), b"{}", subresource="status"),
            "PUT",
            "/apis/example.com/v1/namespaces/ns/widgets/a/status",
            id="update of the status",
        ),
        pytest.param(
            requests.patch(SECRETS, key("a", "ns"), b"{}", PatchType.APPLY, options=CAREFUL, force=True),
            "PATCH",
            "/api/v1/namespaces/ns/secrets/a?dryRun=All&fieldManager=me&fieldValidation=Strict&force=true",
            id="apply by force",
        ),
        pytest.param(
            requests.patch(WIDGETS, key("a", "ns"), b"{}", PatchType.MERGE, subresource="status"),
            "PATCH",
            "/apis/example.com/v1/namespaces/ns/widgets/a/status",
            id="patch of the status",
        ),
        pytest.param(
            requests.delete(SECRETS, key("a", "ns")), "DELETE", "/api/v1/namespaces/ns/secrets/a", id="delete"
        ),
        pytest.param(
            requests.delete_collection(SECRETS, Selection("ns", "a=b")),
            "DELETE",
            "/api/v1/namespaces/ns/secrets?labelSelector=a%3Db",
            id="delete of a selection",
        ),
    ],
)
def test_every_verb(request_: Request, method: str, target: str) -> None:
    assert (request_.method, request_.target) == (method, target)


@pytest.mark.parametrize(
    ("patch_type", "content_type"),
    [
        (PatchType.JSON, "application/json-patch+json"),
        (PatchType.MERGE, "application/merge-patch+json"),
        (PatchType.APPLY, "application/apply-patch+yaml"),
    ],
)
def test_the_content_type_says_which_patch(patch_type: PatchType, content_type: str) -> None:
    assert requests.patch(SECRETS, key(), b"{}", patch_type).content_type == content_type


def test_metadata_only_is_asked_for_in_the_accept_header() -> None:
    one = requests.get(SECRETS, key(), metadata=Metadata.ONLY)
    many = requests.list_page(SECRETS, metadata=Metadata.ONLY_LIST)

    assert one.accept == "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    assert many.accept == "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param(DeleteOptions(), {}, id="nothing to say"),
        pytest.param(
            DeleteOptions(uid="u", resource_version="7"),
            {"preconditions": {"uid": "u", "resourceVersion": "7"}},
            id="preconditions",
        ),
        pytest.param(
            DeleteOptions(propagation=Propagation.FOREGROUND, grace_period_seconds=0, dry_run=True),
            {"propagationPolicy": "Foreground", "gracePeriodSeconds": 0, "dryRun": ["All"]},
            id="how",
        ),
    ],
)
def test_delete_options_travel_in_the_body(options: DeleteOptions, expected: dict[str, Any]) -> None:
    body = requests.delete(SECRETS, key(), options).body

    sent = json.loads(body) if body else {}
    assert {name: value for name, value in sent.items() if name not in {"apiVersion", "kind"}} == expected


def test_every_request_ends_by_itself() -> None:
    watch = requests.watch(SECRETS, resource_version="1", timeout_seconds=290)

    assert watch.deadline == 290 + requests.WATCH_SLACK
    assert watch.idle == requests.WATCH_IDLE
    assert requests.get(SECRETS, key()).deadline == requests.DEFAULT_DEADLINE
    assert requests.list_page(SECRETS).deadline == requests.LIST_DEADLINE


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", "%2e%2e"])
def test_a_name_cannot_point_at_another_path(name: str) -> None:
    with pytest.raises(ValueError, match="is not a possible name"):
        requests.get(SECRETS, key(name))


def test_a_namespaced_object_needs_a_namespace() -> None:
    with pytest.raises(ValueError, match="live in a namespace"):
        requests.get(SECRETS, ObjectKey("", "a"))
    with pytest.raises(ValueError, match="live in a namespace"):
        requests.create(SECRETS, "", b"{}")


def test_a_body_never_shows() -> None:
    assert "PLANTED" not in repr(requests.create(SECRETS, "ns", b"PLANTED"))
