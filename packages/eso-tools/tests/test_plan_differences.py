"""Targets before and after, key by key; and the live objects that an object refers to."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from eso_tools.plan.differences import Change, differences
from eso_tools.plan.needs import Need, needs_of
from kubebase.meta import JsonObject

OURS = "externalsecrets.external-secrets.io/db"
CREATE, CHANGE, REMOVE, UNCHANGED = Change


def secret(data: dict[str, str], *, ours: tuple[str, ...] = (), **fields: Any) -> JsonObject:
    encoded = {name: base64.b64encode(text.encode()).decode() for name, text in data.items()}
    owned: dict[str, list[str]] = fields.pop("marks", {})
    marks: JsonObject = {f"f:{section}": {f"f:{name}": {} for name in names} for section, names in owned.items()}
    parts = {"f:data": {f"f:{name}": {} for name in ours}, "f:metadata": marks}
    managed = {"manager": OURS, "operation": "Apply", "fieldsV1": parts}
    metadata = {"name": "db", "managedFields": [managed], **fields.pop("metadata", {})}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": encoded, **fields}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param(None, secret({"a": "1"}, ours=("a",)), {"a": CREATE}, id="a new target"),
        pytest.param(secret({"a": "1"}), None, {"a": REMOVE}, id="a target that is deleted"),
        pytest.param(secret({"a": "1"}), secret({"a": "2"}, ours=("a",)), {"a": CHANGE}, id="another value"),
        pytest.param(
            secret({"a": "1", "b": "2"}, ours=("a",)),
            secret({"a": "1"}, ours=("a",)),
            {"a": UNCHANGED, "b": REMOVE},
            id="a key that goes",
        ),
        pytest.param(
            secret({"a": "1", "theirs": "2"}),
            secret({"a": "1", "theirs": "3", "new": "4"}, ours=("a",)),
            {"a": UNCHANGED},
            id="keys of other writers are left out",
        ),
        pytest.param(
            secret({}), secret({}, type="kubernetes.io/tls"), {"type": CREATE}, id="the type is part of the content"
        ),
        pytest.param(
            secret({}, metadata={"labels": {"app": "a"}}),
            secret(
                {},
                marks={"labels": ["app"], "annotations": ["note"]},
                metadata={"labels": {"app": "b", "theirs": "x"}, "annotations": {"note": "c"}},
            ),
            {"label:app": CHANGE, "annotation:note": CREATE},
            id="labels and annotations",
        ),
        pytest.param(
            None,
            secret(
                {},
                marks={"annotations": ["reconcile.external-secrets.io/data-hash"]},
                metadata={"annotations": {"reconcile.external-secrets.io/data-hash": "x"}},
            ),
            {},
            id="our own marks are not content",
        ),
        pytest.param(
            None,
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "a"},
                "data": {"b": "c"},
                "spec": [{"d": 1}],
            },
            {"data.b": CREATE, "spec[0].d": CREATE},
            id="another kind by the paths of its fields",
        ),
    ],
)
def test_differences(before: JsonObject | None, after: JsonObject | None, expected: dict[str, Change]) -> None:
    found = differences(before, after, lambda value: f"<{len(value)}>")

    assert {each.key: each.change for each in found} == expected


def test_differences_show_digests_where_there_is_a_value() -> None:
    (found,) = differences(secret({"a": "1"}), secret({"a": "22"}, ours=("a",)), lambda value: f"<{len(value)}>")

    assert (found.before, found.after) == ("<1>", "<2>")


CORE = "external-secrets.io"
GENERATED = {"generatorRef": {"apiVersion": "generators.external-secrets.io/v1alpha1", "kind": "UUID", "name": "id"}}


def core(kind: str, spec: JsonObject, version: str = "v1") -> JsonObject:
    return {"apiVersion": f"{CORE}/{version}", "kind": kind, "metadata": {"name": "it"}, "spec": spec}


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        pytest.param(
            core(
                "ExternalSecret",
                {
                    "secretStoreRef": {"kind": "ClusterSecretStore", "name": "central"},
                    "target": {
                        "name": "target",
                        "template": {
                            "templateFrom": [
                                {"configMap": {"name": "texts", "items": [{"key": "a"}]}},
                                {"secret": {"name": "hidden", "items": [{"key": "a"}]}},
                            ]
                        },
                    },
                    "data": [{"secretKey": "a", "remoteRef": {"key": "a"}}],
                    "dataFrom": [{"sourceRef": GENERATED}],
                },
            ),
            {
                Need(CORE, "ClusterSecretStore", "app", "central"),
                Need("generators.external-secrets.io", "UUID", "app", "id"),
                Need("", "ConfigMap", "app", "texts"),
                Need("", "Secret", "app", "hidden"),
                Need("", "Secret", "app", "target"),
            },
            id="an ExternalSecret",
        ),
        pytest.param(
            core(
                "PushSecret",
                {
                    "secretStoreRefs": [{"name": "vault"}, {"labelSelector": {"matchLabels": {"team": "a"}}}],
                    "selector": {"secret": {"name": "source"}},
                },
                "v1alpha1",
            ),
            {
                Need("", "Secret", "app", "source"),
                Need(CORE, "SecretStore", "app", "vault"),
                Need(CORE, "SecretStore", "app", labels="team=a"),
            },
            id="a PushSecret",
        ),
        pytest.param(
            {
                "apiVersion": "secretstore.external-secrets.io/v2alpha1",
                "kind": "SecretStore",
                "metadata": {"name": "it"},
                "spec": {"providerConfig": {"classRef": {"name": "aws"}, "providerRef": {"kind": "Fake", "name": "f"}}},
            },
            {
                Need("provider.secretstore.external-secrets.io", "Fake", "app", "f"),
                Need(CORE, "ClusterProviderClass", "app", "aws"),
            },
            id="a v2 store",
        ),
        pytest.param(core("ExternalSecret", {"data": 5}), set(), id="an object that does not decode"),
    ],
)
def test_needs(obj: JsonObject, expected: set[Need]) -> None:
    assert set(needs_of(obj, "app")) == expected
