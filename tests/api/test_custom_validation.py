"""Objects that a schema rejects: structural rules, formats and CEL, with the causes that clients show."""

from __future__ import annotations

from typing import Any

import pytest

from kuberun.testing.rawapi import RawApi

pytestmark = pytest.mark.live

INVALID, TYPE, REQUIRED = "FieldValueInvalid", "FieldValueTypeInvalid", "FieldValueRequired"
UNCHECKED = (
    INVALID,
    "<nil>",
    (
        "Invalid value: null: some validation rules were not checked because the object was invalid; "
        "correct the existing errors to complete validation"
    ),
)
"""The server adds this where a structural fault keeps it from running the CEL rules."""

Causes = list[tuple[str, str, str]]


def mistyped(field: str, wanted: str, given: str) -> tuple[str, str, str]:
    return TYPE, field, f'Invalid value: "{given}": {field} in body must be of type {wanted}: "{given}"'


STRUCTURAL: list[Any] = [
    pytest.param(
        {"size": None}, [(REQUIRED, "spec.size", "Required value"), UNCHECKED], id="a required field is missing"
    ),
    pytest.param(
        {"size": 0},
        [(INVALID, "spec.size", "Invalid value: 0: spec.size in body should be greater than or equal to 1")],
        id="below the minimum",
    ),
    pytest.param(
        {"size": 101},
        [(INVALID, "spec.size", "Invalid value: 101: spec.size in body should be less than or equal to 100")],
        id="above the maximum",
    ),
    pytest.param(
        {"ratio": 0},
        [(INVALID, "spec.ratio", "Invalid value: 0: spec.ratio in body should be greater than 0")],
        id="at an exclusive minimum",
    ),
    pytest.param(
        {"step": 3},
        [(INVALID, "spec.step", "Invalid value: 3: spec.step in body should be a multiple of 5")],
        id="not a multiple",
    ),
    pytest.param({"size": "x"}, [mistyped("spec.size", "integer", "string"), UNCHECKED], id="text for a number"),
    pytest.param({"flag": "true"}, [mistyped("spec.flag", "boolean", "string"), UNCHECKED], id="text for a boolean"),
    pytest.param({"parts": "x"}, [mistyped("spec.parts", "array", "string"), UNCHECKED], id="text for a list"),
    pytest.param({"note": 5}, [mistyped("spec.note", "string", "integer"), UNCHECKED], id="a number for text"),
    pytest.param({"steps": [1]}, [mistyped("spec.steps[0]", "string", "integer"), UNCHECKED], id="a wrong list item"),
    pytest.param({"steps": [None]}, [mistyped("spec.steps[0]", "string", "null"), UNCHECKED], id="a null list item"),
    pytest.param(
        {"settings": {"a": 1}}, [mistyped("spec.settings.a", "string", "integer"), UNCHECKED], id="a wrong map value"
    ),
    pytest.param(
        {"port": 1.5}, [mistyped("spec.port", "integer,string", "number"), UNCHECKED], id="a fraction for int-or-string"
    ),
    pytest.param(
        {"port": True},
        [mistyped("spec.port", "integer,string", "boolean"), UNCHECKED],
        id="a boolean for int-or-string",
    ),
    pytest.param(
        {"colour": "pink"},
        [
            (
                "FieldValueNotSupported",
                "spec.colour",
                'Unsupported value: "pink": supported values: "red", "green", "blue"',
            ),
            UNCHECKED,
        ],
        id="not one of the enum",
    ),
    pytest.param(
        {"note": "x"},
        [(INVALID, "spec.note", 'Invalid value: "x": spec.note in body should be at least 2 chars long')],
        id="too short",
    ),
    pytest.param(
        {"note": "x" * 11},
        [("FieldValueTooLong", "spec.note", "Too long: may not be more than 10 bytes"), UNCHECKED],
        id="too long",
    ),
    pytest.param(
        {"code": "abc"},
        [(INVALID, "spec.code", "Invalid value: \"abc\": spec.code in body should match '^[A-Z]{3}$'")],
        id="against the pattern",
    ),
    pytest.param(
        {"when": "yesterday"},
        [
            (
                TYPE,
                "spec.when",
                'Invalid value: "yesterday": spec.when in body must be of type date-time: "yesterday"',
            ),
            UNCHECKED,
        ],
        id="against the format",
    ),
    pytest.param(
        {"tags": ["a", "a"]}, [("FieldValueDuplicate", "spec.tags[1]", 'Duplicate value: "a"')], id="twice in a set"
    ),
    pytest.param(
        {"tags": ["a", "b", "c", "d"]},
        [("FieldValueTooMany", "spec.tags", "Too many: 4: must have at most 3 items"), UNCHECKED],
        id="too many items",
    ),
    pytest.param(
        {"parts": [{"name": "a"}, {"name": "a"}]},
        [("FieldValueDuplicate", "spec.parts[1]", 'Duplicate value: {"name":"a"}')],
        id="twice in a map list",
    ),
    pytest.param(
        {"parts": [{"count": 1}]},
        [(REQUIRED, "spec.parts[0].name", "Required value"), UNCHECKED],
        id="a list key is missing",
    ),
    pytest.param(
        {"settings": {"a": "1", "b": "2", "c": "3"}},
        [("FieldValueTooMany", "spec.settings", "Too many: 3: must have at most 2 items"), UNCHECKED],
        id="too many properties",
    ),
    pytest.param(
        {"either": {"left": "a", "right": "b"}},
        [
            (
                INVALID,
                "<nil>",
                (
                    'Invalid value: "": "spec.either" must validate one and only one schema (oneOf). '
                    "Found 2 valid alternatives"
                ),
            )
        ],
        id="both of two alternatives",
    ),
    pytest.param(
        {"size": 0, "colour": "pink"},
        [
            (
                "FieldValueNotSupported",
                "spec.colour",
                'Unsupported value: "pink": supported values: "red", "green", "blue"',
            ),
            (INVALID, "spec.size", "Invalid value: 0: spec.size in body should be greater than or equal to 1"),
            UNCHECKED,
        ],
        id="two faults at once, by field",
    ),
]
RULES: list[Any] = [
    pytest.param(
        {"low": 3, "high": 2},
        [(INVALID, "spec.low", "Invalid value: low must not exceed high")],
        id="a rule with a message and a field path",
    ),
    pytest.param(
        {"even": 3}, [(INVALID, "spec.even", "Invalid value: 3: 3 is odd")], id="a rule with a message expression"
    ),
    pytest.param(
        {"even": 3, "low": 3, "high": 2},
        [
            (INVALID, "spec.low", "Invalid value: low must not exceed high"),
            (INVALID, "spec.even", "Invalid value: 3: 3 is odd"),
        ],
        id="two rules fail",
    ),
]


