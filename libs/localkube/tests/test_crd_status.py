"""Accepted names, conditions, stored versions and served kinds of a CustomResourceDefinition."""

from typing import Any

import pytest

from kubebase.meta import JsonObject
from localkube.model import ServedKind
from localkube.schema.crd import accept, prepare_crd, served_kinds

SCHEMA: JsonObject = {
    "type": "object",
    "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}}}},
}


def definition(plural: str = "things", kind: str = "Thing", **names: Any) -> JsonObject:
    return {
        "metadata": {"name": f"{plural}.ex.io", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "group": "ex.io",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind, **names},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": SCHEMA}}],
        },
    }


def established(crd: JsonObject, served: list[ServedKind] | None = None) -> JsonObject:
    assert prepare_crd(crd, None) == []
    crd["status"] = accept(crd, served or [])
    return crd


def condition(status: JsonObject, kind: str) -> JsonObject:
    return next(item for item in status["conditions"] if item["type"] == kind)


def test_a_definition_without_conflicts_is_established_at_once() -> None:
    crd = established(definition())

    status = crd["status"]

    assert condition(status, "NamesAccepted") == {
        "type": "NamesAccepted",
        "status": "True",
        "reason": "NoConflicts",
        "message": "no conflicts found",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    assert condition(status, "Established")["reason"] == "InitialNamesAccepted"
    assert status["acceptedNames"] == {
        "plural": "things",
        "singular": "thing",
        "kind": "Thing",
        "listKind": "ThingList",
    }
    assert status["storedVersions"] == ["v1"]


@pytest.mark.parametrize(
    ("names", "reason", "message"),
    [
        pytest.param({"kind": "Thing"}, "ListKindConflict", '"ThingList" is already in use', id="kind of another"),
        pytest.param({"singular": "thing"}, "SingularConflict", '"thing" is already in use', id="singular of another"),
        pytest.param({"shortNames": ["t"]}, "ShortNamesConflict", '"t" is already in use', id="short name of another"),
    ],
)
def test_names_of_another_definition_in_the_group_are_refused(names: JsonObject, reason: str, message: str) -> None:
    others = served_kinds(established(definition(shortNames=["t"])))
    crd = definition("others", **{"kind": "Other", **names})
    assert prepare_crd(crd, None) == []

    status = accept(crd, others)

    refused = condition(status, "NamesAccepted")
    assert (refused["status"], refused["reason"], refused["message"]) == ("False", reason, message)
    assert condition(status, "Established")["status"] == "False"


def test_a_conflict_does_not_take_back_what_is_established() -> None:
    crd = established(definition())
    others = served_kinds(established(definition("others", "Other", shortNames=["o"])))
    crd["spec"]["names"]["shortNames"] = ["o"]

    status = accept(crd, others, "2027-01-01T00:00:00Z")

    assert condition(status, "NamesAccepted")["status"] == "False"
    assert condition(status, "NamesAccepted")["lastTransitionTime"] == "2027-01-01T00:00:00Z"
    assert condition(status, "Established")["status"] == "True"
    assert condition(status, "Established")["lastTransitionTime"] == "2026-01-01T00:00:00Z"
    assert "shortNames" not in status["acceptedNames"]


def test_a_new_storage_version_is_remembered_next_to_the_old_one() -> None:
    crd = established(definition())
    crd["spec"]["versions"][0]["storage"] = False
    crd["spec"]["versions"].append({**crd["spec"]["versions"][0], "name": "v2", "storage": True})

    assert accept(crd, [])["storedVersions"] == ["v1", "v2"]


def test_a_version_that_is_still_stored_cannot_be_dropped() -> None:
    old = established(definition())
    new = definition()
    new["spec"]["versions"][0]["name"] = "v2"

    causes = prepare_crd(new, old)

    assert [cause.field for cause in causes] == ["status.storedVersions[0]"]
    assert "missing from spec.versions; v1 was previously a storage version" in causes[0].message


def test_group_plural_and_once_established_scope_and_kind_are_immutable() -> None:
    old = established(definition())
    new = definition()
    new["spec"] |= {"scope": "Cluster", "names": {"plural": "things", "kind": "Other"}}

    causes = prepare_crd(new, old)

    assert {cause.field: cause.message for cause in causes} == {
        "spec.scope": 'Invalid value: "Cluster": field is immutable',
        "spec.names.kind": 'Invalid value: "Other": field is immutable',
    }


def test_every_served_version_becomes_a_kind() -> None:
    crd = definition(shortNames=["t"], categories=["all"])
    columns = [{"name": "A", "type": "string", "jsonPath": ".spec.a", "priority": 1}]
    first = crd["spec"]["versions"][0]
    first |= {
        "subresources": {"status": {}},
        "additionalPrinterColumns": columns,
        "selectableFields": [{"jsonPath": ".spec.a"}],
    }
    crd["spec"]["versions"] += [
        {**first, "name": "v1beta1", "storage": False, "deprecated": True},
        {**first, "name": "v0", "storage": False, "served": False},
    ]

    kinds = served_kinds(established(crd))

    assert [kind.resource.version for kind in kinds] == ["v1", "v1beta1"]
    kind = kinds[1]
    assert (kind.storage_version, kind.custom, kind.subresources) == ("v1", True, frozenset({"status"}))
    assert (kind.singular, kind.list_kind, kind.short_names, kind.categories) == (
        "thing",
        "ThingList",
        ("t",),
        ("all",),
    )
    assert kind.selectable == {"spec.a": "spec.a"}
    assert kind.deprecation == "ex.io/v1beta1 Thing is deprecated; use ex.io/v1 Thing"
    assert kind.columns[0].read({"spec": {"a": "x"}}) == "x"
