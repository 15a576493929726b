"""The real kubectl against the server: what people type, and what they must see."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from kuberun.testing.servers import ApiServer, find_program

pytestmark = pytest.mark.live

WIDGETS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.kubectl.example.com}
spec:
  group: kubectl.example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, shortNames: [wd], categories: [all-widgets]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns:
    - {name: Size, type: integer, jsonPath: .spec.size}
    - {name: Colour, type: string, jsonPath: .spec.colour, priority: 1}
    - {name: Ready, type: string, jsonPath: '.status.conditions[?(@.type=="Ready")].status'}
    schema:
      openAPIV3Schema:
        type: object
        description: A Widget shows what can be explained.
        properties:
          spec:
            type: object
            description: What the widget should be.
            required: [size]
            properties:
              size: {type: integer, minimum: 1, description: How large it is.}
              colour: {type: string, enum: [red, blue]}
              parts: {type: array, items: {type: string}}
          status:
            type: object
            properties:
              conditions:
                type: array
                items:
                  type: object
                  required: [type, status]
                  properties: {type: {type: string}, status: {type: string}}
"""


class Kubectl:
    """Runs kubectl in one namespace with a cache of its own."""

    def __init__(self, server: ApiServer, home: Path, namespace: str) -> None:
        found = find_program("kubectl")
        assert found is not None, "kubectl is installed by `make setup`"
        self._command = [str(found), "--kubeconfig", str(server.kubeconfig), "--namespace", namespace]
        self._environment = {**os.environ, "HOME": str(home), "KUBECACHEDIR": str(home / "cache")}
        self.namespace = namespace

    def run(self, *arguments: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self._command, *arguments],
            input=stdin,
            text=True,
            capture_output=True,
            check=False,
            timeout=60,
            env={**self._environment, **environment},
        )

    def __call__(self, *arguments: str, stdin: str = "", **environment: str) -> str:
        done = self.run(*arguments, stdin=stdin, **environment)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}{done.stdout}"
        return done.stdout

    def fails(self, *arguments: str, stdin: str = "") -> str:
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode != 0, f"kubectl {' '.join(arguments)} should have failed: {done.stdout}"
        return done.stderr

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--output", "json"))

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self._command, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self._environment,
        )


@pytest.fixture
def kubectl(api_server: ApiServer, tmp_path: Path, namespace: str) -> Kubectl:
    return Kubectl(api_server, tmp_path, namespace)


@pytest.fixture
def widgets(kubectl: Kubectl) -> Kubectl:
    """A kubectl on a server that serves widgets."""
    kubectl("apply", "--filename", "-", stdin=WIDGETS)
    kubectl("wait", "--for=condition=Established", "crd/widgets.kubectl.example.com", "--timeout=20s")
    deadline = time.monotonic() + 20
    while kubectl.run("get", "widgets").returncode != 0:
        assert time.monotonic() < deadline, "widgets are never served"
        time.sleep(0.2)
    return kubectl


def widget(name: str = "w", size: int = 1, **extra: Any) -> str:
    spec = {"size": size, **extra.pop("spec", {})}
    metadata = {"name": name, **extra.pop("metadata", {})}
    return yaml.safe_dump(
        {"apiVersion": "kubectl.example.com/v1", "kind": "Widget", "metadata": metadata, "spec": spec, **extra}
    )


def config_map(name: str, **data: str) -> str:
    return yaml.safe_dump({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})


# --- looking around ---------------------------------------------------------------------------------------------------


def test_version_and_cluster_info(kubectl: Kubectl) -> None:
    assert "Server Version: v1." in kubectl("version")
    assert "is running at" in kubectl("cluster-info")


def test_api_resources_list_short_names_and_kinds(widgets: Kubectl) -> None:
    listed = {line.split()[0]: line.split() for line in widgets("api-resources", "--no-headers").splitlines()}

    assert listed["configmaps"] == ["configmaps", "cm", "v1", "true", "ConfigMap"]
    assert listed["widgets"] == ["widgets", "wd", "kubectl.example.com/v1", "true", "Widget"]
    assert listed["namespaces"][-2:] == ["false", "Namespace"]