@pytest.mark.parametrize(("spec", "causes"), STRUCTURAL + RULES)
async def test_a_custom_object_is_refused(
    api: RawApi, widgets: str, widget: Any, spec: dict[str, Any], causes: Causes
) -> None:
    reply = await api.post(widgets, widget("a", **spec))

    assert (reply.status, reply.reason) == (422, "Invalid")
    assert sorted((one["reason"], one["field"], one["message"]) for one in reply.causes) == sorted(causes)
    assert reply.body["details"]["name"] == "a"
    assert (reply.body["details"]["group"], reply.body["details"]["kind"]) == ("shop.example.com", "Widget")
    assert reply.message.startswith('Widget.shop.example.com "a" is invalid: ')
    assert all(f"{field}: {text}" in reply.message for _, field, text in causes)


@pytest.mark.parametrize(
    ("spec", "stored"),
    [
        pytest.param({"size": 1.0}, {"size": 1}, id="a whole number written as a fraction"),
        pytest.param({"note": "ü" * 10}, {"note": "ü" * 10}, id="length counts characters"),
        pytest.param({"port": "http"}, {"port": "http"}, id="int-or-string with text"),
        pytest.param({"port": 80}, {"port": 80}, id="int-or-string with a number"),
        pytest.param({"maybe": None}, {"maybe": None}, id="null where it is allowed"),
        pytest.param({"note": None}, {}, id="null where it is not allowed is dropped"),
        pytest.param({"colour": None}, {"colour": "red"}, id="null where there is a default"),
        pytest.param({"even": 4}, {"even": 4}, id="a rule that holds"),
        pytest.param({"low": 2, "high": 2}, {"low": 2, "high": 2}, id="a rule over two fields that holds"),
        pytest.param({"when": "2030-01-02T03:04:05Z"}, {"when": "2030-01-02T03:04:05Z"}, id="a date and time"),
        pytest.param({"either": {"left": "a"}}, {"either": {"left": "a"}}, id="one of two alternatives"),
        pytest.param({"ratio": 0.25}, {"ratio": 0.25}, id="a fraction"),
    ],
)
async def test_a_custom_object_is_accepted(
    api: RawApi, widgets: str, widget: Any, spec: dict[str, Any], stored: dict[str, Any]
) -> None:
    reply = await api.post(widgets, widget("a", **spec))

    assert reply.status == 201, reply.body
    assert reply.body["spec"] == {"size": 1, "colour": "red", **stored}


