"""Secrets: the keys, labels and annotations that values and templates produce."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from eso_api.externalsecret import BOOTSTRAP_TOKEN, SERVICE_ACCOUNT_NAME, SERVICE_ACCOUNT_TOKEN, Target
from eso_api.template import Template
from eso_api.values import SecretBytes
from eso_render.errors import RenderError, TargetError
from eso_render.secret import Desired, render_push, render_secret
from eso_render.templates import TemplateObjects
from kubebase.meta import ObjectMeta

VALUES = {"user": SecretBytes(b"ada"), "password": SecretBytes(b"lovelace")}
OWNER = ObjectMeta(name="db", namespace="app", labels={"team": "blue"}, annotations={"note": "mine"})
OBJECTS = TemplateObjects(
    config_maps={"shared": {"user": "shared {{ .user }}", "all": "user: map {{ .user }}"}},
    secrets={"hidden": {"user": SecretBytes(b"hidden {{ .user }}")}},
)


def secret(template: dict[str, Any] | None, **target: Any) -> Desired:
    parsed = msgspec.convert({"template": template, **target}, Target)
    return render_secret(parsed, VALUES, owner=OWNER, objects=OBJECTS)


def shown(desired: Desired) -> dict[str, str]:
    return {key: value.reveal().decode() for key, value in desired.data.items()}


BOTH = {"user": "ada", "password": "lovelace"}
FROM_MAP = {"configMap": {"name": "shared", "items": [{"key": "user"}]}}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        pytest.param(None, BOTH, id="without a template the values are the data"),
        pytest.param({}, BOTH, id="T4: an empty template keeps the values"),
        pytest.param({"type": "Opaque", "metadata": {"labels": {"a": "b"}}}, BOTH, id="T3: so does one without data"),
        pytest.param(
            {"data": {"url": "{{ .user }}@db"}}, {"url": "ada@db"}, id="T1: Replace gives templated keys only"
        ),
        pytest.param(
            {"data": {"url": "{{ .user }}@db", "user": "new"}, "mergePolicy": "Merge"},
            {"url": "ada@db", "user": "new", "password": "lovelace"},
            id="T2: Merge keeps the values and templates win",
        ),
        pytest.param({"templateFrom": [FROM_MAP]}, {"user": "shared ada"}, id="templateFrom alone replaces too"),
        pytest.param(
            {"templateFrom": [FROM_MAP], "data": {"user": "data {{ .user }}"}},
            {"user": "data ada"},
            id="T9: data wins over templateFrom and sees the values, not what was rendered",
        ),
        pytest.param(
            {"templateFrom": [{**FROM_MAP, "literal": "user: literal {{ .user }}"}]},
            {"user": "literal ada"},
            id="the literal of an entry wins over its ConfigMap",
        ),
        pytest.param(
            {"templateFrom": [{"literal": "user: literal"}, FROM_MAP]},
            {"user": "shared ada"},
            id="a later entry wins over an earlier one",
        ),
        pytest.param(
            {"templateFrom": [{"secret": {"name": "hidden", "items": [{"key": "user"}]}}]},
            {"user": "hidden ada"},
            id="a template kept in a Secret",
        ),
        pytest.param(
            {
                "templateFrom": [
                    {"configMap": {"name": "shared", "items": [{"key": "all", "templateAs": "KeysAndValues"}]}}
                ]
            },
            {"user": "map ada"},
            id="keys and values from a ConfigMap",
        ),
        pytest.param(
            {"templateFrom": [{"literal": "a: 1\nb: yes\nc: 0777\nd: 1.50"}]},
            {"a": "1", "b": "true", "c": "511", "d": "1.5"},
            id="T10: scalars become text",
        ),
        pytest.param(
            {"templateFrom": [{"literal": "a: aGk=", "valuesDecodingStrategy": "Base64"}]},
            {"a": "hi"},
            id="decoded values",
        ),
        pytest.param(
            {"templateFrom": [{"literal": "a: b", "target": "Labels"}]}, {}, id="a label counts as template content"
        ),
    ],
)
def test_the_data_of_a_secret(template: dict[str, Any] | None, expected: dict[str, str]) -> None:
    assert shown(secret(template)) == expected


def test_without_a_template_the_metadata_of_the_external_secret_is_copied() -> None:
    desired = secret(None)

    assert (desired.labels, desired.annotations) == ({"team": "blue"}, {"note": "mine"})


def test_any_template_ends_the_copying_of_metadata() -> None:
    """T4."""
    desired = secret({})

    assert (desired.labels, desired.annotations) == ({}, {})


def test_labels_and_annotations_are_templates_and_win_over_template_from() -> None:
    """T12."""
    desired = secret(
        {
            "metadata": {"labels": {"user": "is-{{ .user }}"}, "annotations": {"note": "{{ .user | upper }}"}},
            "templateFrom": [
                {"literal": "user: other\nextra: '1'", "target": "labels"},
                {"literal": "note: other", "target": "Annotations"},
            ],
        }
    )

    assert desired.labels == {"user": "is-ada", "extra": "1"}
    assert desired.annotations == {"note": "ADA"}


def test_type_finalizers_and_immutability_are_carried_over() -> None:
    desired = secret({"type": "kubernetes.io/tls", "metadata": {"finalizers": ["example.com/keep"]}}, immutable=True)

    assert (desired.type, desired.finalizers, desired.immutable) == ("kubernetes.io/tls", ("example.com/keep",), True)


def test_the_operators_own_labels_and_annotations_are_not_rendered() -> None:
    """T18."""
    ours = {
        "reconcile.external-secrets.io/managed": "false",
        "reconcile.external-secrets.io/created-by": "me",
        "kept": "x",
    }
    note = {"reconcile.external-secrets.io/data-hash": "0", "kept": "x"}

    desired = secret({"metadata": {"labels": ours, "annotations": note}})

    assert (desired.labels, desired.annotations) == ({"kept": "x"}, {"kept": "x"})


@pytest.mark.parametrize(
    ("template", "field"),
    [
        pytest.param({"type": BOOTSTRAP_TOKEN}, ("type",), id="a bootstrap token"),
        pytest.param(
            {"type": SERVICE_ACCOUNT_TOKEN, "metadata": {"annotations": {SERVICE_ACCOUNT_NAME: "admin"}}},
            ("metadata", "annotations"),
            id="a service account token with its account",
        ),
        pytest.param(
            {"type": SERVICE_ACCOUNT_TOKEN, "templateFrom": [{"literal": "a: b", "target": "aNNotations"}]},
            ("templateFrom", 0, "target"),
            id="a service account token with rendered annotations",
        ),
        pytest.param(
            {"templateFrom": [{"literal": "a: b"}, {"literal": "a: b", "target": "type"}]},
            ("templateFrom", 1, "target"),
            id="T14: a path into a Secret",
        ),
        pytest.param(
            {"templateFrom": [{"literal": "a: b", "target": "metadata.ownerReferences"}]},
            ("templateFrom", 0, "target"),
            id="T14: a path into metadata",
        ),
        pytest.param({"engineVersion": "v1", "data": {"a": "b"}}, ("engineVersion",), id="another engine"),
        pytest.param({"data": {"a": "{{ .nope }}"}}, ("data", "a"), id="T5: an unknown value"),
    ],
)
def test_a_refused_template_names_its_field(template: dict[str, Any], field: tuple[str | int, ...]) -> None:
    with pytest.raises(TargetError) as refused:
        secret(template)

    assert refused.value.path.field == field


@pytest.mark.parametrize(
    "template",
    [
        pytest.param({"metadata": {"annotations": {SERVICE_ACCOUNT_NAME: "x"}}}, id="the annotation without the type"),
        pytest.param(
            {"type": SERVICE_ACCOUNT_TOKEN, "templateFrom": [{"literal": "a: b", "target": "Data"}]},
            id="the type without the annotation",
        ),
    ],
)
def test_a_secret_that_only_looks_like_a_token_is_allowed(template: dict[str, Any]) -> None:
    assert secret(template).type == template.get("type", "")


def test_a_dump_of_the_secret_shows_no_value() -> None:
    desired = secret({"metadata": {"annotations": {"a": "{{ .password }}"}}, "mergePolicy": "Merge"})

    assert "lovelace" not in repr(desired)


def test_a_push_keeps_the_values_and_adds_what_the_template_gives() -> None:
    template = msgspec.convert(
        {
            "type": "Opaque",
            "data": {"url": "{{ .user }}@db", "user": "new"},
            "metadata": {"labels": {"l": "{{ .user }}"}, "finalizers": ["example.com/ignored"]},
        },
        Template,
    )

    desired = render_push(template, VALUES)

    assert shown(desired) == {"user": "new", "password": "lovelace", "url": "ada@db"}
    assert (desired.type, desired.labels, desired.finalizers) == ("Opaque", {"l": "ada"}, ())


@pytest.mark.parametrize("entry", [{"literal": "a: b"}, {"configMap": {"name": "shared", "items": [{"key": "user"}]}}])
def test_a_push_refuses_a_path(entry: dict[str, Any]) -> None:
    template = msgspec.convert({"templateFrom": [{**entry, "target": "spec.x"}]}, Template)

    with pytest.raises(TargetError, match="no target"):
        render_push(template, VALUES, objects=OBJECTS)


@pytest.mark.parametrize("function", ["mustFromJson", "jwkPublicKeyPem"])
def test_an_error_about_json_names_no_character_of_a_value(function: str) -> None:
    """Go's message quotes the character at fault, which is part of the password."""
    target = msgspec.convert({"template": {"data": {"a": f"{{{{ {function} .password }}}}"}}}, Target)

    with pytest.raises(RenderError) as refused:
        render_secret(target, {"password": SecretBytes(b"Zx\\Qhunter2")}, owner=ObjectMeta(name="es"))

    assert "'Z'" not in str(refused.value)
    assert "<redacted>" in str(refused.value)