def test_api_versions(widgets: Kubectl) -> None:
    versions = widgets("api-versions").split()

    assert {"v1", "apps/v1", "rbac.authorization.k8s.io/v1", "kubectl.example.com/v1"} <= set(versions)


def test_categories_gather_kinds(widgets: Kubectl) -> None:
    widgets("create", "--filename", "-", stdin=widget())

    assert "widget.kubectl.example.com/w" in widgets("get", "all-widgets", "--output", "name")


def test_explain_describes_fields(widgets: Kubectl) -> None:
    text = widgets("explain", "widget.spec.size")

    assert "FIELD: size <integer>" in text
    assert "How large it is." in text


def test_explain_recursive_lists_the_tree(widgets: Kubectl) -> None:
    text = widgets("explain", "widgets", "--recursive")

    assert "colour\t<string>" in text
    assert "conditions\t<[]Object>" in text


@pytest.mark.parametrize("path", ["secret.data", "configmap", "deployment.spec.replicas", "namespace.metadata.labels"])
def test_explain_knows_built_in_kinds(kubectl: Kubectl, path: str) -> None:
    assert "VERSION:" in kubectl("explain", path)


# --- creating and reading ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("secret", "generic", "s", "--from-literal=a=b"), "secret/s"),
        (("secret", "docker-registry", "r", "--docker-username=u", "--docker-password=p"), "secret/r"),
        (("configmap", "c", "--from-literal=a=b"), "configmap/c"),
        (("serviceaccount", "sa"), "serviceaccount/sa"),
        (("role", "r", "--verb=get", "--resource=secrets"), "role.rbac.authorization.k8s.io/r"),
        (("rolebinding", "rb", "--role=r", "--serviceaccount=x:y"), "rolebinding.rbac.authorization.k8s.io/rb"),
        (("deployment", "d", "--image=nginx", "--replicas=2", "--port=80"), "deployment.apps/d"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else "",
)
def test_create_commands(kubectl: Kubectl, arguments: tuple[str, ...], name: str) -> None:
    """Most of these send protobuf, as every typed Go client does."""
    assert kubectl("create", *arguments) == f"{name} created\n"
    assert kubectl("get", name, "--output", "name") == f"{name}\n"


def test_what_a_typed_client_wrote_reads_like_json(kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "d", "--image=nginx", "--replicas=2", "--port=80")

    spec = kubectl.json("get", "deployment", "d")["spec"]

    assert spec["replicas"] == 2
    assert spec["selector"] == {"matchLabels": {"app": "d"}}
    container = spec["template"]["spec"]["containers"][0]
    assert (container["name"], container["image"], container["ports"][0]["containerPort"]) == ("nginx", "nginx", 80)


def test_create_twice_says_already_exists(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "c")

    assert '"c" already exists' in kubectl.fails("create", "configmap", "c")


def test_get_prints_the_columns_of_the_definition(widgets: Kubectl) -> None:
    status = {"conditions": [{"type": "Ready", "status": "True"}]}
    widgets("apply", "--filename", "-", stdin=widget(size=3, spec={"colour": "red"}))
    widgets("patch", "widget", "w", "--subresource=status", "--type=merge", "--patch", json.dumps({"status": status}))

    narrow = [line.split() for line in widgets("get", "widgets").splitlines()]
    wide = [line.split() for line in widgets("get", "wd", "w", "--output", "wide").splitlines()]

    assert narrow == [["NAME", "SIZE", "READY"], ["w", "3", "True"]]
    assert wide == [["NAME", "SIZE", "COLOUR", "READY"], ["w", "3", "red", "True"]]


