"""Rules of ownership one by one, as observed on a kube-apiserver with Secrets."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from kubebase.meta import JsonObject, Resource
from localkube.errors import StatusError
from localkube.model import ServedKind
from localkube.patch import apply, keep_times, reset_fields, track_update

STRINGS = {"type": "object", "additionalProperties": {"type": "string"}}
SECRET: JsonObject = {
    "type": "object",
    "properties": {"data": STRINGS, "type": {"type": "string"}, "immutable": {"type": "boolean"}},
}
ATOMIC_DATA: JsonObject = {"type": "object", "properties": {"data": {**STRINGS, "x-kubernetes-map-type": "atomic"}}}
EARLY, LATE = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def secret(data: JsonObject | None = None, **metadata: Any) -> JsonObject:
    obj: JsonObject = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a", **metadata}}
    return obj if data is None else {**obj, "data": data}


def applied(live: JsonObject | None, config: JsonObject, manager: str = "m", **options: Any) -> JsonObject:
    settings = {"force": False, "schema": SECRET, "now": LATE, "subresource": "", "api_version": "v1", **options}
    return apply(live, config, manager=manager, **settings)


def updated(live: JsonObject | None, new: JsonObject, manager: str = "u", **options: Any) -> JsonObject:
    settings = {"schema": SECRET, "now": EARLY, "subresource": "", "api_version": "v1", **options}
    return track_update(live, new, manager=manager, **settings)


def held(obj: JsonObject) -> JsonObject:
    return {entry["manager"]: entry["fieldsV1"] for entry in obj["metadata"].get("managedFields", [])}


def test_applying_what_is_there_already_returns_the_very_object() -> None:
    live = applied(None, secret({"x": "1"}))

    assert applied(live, secret({"x": "1"})) is live


def test_a_second_applier_of_equal_values_shares_them_without_a_time_of_its_own() -> None:
    live = applied(None, secret({"x": "1"}), "first")

    both = applied(live, secret({"x": "1"}), "second")

    entries = {entry["manager"]: entry for entry in both["metadata"]["managedFields"]}
    assert entries["first"]["fieldsV1"] == entries["second"]["fieldsV1"] == {"f:data": {"f:x": {}}}
    assert "time" in entries["first"]
    assert "time" not in entries["second"]


def test_neither_the_live_object_nor_the_configuration_is_edited() -> None:
    live = applied(None, secret({"x": "1"}, labels={"a": "b"}))
    config = secret({"y": "2"})
    before = copy.deepcopy((live, config))

    result = applied(live, config)
    result["data"]["z"] = "changed by the caller"
    result["metadata"]["labels"] = {}

    assert (live, config) == before


def test_an_object_without_managers_belongs_to_a_manager_before_first_apply() -> None:
    live = secret({"x": "1"}, uid="u")

    result = applied(live, secret({"y": "2"}))

    assert held(result) == {"before-first-apply": {"f:data": {".": {}, "f:x": {}}}, "m": {"f:data": {"f:y": {}}}}


def test_a_map_that_another_manager_holds_as_such_becomes_null_when_its_last_key_goes() -> None:
    live = applied(updated(None, secret({"x": "1"})), secret({"x": "2"}), force=True)

    result = applied(live, secret())

    assert result["data"] is None
    assert held(result) == {"u": {"f:data": {}}}


def test_force_takes_fields_and_leaves_the_loser_with_the_rest() -> None:
    live = updated(None, secret({"x": "1", "y": "1"}))

    result = applied(live, secret({"x": "2"}), force=True)

    assert result["data"] == {"x": "2", "y": "1"}
    assert held(result) == {"m": {"f:data": {"f:x": {}}}, "u": {"f:data": {".": {}, "f:y": {}}}}


def test_a_conflict_names_every_manager_and_field() -> None:
    live = updated(None, secret({"x": "1"}, labels={"l": "1"}), "m1")
    live = applied(live, secret({"x": "1"}), "m2")

    with pytest.raises(StatusError) as caught:
        applied(live, secret({"x": "2"}, labels={"l": "2"}), "m3")

    assert caught.value.to_json() == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'Apply failed with 3 conflicts: conflicts with "m1" using v1:\n- .data.x\n- .metadata.labels.l\n'
        'conflicts with "m2":\n- .data.x',
        "reason": "Conflict",
        "details": {
            "causes": [
                {"reason": "FieldManagerConflict", "message": 'conflict with "m1" using v1', "field": ".data.x"},
                {
                    "reason": "FieldManagerConflict",
                    "message": 'conflict with "m1" using v1',
                    "field": ".metadata.labels.l",
                },
                {"reason": "FieldManagerConflict", "message": 'conflict with "m2"', "field": ".data.x"},
            ]
        },
        "code": 409,
    }


def test_a_conflict_with_a_status_writer_says_so() -> None:
    schema = {"type": "object", "properties": {"status": {"type": "object", "properties": {"p": {"type": "string"}}}}}
    live = secret(uid="u", labels={"a": "b"})
    live = updated(None, live, schema=schema)
    live = updated(live, {**live, "status": {"p": "1"}}, "s", schema=schema, subresource="status")

    with pytest.raises(StatusError) as caught:
        applied(live, {**secret(), "status": {"p": "2"}}, schema=schema, subresource="status")

    assert caught.value.message == (
        'Apply failed with 1 conflict: conflict with "s" with subresource "status" using v1: .status.p'
    )


@pytest.mark.parametrize(
    ("config", "code", "message"),
    [
        pytest.param(
            secret(managedFields=[]), 400, "metadata.managedFields must be nil", id="even an empty list of managers"
        ),
        pytest.param(
            {**secret(), "apiVersion": "v2"}, 400, "invalid object type: /v2, Kind=Secret", id="another version"
        ),
        pytest.param(
            {**secret(), "apiVersion": "apps/v1"}, 400, "invalid object type: apps/v1, Kind=Secret", id="another group"
        ),
        pytest.param({"metadata": {"name": "a"}}, 400, "invalid object type: /, Kind=", id="no type at all"),
        pytest.param(
            {**secret(), "metadata": "b"},
            500,
            "failed to create typed patch object (/; /v1, Kind=Secret): .metadata: expected map, got &{b}",
            id="metadata that is no map",
        ),
        pytest.param(
            secret(finalizers=["x.io/a", "x.io/a"]),
            500,
            "failed to create typed patch object (/a; /v1, Kind=Secret): "
            '.metadata.finalizers: duplicate entries for key [="x.io/a"]',
            id="the same finalizer twice",
        ),
        pytest.param(
            {**secret(), "type": {"x": 1}},
            500,
            "failed to create typed patch object (/a; /v1, Kind=Secret): "
            '.type: expected string, got &value.valueUnstructured{Value:map[string]interface {}{"x":1}}',
            id="a map for a string",
        ),
        pytest.param(
            {**secret(namespace="ns"), "generation": 1},
            500,
            "failed to create typed patch object (ns/a; /v1, Kind=Secret): .generation: field not declared in schema",
            id="an unknown field",
        ),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(config: JsonObject, code: int, message: str) -> None:
    with pytest.raises(StatusError) as caught:
        applied(None, config)

    assert (caught.value.code, caught.value.message) == (code, message)


def test_names_and_what_the_server_writes_belong_to_nobody() -> None:
    system: JsonObject = {
        "namespace": "n",
        "uid": "u",
        "resourceVersion": "1",
        "generation": 1,
        "creationTimestamp": EARLY,
    }

    result = updated(None, secret(**system, generateName="a-"))

    assert held(result) == {"u": {"f:metadata": {"f:generateName": {}}}}


@pytest.mark.parametrize("entries", [pytest.param([], id="no entry"), pytest.param([{}], id="one empty entry")])
def test_a_client_can_make_the_server_forget_all_managers(entries: list[Any]) -> None:
    live = updated(None, secret({"x": "1"}, uid="u"))

    result = updated(live, secret({"x": "2"}, uid="u", managedFields=entries))

    assert "managedFields" not in result["metadata"]
    assert "managedFields" not in updated(result, secret({"x": "3"}, uid="u"))["metadata"]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"operation": "X"}, id="unknown operation"),
        pytest.param({"apiVersion": ""}, id="no version"),
        pytest.param({"fieldsType": ""}, id="no type of fields"),
        pytest.param({"fieldsV1": {"zz": {}}}, id="a step without a colon"),
        pytest.param({"fieldsV1": {"f": {}}}, id="a step too short"),
        pytest.param({"fieldsV1": {"k:[1]": {}}}, id="a key that is no map"),
        pytest.param({"fieldsV1": "x"}, id="fields that are no map"),
    ],
)
def test_managers_a_client_sends_but_nobody_can_read_are_ignored(change: JsonObject) -> None:
    entry = {"manager": "me", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {}}
    live = updated(None, secret({"x": "1"}, uid="u"))

    result = updated(live, secret({"x": "1"}, uid="u", managedFields=[{**entry, **change}]))

    assert result["metadata"]["managedFields"] == live["metadata"]["managedFields"]


def test_managers_a_client_sends_are_used_in_canonical_form() -> None:
    entry = {
        "manager": "me",
        "operation": "Update",
        "apiVersion": "v1",
        "time": "2020-01-01T01:00:00+01:00",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"q:future": {}, 'k:{"b": 1, "a": 2}': {".": {}}, "f:data": {"f:q": {}}},
    }

    result = updated(None, secret({"x": "1"}, managedFields=[entry]))

    mine = next(entry for entry in result["metadata"]["managedFields"] if entry["manager"] == "me")
    assert mine["time"] == "2020-01-01T00:00:00Z"
    assert mine["fieldsV1"] == {"f:data": {"f:q": {}}, 'k:{"a":2,"b":1}': {}}


def test_managers_sent_through_a_subresource_are_ignored() -> None:
    live = updated(None, secret({"x": "1"}, uid="u"))

    result = updated(live, secret({"x": "1"}, uid="u", managedFields=[]), subresource="status")

    assert result["metadata"]["managedFields"] == live["metadata"]["managedFields"]


def test_entries_in_terms_of_a_version_that_is_gone_are_forgotten() -> None:
    live = updated(None, secret({"x": "1"}, uid="u"), api_version="v0")

    result = updated(live, secret({"y": "1"}, uid="u"), versions=["v1"])

    assert held(result) == {"u": {"f:data": {"f:y": {}}}}


def test_the_oldest_updaters_share_one_entry_once_there_are_more_than_ten() -> None:
    live = updated(None, secret({"k": "0"}, uid="u"), "base")

    for number in range(12):
        data = {**live["data"], f"k{number}": "1"}
        live = updated(live, secret(data, uid="u"), f"m{number:02}", now=f"2026-01-01T00:00:{number:02}Z")

    assert [entry["manager"] for entry in live["metadata"]["managedFields"]] == [
        "ancient-changes",
        *(f"m{number:02}" for number in range(3, 12)),
    ]
    assert held(live)["ancient-changes"] == {"f:data": {".": {}, "f:k": {}, "f:k0": {}, "f:k1": {}, "f:k2": {}}}


def test_a_map_that_became_atomic_is_held_as_a_whole() -> None:
    live = applied(None, secret({"x": "1", "y": "1"}), "first")

    result = applied(live, secret(), "second", schema=ATOMIC_DATA)

    assert held(result) == {"first": {"f:data": {}}}


def test_kubectl_takes_over_what_it_applied_from_the_client_side() -> None:
    config = secret({"k0": "1", "k1": "1"})
    old = secret({"k0": "1", "k1": "1"}, annotations={LAST_APPLIED: json.dumps(config)})
    live = updated(None, old, "kubectl-client-side-apply")

    result = applied(live, secret({"k0": "2"}), "kubectl")

    assert result["data"] == {"k0": "2", "k1": "1"}
    assert result["metadata"]["annotations"][LAST_APPLIED] == (
        '{"apiVersion":"v1","data":{"k0":"2"},"kind":"Secret","metadata":{"name":"a"}}\n'
    )


def test_kubectl_reports_a_conflict_on_a_field_that_another_client_changed() -> None:
    config = secret({"k0": "1"})
    live = updated(None, secret({"k0": "1"}, uid="u", annotations={LAST_APPLIED: json.dumps(config)}), "client-side")
    live = updated(live, {**live, "data": {"k0": "3"}}, "other")

    with pytest.raises(StatusError, match=r'conflict with "other" using v1: \.data\.k0'):
        applied(live, secret({"k0": "2"}), "kubectl")


def test_a_write_that_changes_only_a_time_changes_nothing() -> None:
    live = applied(None, secret({"x": "1"}))
    entry = {**live["metadata"]["managedFields"][0], "time": EARLY}
    touched = {**live, "metadata": {**live["metadata"], "managedFields": [entry]}}

    assert keep_times(live, touched) is live
    assert keep_times(live, {**touched, "data": {"x": "2"}})["data"] == {"x": "2"}


def test_empty_metadata_is_dropped_but_a_grace_period_of_zero_is_not() -> None:
    result = updated(None, secret(labels={}, annotations=None, deletionGracePeriodSeconds=0, generateName=""))

    assert set(result["metadata"]) == {"name", "deletionGracePeriodSeconds", "managedFields"}


def test_truth_is_not_the_number_one() -> None:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    live = updated(None, {**secret(uid="u"), "any": {"x": True}}, schema=schema)

    result = updated(live, {**secret(uid="u"), "any": {"x": 1}}, "later", schema=schema)

    assert held(result)["later"] == {"f:any": {"f:x": {}}}


@pytest.mark.parametrize(
    ("group", "custom", "subresource", "expected"),
    [
        pytest.param("t.io", True, "", {"f:status": {}}, id="the main endpoint leaves status alone"),
        pytest.param(
            "t.io", True, "status", {"f:metadata": {}, "f:spec": {}}, id="status of a custom kind is status only"
        ),
        pytest.param("", False, "status", {"f:spec": {}}, id="status of a core kind may label"),
        pytest.param("apps", False, "status", {"f:metadata": {"f:labels": {}}, "f:spec": {}}, id="of a workload, not"),
    ],
)
def test_endpoints_reset_what_they_do_not_own(group: str, custom: bool, subresource: str, expected: JsonObject) -> None:
    kind = ServedKind(
        resource=Resource(group, "v1", "things", "Thing"),
        schema=None,  # type: ignore[arg-type] # not looked at
        singular="thing",
        list_kind="ThingList",
        storage_version="v1",
        subresources=frozenset({"status"}),
        custom=custom,
    )

    assert reset_fields(kind, subresource) == expected
