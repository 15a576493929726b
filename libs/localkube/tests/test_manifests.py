"""The errors for manifest files that cannot be used; they contain no values."""

from pathlib import Path
from typing import Any

import pytest

from kubebase.clock import SystemClock
from localkube.cluster import Cluster
from localkube.manifests import ManifestError, install, load, without_values

HUSH = "hunter2hunter2"
OBJECT = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(
            f"a: b\npassword: *{HUSH}",
            "line 2, column 11: an alias without an anchor",
            id="a password that begins with *",
        ),
        pytest.param(f"password: !{HUSH} x", "line 1, column 11: an unknown tag", id="one that begins with !"),
        pytest.param(f"password: &{HUSH} x\nb: &{HUSH} y\nc: [", "line", id="one that begins with &"),
        pytest.param(f"password: %{HUSH}", "line 1, column 11: found character", id="one that begins with %"),
        pytest.param(f"password: [{HUSH}\nb: }}", "line", id="a bracket that is not closed"),
        pytest.param(f"password: \x01{HUSH}", "not", id="a control character"),
        pytest.param(f"- {HUSH}", "lacks apiVersion", id="no object"),
        pytest.param(f"kind: List\nitems: [{HUSH}]", "lacks apiVersion", id="a list of texts"),
        pytest.param(f"kind: List\nitems: [{{kind: {HUSH}}}]", "lacks apiVersion", id="a list of other things"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_and_not_quoted(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "manifests.yaml"
    file.write_text(text)

    with pytest.raises(ManifestError) as refused:
        load([file])

    assert said in str(refused.value)
    assert str(file) in str(refused.value)
    assert HUSH not in f"{refused.value} {refused.value.__cause__}"


def test_a_list_holds_objects_and_lists(tmp_path: Path) -> None:
    file = tmp_path / "manifests.yaml"
    file.write_text(f"kind: List\nitems: [{OBJECT}, {{kind: List, items: [{OBJECT}]}}]")

    assert load([file]) == [OBJECT, OBJECT]


def definition(plural: str, *, schema: dict[str, Any] | None = None) -> dict[str, Any]:
    version = {"name": "v1", "served": True, "storage": True}
    names = {"plural": plural, "kind": plural.capitalize()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Cluster",
            "names": names,
            "versions": [{**version, "schema": {"openAPIV3Schema": schema or {"type": "object"}}}],
        },
    }


async def test_objects_find_the_definitions_that_come_before_them() -> None:
    lamp = {"apiVersion": "example.com/v1", "kind": "Lamps", "metadata": {"name": "a"}}

    async with Cluster(None, clock=SystemClock()) as cluster:
        await install(cluster, [definition("lamps"), definition("chairs"), lamp, definition("tables")])
        served = [cluster.catalog.find_kind("example.com/v1", kind) for kind in ("Lamps", "Chairs", "Tables")]

        assert None not in served
        assert "lamps.example.com" in cluster.store.resources()


async def test_a_refused_definition_among_others_is_named() -> None:
    wrong = definition("chairs", schema={"type": "array"})

    async with Cluster(None, clock=SystemClock()) as cluster:
        with pytest.raises(ManifestError, match=r"CustomResourceDefinition chairs\.example\.com was refused"):
            await install(cluster, [definition("lamps"), wrong, definition("tables")])


SCHEMA = {
    "properties": {
        "spec": {
            "properties": {
                "policy": {"type": "string", "enum": ["Merge", "CreateOrMerge"]},
                "password": {"type": "string"},
                "note": {"type": "string"},
            }
        }
    }
}
UNSUPPORTED = 'spec.policy: Unsupported value: "%s": supported values: "Merge", "CreateOrMerge"'


@pytest.mark.parametrize(
    ("spec", "message", "shown"),
    [
        pytest.param(
            {"policy": "CreateOrMerg"},
            UNSUPPORTED % "CreateOrMerg",
            UNSUPPORTED % "CreateOrMerg",
            id="a mistake in a field with few values, and the remedy, stay",
        ),
        pytest.param(
            {"policy": "Merged", "password": "Merge"},
            UNSUPPORTED % "Merged",
            UNSUPPORTED % "Merged",
            id="a value that is also a word of the schema masks no such word",
        ),
        pytest.param(
            {"policy": HUSH, "password": HUSH},
            UNSUPPORTED % HUSH,
            UNSUPPORTED % "***",
            id="a text that another field has too is a value",
        ),
        pytest.param(
            {"password": f"my-Merge-{HUSH}"},
            f"spec.password: Invalid value: my-Merge-{HUSH}",
            "spec.password: Invalid value: ***",
            id="a value that contains a word of the schema",
        ),
        pytest.param(
            {"note": "password"},
            'spec.note: Invalid value: "password": it is weak',
            'spec.note: Invalid value: "***": it is weak',
            id="a rejected value that is also a name of a field",
        ),
        pytest.param(
            {"note": HUSH, "password": HUSH[4:] + "-more"},
            f"{HUSH}-more",
            "***",
            id="values that overlap",
        ),
    ],
)
def test_a_message_keeps_the_words_of_the_schema_and_loses_values(
    spec: dict[str, str], message: str, shown: str
) -> None:
    assert without_values(message, {"kind": "Lamp", "spec": spec}, SCHEMA) == shown