def test_get_in_every_output_format(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "c", "--from-literal=key=value")

    assert yaml.safe_load(kubectl("get", "cm", "c", "--output", "yaml"))["data"] == {"key": "value"}
    assert kubectl.json("get", "cm", "c")["data"] == {"key": "value"}
    assert kubectl("get", "cm", "c", "--output", "jsonpath={.data.key}") == "value"
    assert kubectl("get", "cm", "c", "--output", "name") == "configmap/c\n"
    assert kubectl("get", "cm", "c", "--no-headers").split()[:2] == ["c", "1"]
    assert kubectl("get", "cm", "c", "--output", "custom-columns=N:.metadata.name").split() == ["N", "c"]


def test_get_by_labels_and_across_namespaces(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "a")
    kubectl("create", "configmap", "b")
    kubectl("label", "configmap", "a", "tier=gold")

    assert kubectl("get", "cm", "--selector", "tier=gold", "--output", "name") == "configmap/a\n"
    everywhere = kubectl("get", "cm", "--all-namespaces", "--field-selector", "metadata.name=b", "--no-headers")
    assert [kubectl.namespace, "b"] in [line.split()[:2] for line in everywhere.splitlines()]


def test_get_in_chunks_is_complete(kubectl: Kubectl) -> None:
    documents = "---\n".join(config_map(f"c{n:02}") for n in range(25))
    kubectl("create", "--filename", "-", stdin=documents)

    names = kubectl("get", "cm", "--chunk-size=4", "--output", "name").splitlines()

    assert len([name for name in names if name.startswith("configmap/c")]) == 25


def test_what_is_not_there_is_not_found(kubectl: Kubectl) -> None:
    assert 'Error from server (NotFound): secrets "nope" not found' in kubectl.fails("get", "secret", "nope")
    assert "the server doesn't have a resource type" in kubectl.fails("get", "nopes")


def test_describe_shows_the_object(widgets: Kubectl) -> None:
    widgets("apply", "--filename", "-", stdin=widget(size=7))
    widgets("create", "secret", "generic", "s", "--from-literal=a=12345")

    assert "Size:  7" in widgets("describe", "widget", "w")
    described = widgets("describe", "secret", "s")
    assert "a:  5 bytes" in described
    assert "12345" not in described


# --- applying ---------------------------------------------------------------------------------------------------------


def test_client_side_apply_merges_with_what_others_wrote(kubectl: Kubectl) -> None:
    kubectl("apply", "--filename", "-", stdin=config_map("c", a="1", b="2"))
    kubectl("patch", "configmap", "c", "--type=merge", "--patch", '{"data":{"other":"kept"}}')

    said = kubectl("apply", "--filename", "-", stdin=config_map("c", a="changed"))
    again = kubectl("apply", "--filename", "-", stdin=config_map("c", a="changed"))

    assert (said, again) == ("configmap/c configured\n", "configmap/c unchanged\n")
    assert kubectl.json("get", "cm", "c")["data"] == {"a": "changed", "other": "kept"}


def test_client_side_apply_of_a_custom_object(widgets: Kubectl) -> None:
    assert widgets("apply", "--filename", "-", stdin=widget(size=1)).endswith("created\n")
    assert widgets("apply", "--filename", "-", stdin=widget(size=2)).endswith("configured\n")
    assert widgets("apply", "--filename", "-", stdin=widget(size=2)).endswith("unchanged\n")


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


def test_unknown_fields_are_refused_before_anything_is_stored(widgets: Kubectl) -> None:
    said = widgets.fails("apply", "--filename", "-", stdin=widget(spec={"shape": "round"}))

    assert 'unknown field "spec.shape"' in said
    assert "not found" in widgets.fails("get", "widget", "w")


def test_unknown_fields_are_warned_about_when_asked_to(widgets: Kubectl) -> None:
    done = widgets.run("create", "--validate=warn", "--filename", "-", stdin=widget(spec={"shape": "round"}))

    assert done.returncode == 0
    assert 'Warning: unknown field "spec.shape"' in done.stderr


def test_invalid_objects_name_every_cause(widgets: Kubectl) -> None:
    said = widgets.fails("apply", "--validate=false", "--filename", "-", stdin=widget(size=0, spec={"colour": "green"}))

    assert 'The Widget "w" is invalid' in said
    assert "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1" in said
    assert 'spec.colour: Unsupported value: "green": supported values: "red", "blue"' in said


