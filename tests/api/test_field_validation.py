"""Unknown and duplicate fields: ignored, warned about or refused, as the client asks."""

from __future__ import annotations

from typing import Any

import pytest

from kuberun.testing.rawapi import JSON_PATCH, RawApi

pytestmark = pytest.mark.live

DUPLICATE = '{"metadata": {"name": "a"}, "data": {"k": "1", "k": "2"}}'


async def test_unknown_fields_are_dropped_with_a_warning(api: RawApi, configmaps: str) -> None:
    reply = await api.post(configmaps, {"metadata": {"name": "a", "colour": "red"}, "size": 1})

    assert reply.status == 201
    assert "size" not in reply.body
    assert reply.warnings == ['unknown field "metadata.colour"', 'unknown field "size"']


async def test_unknown_fields_of_a_custom_object_are_dropped_with_a_warning(
    api: RawApi, widgets: str, widget: Any
) -> None:
    body = widget("a", extra=1, parts=[{"name": "x", "more": 1}])

    reply = await api.post(widgets, body)

    assert reply.status == 201
    assert "extra" not in reply.body["spec"]
    assert reply.body["spec"]["parts"] == [{"name": "x", "count": 1}]
    assert reply.warnings == ['unknown field "spec.extra"', 'unknown field "spec.parts[0].more"']


async def test_ignore_drops_silently(api: RawApi, widgets: str, widget: Any) -> None:
    reply = await api.post(widgets, widget("a", extra=1), fieldValidation="Ignore")

    assert reply.status == 201
    assert reply.warnings == []


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        pytest.param({"metadata": {"name": "a"}, "size": 1}, 'unknown field "size"', id="unknown"),
        pytest.param(DUPLICATE, 'duplicate field "data.k"', id="duplicate"),
    ],
)
async def test_strict_refuses(api: RawApi, configmaps: str, body: object, fault: str) -> None:
    reply = await api.post(configmaps, body, fieldValidation="Strict")

    assert (reply.status, reply.reason) == (400, "BadRequest")
    assert reply.message == (
        f'ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: {fault}'
    )


async def test_strict_names_every_field_of_a_custom_object(api: RawApi, widgets: str, widget: Any) -> None:
    body = widget("a", extra=1, parts=[{"name": "x", "more": 1}])

    reply = await api.post(widgets, body, fieldValidation="Strict")

    assert (reply.status, reply.reason) == (400, "BadRequest")
    assert reply.message == (
        'Widget in version "v1" cannot be handled as a Widget: strict decoding error: '
        'unknown field "spec.extra", unknown field "spec.parts[0].more"'
    )


async def test_a_duplicate_is_warned_about_and_the_last_wins(api: RawApi, configmaps: str) -> None:
    reply = await api.post(configmaps, DUPLICATE)

    assert reply.status == 201
    assert reply.body["data"] == {"k": "2"}
    assert reply.warnings == ['duplicate field "data.k"']


async def test_strict_refuses_an_update(api: RawApi, configmaps: str) -> None:
    await api.post(configmaps, {"metadata": {"name": "a"}})

    reply = await api.put(f"{configmaps}/a", {"metadata": {"name": "a"}, "size": 1}, fieldValidation="Strict")

    assert (reply.status, reply.reason) == (400, "BadRequest")


async def test_strict_refuses_a_merge_patch(api: RawApi, widgets: str, widget: Any) -> None:
    await api.post(widgets, widget("a"))

    reply = await api.patch(f"{widgets}/a", {"spec": {"extra": 1}}, fieldValidation="Strict")

    assert (reply.status, reply.reason) == (422, "Invalid")
    assert 'unknown field "spec.extra"' in reply.message


async def test_strict_refuses_a_json_patch(api: RawApi, widgets: str, widget: Any) -> None:
    await api.post(widgets, widget("a"))
    operations = [{"op": "add", "path": "/spec/extra", "value": 1}]

    reply = await api.patch(f"{widgets}/a", operations, JSON_PATCH, fieldValidation="Strict")

    assert reply.status == 422
    assert 'unknown field "spec.extra"' in reply.message


async def test_a_merge_patch_warns(api: RawApi, widgets: str, widget: Any) -> None:
    await api.post(widgets, widget("a"))

    reply = await api.patch(f"{widgets}/a", {"spec": {"extra": 1}})

    assert reply.status == 200
    assert reply.warnings == ['unknown field "spec.extra"']


@pytest.mark.parametrize("mode", ["Warn", "Strict"])
async def test_apply_never_takes_unknown_fields_of_a_custom_object(
    api: RawApi, widgets: str, widget: Any, mode: str
) -> None:
    reply = await api.apply(f"{widgets}/a", widget("a", extra=1), manager="one", fieldValidation=mode)

    assert reply.status == 500
    assert ".spec.extra: field not declared in schema" in reply.message


async def test_fields_below_preserve_unknown_fields_are_kept(api: RawApi, widgets: str, widget: Any) -> None:
    free = {"any": {"thing": [1, {"deep": None}]}}

    reply = await api.post(widgets, widget("a", free=free), fieldValidation="Strict")

    assert reply.status == 201
    assert reply.body["spec"]["free"] == free
