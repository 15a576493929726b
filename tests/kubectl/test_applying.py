"""apply on both sides, diff, dry runs, replace."""

from __future__ import annotations

import pytest
import yaml

from kuberun.testing.kubectl import Kubectl, config_map, gadget

pytestmark = pytest.mark.live


def test_client_side_apply_merges_with_what_others_wrote(kubectl: Kubectl) -> None:
    kubectl("apply", "--filename", "-", stdin=config_map("c", a="1", b="2"))
    kubectl("patch", "configmap", "c", "--type=merge", "--patch", '{"data":{"other":"kept"}}')

    said = kubectl("apply", "--filename", "-", stdin=config_map("c", a="changed"))
    again = kubectl("apply", "--filename", "-", stdin=config_map("c", a="changed"))

    assert (said, again) == ("configmap/c configured\n", "configmap/c unchanged\n")
    assert kubectl.json("get", "cm", "c")["data"] == {"a": "changed", "other": "kept"}


def test_client_side_apply_of_a_custom_object(gadgets: Kubectl) -> None:
    assert gadgets("apply", "--filename", "-", stdin=gadget(size=1)).endswith("created\n")
    assert gadgets("apply", "--filename", "-", stdin=gadget(size=2)).endswith("configured\n")
    assert gadgets("apply", "--filename", "-", stdin=gadget(size=2)).endswith("unchanged\n")


def test_server_side_apply_reports_conflicts_and_can_be_forced(kubectl: Kubectl) -> None:
    kubectl("apply", "--server-side", "--field-manager=first", "--filename", "-", stdin=config_map("c", a="1"))

    refused = kubectl.fails(
        "apply", "--server-side", "--field-manager=second", "--filename", "-", stdin=config_map("c", a="2")
    )
    kubectl(
        "apply", "--server-side", "--field-manager=second", "--force-conflicts", "--filename", "-",
        stdin=config_map("c", a="2"),
    )  # fmt: skip

    assert 'conflict with "first": .data.a' in refused
    assert kubectl.json("get", "cm", "c")["data"] == {"a": "2"}
    managers = [
        entry["manager"]
        for entry in kubectl.json("get", "cm", "c", "--show-managed-fields")["metadata"]["managedFields"]
    ]
    assert managers == ["second"]


def test_server_side_apply_removes_what_is_no_longer_applied(kubectl: Kubectl) -> None:
    kubectl("apply", "--server-side", "--filename", "-", stdin=config_map("c", a="1", b="2"))

    kubectl("apply", "--server-side", "--filename", "-", stdin=config_map("c", a="1"))

    assert kubectl.json("get", "cm", "c")["data"] == {"a": "1"}


def test_diff_shows_what_apply_would_change_and_changes_nothing(kubectl: Kubectl) -> None:
    kubectl("apply", "--filename", "-", stdin=config_map("c", a="1"))

    differs = kubectl.run("diff", "--filename", "-", stdin=config_map("c", a="2"))
    same = kubectl.run("diff", "--filename", "-", stdin=config_map("c", a="1"))

    assert (differs.returncode, same.returncode) == (1, 0), differs.stderr + same.stderr
    assert '+  a: "2"' in differs.stdout
    assert kubectl.json("get", "cm", "c")["data"] == {"a": "1"}


def test_a_server_dry_run_changes_nothing(kubectl: Kubectl) -> None:
    said = kubectl("create", "configmap", "c", "--dry-run=server", "--output", "name")

    assert said == "configmap/c\n"
    assert "not found" in kubectl.fails("get", "configmap", "c")


def test_unknown_fields_are_refused_before_anything_is_stored(gadgets: Kubectl) -> None:
    said = gadgets.fails("apply", "--filename", "-", stdin=gadget(spec={"shape": "round"}))

    assert 'unknown field "spec.shape"' in said
    assert "not found" in gadgets.fails("get", "gadget", "w")


def test_unknown_fields_are_warned_about_when_asked_to(gadgets: Kubectl) -> None:
    done = gadgets.run("create", "--validate=warn", "--filename", "-", stdin=gadget(spec={"shape": "round"}))

    assert done.returncode == 0
    assert 'Warning: unknown field "spec.shape"' in done.stderr


def test_invalid_objects_name_every_cause(gadgets: Kubectl) -> None:
    said = gadgets.fails("apply", "--validate=false", "--filename", "-", stdin=gadget(size=0, spec={"colour": "green"}))

    assert 'The Gadget "w" is invalid' in said
    assert "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1" in said
    assert 'spec.colour: Unsupported value: "green": supported values: "red", "blue"' in said


def test_replace(kubectl: Kubectl) -> None:
    kubectl("create", "--filename", "-", stdin=config_map("c", a="1"))

    assert kubectl("replace", "--filename", "-", stdin=config_map("c", b="2")) == "configmap/c replaced\n"
    assert kubectl.json("get", "cm", "c")["data"] == {"b": "2"}


@pytest.mark.parametrize(
    ("api_version", "kind", "options"),
    [
        pytest.param("external-secrets.io/v1", "ExternalSecrets", [], id="no such group"),
        pytest.param("v1", "ConfigMaps", [], id="a wrong kind of the core"),
        pytest.param("apps/v1", "Deploy", [], id="a wrong kind of a group"),
        pytest.param("v7", "ConfigMap", [], id="a wrong version of the core"),
        pytest.param("apps/v7", "Deployment", ["--server-side"], id="a wrong version, on the server's side"),
    ],
)
def test_a_kind_that_the_server_does_not_have_is_named(
    kubectl: Kubectl, api_version: str, kind: str, options: list[str]
) -> None:
    manifest = f"apiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: it}}\n"

    refused = kubectl.fails("apply", *options, "--filename", "-", stdin=manifest)

    assert f'no matches for kind "{kind}" in version "{api_version}"' in refused
    assert "openapi" not in refused


@pytest.mark.parametrize(("version", "kind"), [("v1", "Gadgets"), ("v7", "Gadget")], ids=["kind", "version"])
def test_a_misspelled_custom_kind_is_named(gadgets: Kubectl, version: str, kind: str) -> None:
    api_version = f"kubectl.example.com/{version}"
    manifest = f"apiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: it}}\n"

    refused = gadgets.fails("create", "--filename", "-", stdin=manifest)

    assert f'no matches for kind "{kind}" in version "{api_version}"' in refused
    assert "openapi" not in refused


def test_a_list_of_objects_is_applied(kubectl: Kubectl) -> None:
    items = [yaml.safe_load(config_map(name)) for name in ("one", "other")]
    manifest = yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": items})

    said = kubectl("apply", "--filename", "-", stdin=manifest)

    assert said == "configmap/one created\nconfigmap/other created\n"