def test_replace(kubectl: Kubectl) -> None:
    kubectl("create", "--filename", "-", stdin=config_map("c", a="1"))

    assert kubectl("replace", "--filename", "-", stdin=config_map("c", b="2")) == "configmap/c replaced\n"
    assert kubectl.json("get", "cm", "c")["data"] == {"b": "2"}


# --- patches ----------------------------------------------------------------------------------------------------------


def test_a_merge_patch(widgets: Kubectl) -> None:
    widgets("apply", "--filename", "-", stdin=widget(spec={"colour": "red"}))

    widgets("patch", "widget", "w", "--type=merge", "--patch", '{"spec":{"colour":null,"size":5}}')

    assert widgets.json("get", "widget", "w")["spec"] == {"size": 5}


def test_a_json_patch(widgets: Kubectl) -> None:
    widgets("apply", "--filename", "-", stdin=widget(spec={"parts": ["a", "b"]}))
    patch = [{"op": "test", "path": "/spec/size", "value": 1}, {"op": "add", "path": "/spec/parts/1", "value": "x"}]

    widgets("patch", "widget", "w", "--type=json", "--patch", json.dumps(patch))

    assert widgets.json("get", "widget", "w")["spec"]["parts"] == ["a", "x", "b"]


def test_a_strategic_patch_merges_lists_by_their_key(kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "d", "--image=one")
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "extra", "image": "two"}]}}}}

    kubectl("patch", "deployment", "d", "--patch", json.dumps(patch))

    containers = kubectl.json("get", "deployment", "d")["spec"]["template"]["spec"]["containers"]
    assert sorted(container["name"] for container in containers) == ["extra", "one"]


def test_custom_objects_take_no_strategic_patch(widgets: Kubectl) -> None:
    widgets("apply", "--filename", "-", stdin=widget())

    said = widgets.fails("patch", "widget", "w", "--type=strategic", "--patch", "{}")

    assert "strategic-merge-patch+json is not supported" in said


def test_edit_sends_a_patch_of_what_changed(kubectl: Kubectl) -> None:
    kubectl("create", "--filename", "-", stdin=config_map("c", a="before"))

    said = kubectl("edit", "configmap", "c", KUBE_EDITOR="sed -i s/before/after/")

    assert said == "configmap/c edited\n"
    assert kubectl.json("get", "cm", "c")["data"] == {"a": "after"}


def test_label_and_annotate(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "c")
    kubectl("label", "configmap", "c", "a=1")

    assert "--overwrite is false" in kubectl.fails("label", "configmap", "c", "a=2")
    kubectl("label", "configmap", "c", "a=2", "--overwrite")
    kubectl("annotate", "configmap", "c", "note=hello")
    kubectl("label", "configmap", "c", "a-")

    metadata = kubectl.json("get", "cm", "c")["metadata"]
    assert "labels" not in metadata
    assert metadata["annotations"] == {"note": "hello"}


def test_status_is_a_subresource_of_its_own(widgets: Kubectl) -> None:
    widgets("apply", "--filename", "-", stdin=widget())
    status = {"conditions": [{"type": "Ready", "status": "True"}]}

    widgets("patch", "widget", "w", "--subresource=status", "--type=merge", "--patch", json.dumps({"status": status}))
    widgets("patch", "widget", "w", "--type=merge", "--patch", '{"status":null,"spec":{"size":9}}')

    obj = widgets.json("get", "widget", "w")
    assert (obj["status"], obj["spec"]["size"], obj["metadata"]["generation"]) == (status, 9, 2)


# --- watching and waiting ---------------------------------------------------------------------------------------------


def test_get_watch_prints_changes_as_they_happen(widgets: Kubectl) -> None:
    widgets("apply", "--filename", "-", stdin=widget(size=1))
    watching = widgets.start("get", "widgets", "--watch")
    assert watching.stdout is not None
    lines = [watching.stdout.readline().split(), watching.stdout.readline().split()]

    widgets("patch", "widget", "w", "--type=merge", "--patch", '{"spec":{"size":2}}')
    lines.append(watching.stdout.readline().split())
    watching.terminate()
    watching.wait(10)
    watching.stdout.close()

    assert lines == [["NAME", "SIZE", "READY"], ["w", "1"], ["w", "2"]]


