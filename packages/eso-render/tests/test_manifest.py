"""Objects of any kind: the same templates as for Secrets, and paths."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from eso_api.externalsecret import Target
from eso_api.values import SecretBytes
from eso_render.errors import TargetError
from eso_render.manifest import DesiredManifest, render_manifest
from eso_render.templates import TemplateObjects
from kubebase.meta import ObjectMeta

VALUES = {"user": SecretBytes(b"ada"), "port": SecretBytes(b"5432")}
OWNER = ObjectMeta(name="db", namespace="app", labels={"team": "blue"}, annotations={"note": "mine"})
OBJECTS = TemplateObjects(
    config_maps={
        "shared": {
            "user": "{{ .user }}",
            "doc": "name: {{ .user }}\nport: {{ .port }}",
            "braces": '{{ "{{ .user }}" }}',
        }
    }
)
CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap"}
SECRET = {"apiVersion": "v1", "kind": "Secret"}
WIDGET = {"apiVersion": "example.com/v1", "kind": "Widget"}


def manifest(
    template: dict[str, Any] | None, kind: dict[str, str] | None = None, existing: dict[str, Any] | None = None
) -> DesiredManifest:
    target = msgspec.convert({"template": template, "manifest": kind or WIDGET}, Target)
    return render_manifest(target, VALUES, owner=OWNER, existing=existing, objects=OBJECTS)


def literal(text: str, target: str, **more: Any) -> dict[str, Any]:
    return {"templateFrom": [{"literal": text, "target": target, **more}]}


def reader(key: str, target: str, template_as: str = "Values") -> dict[str, Any]:
    source = {"name": "shared", "items": [{"key": key, "templateAs": template_as}]}
    return {"templateFrom": [{"configMap": source, "target": target}]}


def test_a_config_map_without_a_template_holds_the_values_as_text() -> None:
    """G2."""
    desired = manifest(None, CONFIG_MAP)

    assert desired.content == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "db", "namespace": "app", "labels": {"team": "blue"}, "annotations": {"note": "mine"}},
        "data": {"user": "ada", "port": "5432"},
    }


def test_another_kind_without_a_template_holds_the_values_in_spec_data() -> None:
    """G3."""
    assert manifest(None).content["spec"] == {"data": {"user": "ada", "port": "5432"}}


def test_a_secret_without_a_template_holds_the_values_as_secrets_do() -> None:
    """A Secret has no spec: values there would be lost, and the target would be reported as synced."""
    content = manifest(None, SECRET).content

    assert content["data"] == {"user": "YWRh", "port": "NTQzMg=="}
    assert "spec" not in content


def test_values_without_a_template_are_added_to_what_an_existing_object_holds() -> None:
    existing = {**manifest(None, CONFIG_MAP).content, "data": {"theirs": "x", "user": "old"}}

    content = manifest(None, CONFIG_MAP, existing=existing).content

    assert content["data"] == {"theirs": "x", "user": "ada", "port": "5432"}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        pytest.param({}, {"spec": {}}, id="G4: the values are not copied"),
        pytest.param({"mergePolicy": "Merge"}, {"spec": {}}, id="the merge policy has no meaning"),
        pytest.param({"data": {"a": "{{ .user }}"}}, {"spec": {}, "data": {"a": "ada"}}, id="data goes into data"),
        pytest.param(literal("a: {b: 1}", "spec"), {"spec": {"a": {"b": 1}}}, id="G5: a literal replaces spec"),
        pytest.param(literal("a: {b: 1}", "SPEC"), {"spec": {"a": {"b": 1}}}, id="spec in any letter case"),
        pytest.param(
            literal("x: {{ .port }}", "spec.rules[0]"), {"spec": {"rules": [{"x": 5432}]}}, id="G7: lists are made"
        ),
        pytest.param(
            literal("x: 1", "spec.rules[1]"), {"spec": {"rules": [None, {"x": 1}]}}, id="G7: and filled with nulls"
        ),
        pytest.param(
            literal("a: 1\nb: 1.5\nc: yes\nd: [x]", "spec.deep"),
            {"spec": {"deep": {"a": 1, "b": 1.5, "c": True, "d": ["x"]}}},
            id="numbers and structure are kept",
        ),
        pytest.param(
            literal("a: aGk=", "spec.deep", valuesDecodingStrategy="Base64"),
            {"spec": {"deep": {"a": "aGk="}}},
            id="no decoding at a path",
        ),
        pytest.param(literal("a: b", "stringData"), {"spec": {}, "stringData": {"a": "b"}}, id="a path of one name"),
        pytest.param(literal("a: 1", "data"), {"spec": {}, "data": {"a": "1"}}, id="data holds text"),
        pytest.param(literal("a: b", ""), {"spec": {}, "data": {"a": "b"}}, id="an empty target means data"),
        pytest.param(reader("user", "spec"), {"spec": {"user": "ada"}}, id="a value goes under its key in spec"),
        pytest.param(
            reader("user", "spec.name"), {"spec": {"name": "ada"}}, id="G14: a ConfigMap's value goes to a path"
        ),
        pytest.param(
            reader("doc", "spec.db", "KeysAndValues"),
            {"spec": {"db": {"name": "ada", "port": 5432}}},
            id="a ConfigMap's document goes to a path",
        ),
        pytest.param(
            reader("doc", "spec.db"),
            {"spec": {"db": {"name": "ada", "port": 5432}}},
            id="a value at a path is read as YAML",
        ),
        pytest.param(
            reader("braces", "spec.x"), {"spec": {"x": "{{ .user }}"}}, id="what was rendered is not rendered again"
        ),
    ],
)
def test_the_content_of_an_object(template: dict[str, Any], expected: dict[str, Any]) -> None:
    content = manifest(template).content

    assert {key: value for key, value in content.items() if key not in {"apiVersion", "kind", "metadata"}} == expected


def test_metadata_is_templated_like_that_of_a_secret() -> None:
    """G12 as decided: rendered, not copied literally."""
    template = {
        "metadata": {"labels": {"user": "is-{{ .user }}"}, "annotations": {"a": "{{ .user | upper }}"}},
        **literal("user: other\nextra: x", "Labels"),
    }

    metadata = manifest(template).content["metadata"]

    assert metadata["labels"] == {"user": "is-ada", "extra": "x"}
    assert metadata["annotations"] == {"a": "ADA"}


EXISTING = {
    **WIDGET,
    "metadata": {"name": "db", "namespace": "app", "labels": {"theirs": "1"}, "resourceVersion": "7"},
    "spec": {"a": {"x": 1}, "b": 2},
}


def test_an_existing_object_keeps_what_no_template_touches() -> None:
    """G6."""
    desired = manifest({"metadata": {"labels": {"ours": "2"}}, **literal("z: 2", "spec.a")}, existing=EXISTING)

    assert desired.content["spec"] == {"a": {"x": 1, "z": 2}, "b": 2}
    assert desired.content["metadata"]["labels"] == {"theirs": "1", "ours": "2"}
    assert desired.content["metadata"]["resourceVersion"] == "7"


def test_the_existing_object_itself_is_not_changed() -> None:
    before = msgspec.json.encode(EXISTING)

    manifest(literal("z: 2", "spec.a"), existing=EXISTING)

    assert msgspec.json.encode(EXISTING) == before


def test_rendering_onto_the_result_changes_nothing_more() -> None:
    template = literal("x: {{ .port }}", "spec.rules[1]")
    once = manifest(template).content

    assert manifest(template, existing=once).content == once


@pytest.mark.parametrize(
    ("template", "message"),
    [
        pytest.param(literal("other", "metadata.namespace"), "may not change", id="another namespace"),
        pytest.param(literal("other", "metadata.name"), "may not change", id="another name"),
        pytest.param(literal("Secret", "kind"), "may not change", id="another kind"),
        pytest.param(literal("v9", "apiVersion"), "may not change", id="another version"),
        pytest.param(literal("name: other", "metadata"), "may not change", id="other metadata"),
        pytest.param(literal("[1]", "metadata"), "metadata is not a map", id="metadata that is a list"),
        pytest.param(literal("a: b", "a..b"), "empty segment", id="G8: an empty segment"),
        pytest.param(literal("a: b", "[0].x"), "must begin with a name", id="G8: an index first"),
        pytest.param(literal("a: b", "a[-1]"), "between 0 and", id="G8: a negative index"),
        pytest.param(
            {"templateFrom": [*literal("x", "spec.a")["templateFrom"], *literal("x", "spec.a.b")["templateFrom"]]},
            "not a map",
            id="a path through text",
        ),
        pytest.param(literal(": :", "spec.x"), "cannot be used as YAML: line 1", id="a document that is not YAML"),
    ],
)
def test_a_refused_template_says_why(template: dict[str, Any], message: str) -> None:
    with pytest.raises(TargetError, match=message):
        manifest(template)


def test_binary_data_is_refused_where_only_text_fits() -> None:
    target = msgspec.convert({"manifest": CONFIG_MAP}, Target)

    with pytest.raises(TargetError, match="key bin would not be UTF-8"):
        render_manifest(target, {"bin": SecretBytes(b"\xff")}, owner=OWNER)


@pytest.mark.parametrize("path", ["type", "immutable", "metadata.annotations"])
def test_a_secret_spelled_out_as_a_manifest_is_still_a_secret(path: str) -> None:
    """T14."""
    with pytest.raises(TargetError, match="must be Data, Annotations or Labels"):
        manifest(literal("a: b", path), {"apiVersion": "v1", "kind": "Secret"})


def test_a_dump_of_the_object_shows_no_value() -> None:
    assert "ada" not in repr(manifest(None))