async def test_a_missing_spec_is_named(api: RawApi, widgets: str) -> None:
    reply = await api.post(widgets, {"apiVersion": "shop.example.com/v1", "kind": "Widget", "metadata": {"name": "a"}})

    assert reply.status == 422
    assert (reply.causes[0]["reason"], reply.causes[0]["field"]) == (REQUIRED, "spec")


class TestTransitionRules:
    async def test_an_immutable_field_cannot_change(self, api: RawApi, widgets: str, widget: Any) -> None:
        await api.post(widgets, widget("a", serial="x"))

        reply = await api.patch(f"{widgets}/a", {"spec": {"serial": "y"}})

        assert reply.status == 422
        assert reply.causes == [
            {"reason": "FieldValueForbidden", "message": "Forbidden: serial is immutable", "field": "spec.serial"}
        ]

    async def test_it_may_be_set_later(self, api: RawApi, widgets: str, widget: Any) -> None:
        await api.post(widgets, widget("a"))

        reply = await api.patch(f"{widgets}/a", {"spec": {"serial": "x"}})

        assert reply.status == 200

    async def test_it_may_be_removed(self, api: RawApi, widgets: str, widget: Any) -> None:
        await api.post(widgets, widget("a", serial="x"))

        reply = await api.patch(f"{widgets}/a", {"spec": {"serial": None}})

        assert reply.status == 200

    async def test_other_fields_may_change(self, api: RawApi, widgets: str, widget: Any) -> None:
        await api.post(widgets, widget("a", serial="x"))

        reply = await api.patch(f"{widgets}/a", {"spec": {"size": 2}})

        assert reply.status == 200


async def test_an_update_of_other_fields_does_not_recheck_an_unchanged_fault(
    api: RawApi, namespace: str, crd: Any, install: Any, eventually: Any
) -> None:
    """Ratcheting: a stricter schema does not block objects that were valid before, until the field changes."""
    loose = {"type": "object", "properties": {"note": {"type": "string"}, "other": {"type": "string"}}}
    schema = {"type": "object", "properties": {"spec": loose}}
    definition = crd("ratchets", "Ratchet", schema=schema)
    await install(definition)
    path = f"/apis/shop.example.com/v1/namespaces/{namespace}/ratchets"
    body = {"apiVersion": "shop.example.com/v1", "kind": "Ratchet", "metadata": {"name": "a"}, "spec": {"note": "long"}}
    await api.post(path, body)
    tighten = [
        {
            "op": "add",
            "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/note/maxLength",
            "value": 2,
        }
    ]
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    await api.patch(f"{crds}/ratchets.shop.example.com", tighten, "application/json-patch+json")
    fresh = {**body, "metadata": {"name": "probe"}}
    await eventually(lambda: api.post(path, fresh, dryRun="All"), lambda reply: reply.status == 422)

    other = await api.patch(f"{path}/a", {"spec": {"other": "x"}})
    changed = await api.patch(f"{path}/a", {"spec": {"note": "longer"}})

    assert other.status == 200
    assert changed.status == 422