def test_get_watch_prints_whole_objects(kubectl: Kubectl) -> None:
    watching = kubectl.start("get", "secrets", "--watch", "--output", "name")
    assert watching.stdout is not None

    # The first line may only come once something happens, so writes go on until it has.
    kubectl("create", "secret", "generic", "first")
    line = watching.stdout.readline()
    watching.terminate()
    watching.wait(10)
    watching.stdout.close()

    assert line == "secret/first\n"


def test_wait_for_a_condition(widgets: Kubectl) -> None:
    widgets("apply", "--filename", "-", stdin=widget())
    waiting = widgets.start("wait", "widget/w", "--for=condition=Ready", "--timeout=30s")
    status = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}

    widgets("patch", "widget", "w", "--subresource=status", "--type=merge", "--patch", json.dumps(status))

    assert waiting.wait(40) == 0
    assert waiting.stdout is not None
    assert "condition met" in waiting.stdout.read()
    waiting.stdout.close()


def test_wait_for_a_value(kubectl: Kubectl) -> None:
    kubectl("create", "--filename", "-", stdin=config_map("c", a="1"))

    assert "condition met" in kubectl("wait", "configmap/c", "--for=jsonpath={.data.a}=1", "--timeout=10s")
    assert "timed out" in kubectl.fails("wait", "configmap/c", "--for=jsonpath={.data.a}=2", "--timeout=1s")


def test_wait_for_deletion(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "c")
    waiting = kubectl.start("wait", "configmap/c", "--for=delete", "--timeout=30s")

    kubectl("delete", "configmap", "c")

    assert waiting.wait(40) == 0
    assert waiting.stdout is not None
    waiting.stdout.close()


# --- deleting ---------------------------------------------------------------------------------------------------------


def test_delete_waits_for_finalizers(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "c")
    kubectl("patch", "configmap", "c", "--type=merge", "--patch", '{"metadata":{"finalizers":["example.com/hold"]}}')
    deleting = kubectl.start("delete", "configmap", "c")
    kubectl("wait", "configmap/c", "--for=jsonpath={.metadata.deletionTimestamp}", "--timeout=20s")

    kubectl("patch", "configmap", "c", "--type=merge", "--patch", '{"metadata":{"finalizers":null}}')

    assert deleting.wait(40) == 0
    assert deleting.stdout is not None
    deleting.stdout.close()
    assert "not found" in kubectl.fails("get", "configmap", "c")


def owned(kubectl: Kubectl, name: str) -> str:
    """A ConfigMap that belongs to the ConfigMap `owner`."""
    uid = kubectl("get", "configmap", "owner", "--output", "jsonpath={.metadata.uid}")
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid, "blockOwnerDeletion": True}
    metadata = {"name": name, "ownerReferences": [reference]}
    return yaml.safe_dump({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})


def needs_garbage_collection(server: ApiServer) -> None:
    if server.name == "kube":
        pytest.skip("a bare kube-apiserver has no garbage collector; it runs in kube-controller-manager")


@pytest.mark.parametrize("cascade", ["background", "foreground"])
def test_delete_takes_dependents_along(kubectl: Kubectl, api_server: ApiServer, cascade: str) -> None:
    needs_garbage_collection(api_server)
    kubectl("create", "configmap", "owner")
    kubectl("create", "--filename", "-", stdin=owned(kubectl, "child"))

    kubectl("delete", "configmap", "owner", f"--cascade={cascade}")

    kubectl("wait", "configmap/child", "--for=delete", "--timeout=20s")
    assert "not found" in kubectl.fails("get", "configmap", "child")


