"""Creating objects: what the server fills in, what it refuses and in which words."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kubebase.meta import JsonObject
from localkube.testing.verbs import Verbs, config_map, definition, manifest, refusal, thing

SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


async def test_the_server_fills_in_identity_time_and_version(verbs: Verbs) -> None:
    written = await verbs.create("configmaps", config_map("a", uid="mine", creationTimestamp="2001-01-01T00:00:00Z"))

    metadata = written.object["metadata"]
    assert written.created
    assert metadata["namespace"] == "default"
    assert re.fullmatch(r"[0-9a-f-]{36}", metadata["uid"])
    assert metadata["creationTimestamp"] > "2020"
    assert int(metadata["resourceVersion"]) > 0
    assert await verbs.get("configmaps", "a") == written.object


async def test_fields_of_the_server_are_not_taken_from_the_client(verbs: Verbs) -> None:
    obj = config_map(
        "a", deletionTimestamp="2001-01-01T00:00:00Z", deletionGracePeriodSeconds=3, selfLink="/x", labels={}
    )

    metadata = (await verbs.create("configmaps", obj)).object["metadata"]

    assert {"deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "labels"} & metadata.keys() == set()


async def test_the_field_manager_owns_what_it_created(verbs: Verbs) -> None:
    written = await verbs.create("configmaps", config_map("a"), manager="kubectl-create")

    (entry,) = written.object["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"], entry["fieldsV1"]) == (
        "kubectl-create",
        "Update",
        {"f:data": {".": {}, "f:x": {}}},
    )


async def test_generated_names_have_five_random_letters(verbs: Verbs) -> None:
    written = await verbs.create("configmaps", config_map("", generateName="job-"))

    assert re.fullmatch(r"job-[bcdfghjklmnpqrstvwxz2456789]{5}", written.object["metadata"]["name"])


async def test_a_dry_run_answers_and_stores_nothing(verbs: Verbs) -> None:
    revision = verbs.cluster.store.revision

    written = await verbs.create("configmaps", config_map("a"), dry_run=True)

    assert written.object["metadata"]["uid"]
    assert "resourceVersion" not in written.object["metadata"]
    assert not await verbs.exists("configmaps", "a")
    assert verbs.cluster.store.revision == revision


@pytest.mark.parametrize(
    ("obj", "code", "message"),
    [
        pytest.param(
            config_map(""),
            422,
            'ConfigMap "" is invalid: metadata.name: Required value: name or generateName is required',
            id="a name is needed",
        ),
        pytest.param(
            config_map("A_b"),
            422,
            f'ConfigMap "A_b" is invalid: metadata.name: Invalid value: "A_b": {SUBDOMAIN}',
            id="names are DNS subdomains",
        ),
        pytest.param(
            config_map("a", namespace="other"),
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
            id="the namespace must be that of the request",
        ),
        pytest.param(
            config_map("a", resourceVersion="12"),
            500,
            "resourceVersion should not be set on objects to be created",
            id="a new object has no version yet",
        ),
        pytest.param(
            config_map("a", labels={"x": "-a"}),
            422,
            'ConfigMap "a" is invalid: metadata.labels: Invalid value: "-a": a valid label must be an empty string',
            id="labels are checked",
        ),
        pytest.param(
            config_map("a", ownerReferences=[{"apiVersion": "v1", "kind": "A", "name": "b", "uid": ""}]),
            422,
            'ConfigMap "a" is invalid: metadata.ownerReferences.uid: Invalid value: "": must not be empty',
            id="owner references are checked",
        ),
        pytest.param(
            config_map("a", labels={"x": 1}),
            400,
            'ConfigMap in version "v1" cannot be handled as a ConfigMap: json: cannot unmarshal number into Go struct '
            "field ObjectMeta.metadata.labels of type string",
            id="a label of a wrong type cannot be read",
        ),
    ],
)
async def test_refusals(verbs: Verbs, obj: JsonObject, code: int, message: str) -> None:
    error = await refusal(verbs.create("configmaps", obj))

    assert error.code == code
    assert error.message.startswith(message)


async def test_an_existing_name_is_refused(verbs: Verbs) -> None:
    await verbs.create("configmaps", config_map("a"))

    error = await refusal(verbs.create("configmaps", config_map("a")))

    assert (error.code, error.reason, error.message) == (409, "AlreadyExists", 'configmaps "a" already exists')
    assert error.details == {"name": "a", "kind": "configmaps"}


async def test_a_missing_namespace_is_named(verbs: Verbs) -> None:
    error = await refusal(Verbs(verbs.cluster, "nope").create("configmaps", config_map("a")))

    assert (error.code, error.message) == (404, 'namespaces "nope" not found')
    assert error.details == {"name": "nope", "kind": "namespaces"}


class TestCustomObjects:
    @pytest.fixture(autouse=True)
    async def _definition(self, verbs: Verbs) -> None:
        await verbs.create("customresourcedefinitions.apiextensions.k8s.io", definition())

    async def test_generation_starts_at_one_and_status_is_not_taken(self, verbs: Verbs) -> None:
        obj = thing("t", generation=7) | {"status": {"phase": "Done"}}

        written = await verbs.create("things.example.com", obj)

        assert written.object["metadata"]["generation"] == 1
        assert "status" not in written.object

    @pytest.mark.parametrize(
        ("validation", "outcome"),
        [
            pytest.param("Ignore", [], id="ignored"),
            pytest.param("Warn", ['duplicate field "spec.size"', 'unknown field "spec.shape"'], id="warned about"),
        ],
    )
    async def test_unknown_and_duplicate_fields_are_dropped_and(
        self, verbs: Verbs, validation: str, outcome: list[str]
    ) -> None:
        obj = thing("t", spec={"size": 1, "shape": "round"})

        written = await verbs.create("things.example.com", obj, validation=validation, duplicates=["spec.size"])

        assert written.object["spec"] == {"size": 1}
        assert written.warnings == outcome

    async def test_strict_validation_refuses_unknown_and_duplicate_fields(self, verbs: Verbs) -> None:
        obj = thing("t", spec={"size": 1, "shape": "round"}, unknown=1)

        error = await refusal(verbs.create("things.example.com", obj, validation="Strict", duplicates=["spec.size"]))

        assert (error.code, error.reason) == (400, "BadRequest")
        assert error.message == (
            'Thing in version "v1" cannot be handled as a Thing: strict decoding error: duplicate field "spec.size", '
            'unknown field "metadata.unknown", unknown field "spec.shape"'
        )

    async def test_every_cause_is_named(self, verbs: Verbs) -> None:
        error = await refusal(verbs.create("things.example.com", thing("", spec={"size": "big"})))

        assert error.code == 422
        assert [cause["field"] for cause in error.details["causes"]] == ["metadata.name", "spec.size"]


async def test_a_kind_that_is_not_stored_is_answered_by_its_handler(verbs: Verbs) -> None:
    asked: list[Any] = []

    def answer(obj: JsonObject, user: Any) -> JsonObject:
        asked.append((obj["spec"], user.name))
        return {**obj, "status": {"authenticated": True}}

    verbs.cluster.register_handler("tokenreviews.authentication.k8s.io", answer)
    kind = verbs.kind("tokenreviews.authentication.k8s.io")
    revision = verbs.cluster.store.revision

    written = await verbs.create("tokenreviews.authentication.k8s.io", manifest(kind, "", spec={"token": "t"}))

    assert written.object["status"] == {"authenticated": True}
    assert asked == [({"token": "t"}, "admin")]
    assert verbs.cluster.store.revision == revision