def test_delete_can_leave_dependents_behind(kubectl: Kubectl, api_server: ApiServer) -> None:
    needs_garbage_collection(api_server)
    kubectl("create", "configmap", "owner")
    kubectl("create", "--filename", "-", stdin=owned(kubectl, "child"))

    kubectl("delete", "configmap", "owner", "--cascade=orphan")

    kubectl("wait", "configmap/owner", "--for=delete", "--timeout=20s")
    assert "ownerReferences" not in kubectl.json("get", "configmap", "child")["metadata"]


def test_delete_many_by_label(kubectl: Kubectl) -> None:
    for name in ("a", "b", "c"):
        kubectl("create", "configmap", name)
    kubectl("label", "configmap", "a", "b", "drop=yes")

    kubectl("delete", "configmap", "--selector", "drop=yes")

    assert "configmap/c" in kubectl("get", "configmap", "--output", "name").splitlines()
    assert "not found" in kubectl.fails("get", "configmap", "a")


def test_delete_a_namespace_with_what_is_in_it(kubectl: Kubectl, api_server: ApiServer) -> None:
    needs_garbage_collection(api_server)
    kubectl("create", "namespace", f"{kubectl.namespace}-inner")
    kubectl("create", "secret", "generic", "s", "--namespace", f"{kubectl.namespace}-inner")

    kubectl("delete", "namespace", f"{kubectl.namespace}-inner", "--timeout=30s")

    assert "not found" in kubectl.fails("get", "namespace", f"{kubectl.namespace}-inner")


# --- who may what -----------------------------------------------------------------------------------------------------


def test_whoami(kubectl: Kubectl) -> None:
    groups = kubectl.json("auth", "whoami")["status"]["userInfo"]["groups"]

    assert {"system:masters", "system:authenticated"} <= set(groups)


def test_can_i_follows_roles_and_bindings(kubectl: Kubectl) -> None:
    account = f"system:serviceaccount:{kubectl.namespace}:reader"
    kubectl("create", "serviceaccount", "reader")
    kubectl("create", "role", "reader", "--verb=get,list", "--resource=configmaps")
    before = kubectl.run("auth", "can-i", "list", "configmaps", "--as", account)

    kubectl("create", "rolebinding", "reader", "--role=reader", f"--serviceaccount={kubectl.namespace}:reader")
    deadline = time.monotonic() + 20
    while kubectl.run("auth", "can-i", "list", "configmaps", "--as", account).returncode:
        assert time.monotonic() < deadline, "the binding never takes effect"

    assert (before.returncode, before.stdout) == (1, "no\n")
    assert kubectl.run("auth", "can-i", "list", "secrets", "--as", account).stdout == "no\n"
    assert kubectl("auth", "can-i", "*", "*") == "yes\n"
    assert "configmaps" in kubectl("auth", "can-i", "--list", "--as", account)


def test_a_token_of_a_service_account_acts_within_its_roles(kubectl: Kubectl) -> None:
    account = f"system:serviceaccount:{kubectl.namespace}:robot"
    kubectl("create", "serviceaccount", "robot")
    kubectl(
        "create", "rolebinding", "robot", "--clusterrole=cluster-admin", f"--serviceaccount={kubectl.namespace}:robot"
    )
    token = kubectl("create", "token", "robot").strip()

    who = kubectl.json("--token", token, "auth", "whoami")["status"]["userInfo"]["username"]
    refused = kubectl.fails("--token", token, "get", "secrets", "--namespace", "kube-system")

    assert who == account
    assert f'User "{account}" cannot list resource "secrets" in API group "" in the namespace "kube-system"' in refused
    assert kubectl("--token", token, "get", "secrets", "--output", "name") == ""


def test_a_wrong_token_is_unauthorized(kubectl: Kubectl) -> None:
    assert "You must be logged in to the server" in kubectl.fails("--token", "wrong", "get", "secrets")


def test_a_token_for_a_while_and_an_audience(kubectl: Kubectl) -> None:
    kubectl("create", "serviceaccount", "robot")

    request = kubectl.json("create", "token", "robot", "--audience=vault", "--duration=20m")

    assert request["spec"]["audiences"] == ["vault"]
    assert request["spec"]["expirationSeconds"] == 1200
