"""`eso plan` beside a running `eso up`: the plan is what `eso up` does, nothing is written, and no value is printed.

One `eso up` has the manifests of `live`. One plan of `following` is recorded; replays need no provider.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.pushsecret import PUSH_SECRET
from eso_api.secretstore import CLUSTER_SECRET_STORE, SECRET_STORE
from eso_cli.main import commands
from eso_cli.plan import CHANGES, FAILS, NOTHING_CHANGES, UNCHECKED, UNUSABLE, PlanOptions, code_of, lines, planned
from eso_cli.plan import run as run_plan
from eso_testkit.cli.upprocess import ESO, SECONDS, UpProcess, up_running
from eso_tools.manifests import InputError
from eso_tools.plan.differences import Change, KeyChange
from eso_tools.plan.plan import FROM_RECORDING, Plan, PushPlan, TargetPlan, Unchecked
from kubebase.meta import JsonObject
from kuberun.testing.kubectl import Kubectl

GONE = Path(__file__).parent / "gone"
DEMO = Path(__file__).resolve().parents[3] / "examples" / "demo"
CANARIES = ("CANARY-user-7f3e", "CANARY-password-91ab", "CANARY-token-55cd", "CANARY-mode-02")
USER, PASSWORD, TOKEN, MODE = CANARIES
VALUES = {"db": json.dumps({"user": USER, "password": PASSWORD}), "token": TOKEN, "pin": "4711", "mode": MODE}
GUARD = '{{ if ne (len .mode) 14 }}{{ fail "the mode is wrong" }}{{ end }}on'
"""A template that works with the value, and fails with a stand-in."""
APP = "app"
SECRET = (("", "Secret"), APP, "database")

Changes = dict[tuple[str, str, str], str]


def manifest(kind: Any, name: str, spec: JsonObject) -> JsonObject:
    metadata = {"name": name} | ({"namespace": APP} if kind.namespaced else {})
    return {"apiVersion": kind.resource().api_version, "kind": kind.name, "metadata": metadata, "spec": spec}


def store(kind: Any, name: str, values: dict[str, str]) -> JsonObject:
    data = [{"key": key, "value": value} for key, value in values.items()]
    return manifest(kind, name, {"provider": {"fake": {"data": data}}})


def external_secret(name: str, data: dict[str, str], template: dict[str, str] | None = None, **spec: Any) -> JsonObject:
    """Return an ExternalSecret; a source is a remote key, or `key#property`."""
    entries = []
    for secret_key, source in data.items():
        key, _, part = source.partition("#")
        entries.append({"secretKey": secret_key, "remoteRef": {"key": key} | ({"property": part} if part else {})})
    target = {"template": {"data": template}} if template else {}
    ref = {"secretStoreRef": {"name": "backend"}}
    return manifest(EXTERNAL_SECRET, name, {**ref, "target": target, "data": entries, **spec})


LOGIN = {"user": "db#user", "password": "db#password"}
URL = "postgres://{{ .user }}:{{ .password }}@%s/app"
NO_TOKEN = {"name": "no-such-secret", "key": "token"}
MERGE = {"name": "shared", "creationPolicy": "Merge"}
CENTRAL = {"secretStoreRef": {"kind": "ClusterSecretStore", "name": "central"}}
BACKUP = manifest(
    PUSH_SECRET,
    "backup",
    {
        "secretStoreRefs": [{"name": "vault"}],
        "selector": {"secret": {"name": "database"}},
        "data": [{"match": {"secretKey": key, "remoteRef": {"remoteKey": f"backup/{key}"}}} for key in ("url", "user")],
    },
)
COMMON = (
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": APP}},
    store(SECRET_STORE, "backend", VALUES),
    store(SECRET_STORE, "vault", {}),
    BACKUP,
    external_secret("guarded", {"mode": "mode"}, {"state": GUARD}),
    external_secret("spare", {"token": "token"}, secretStoreRef={"name": "spare"}),
    store(SECRET_STORE, "spare", VALUES),
)
LIVE = (
    *COMMON,
    store(CLUSTER_SECRET_STORE, "central", VALUES),
    external_secret("database", LOGIN, {"url": URL % "old", "user": "{{ .user }}"}),
    external_secret("tokens", {"token": "token", "pin": "pin"}, **CENTRAL),
    {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "shared", "namespace": APP},
        "stringData": {"own": "x"},
    },
    external_secret("merged", {"token": "token", "pin": "pin"}, target=MERGE),
)
FOLLOWING = (
    *COMMON,
    external_secret("database", LOGIN, {"url": URL % "new", "user": "{{ .user }}"}),
    external_secret("tokens", {"token": "token"}, **CENTRAL),
    external_secret("merged", {"token": "token"}, target=MERGE),
    external_secret("added", {"token": "token"}),
    external_secret("missing", {"token": "no-such-key"}),
    manifest(SECRET_STORE, "closed", {"provider": {"kubernetes": {"auth": {"token": {"bearerToken": NO_TOKEN}}}}}),
    external_secret("locked", {"token": "token"}, secretStoreRef={"name": "closed"}),
)
"""After LIVE: a changed template, a removed entry, a new object, one that fails. The central store is not here."""


def written(folder: Path, objects: tuple[JsonObject, ...]) -> Path:
    folder.mkdir()
    (folder / "all.yaml").write_text(yaml.safe_dump_all(objects))
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("plan")


@pytest.fixture(scope="module")
def up(place: Path) -> Iterator[UpProcess]:
    live = written(place / "live", LIVE)
    with up_running(place / "up", "--file", str(live), "--file", str(DEMO)) as running:
        kubectl = Kubectl(running, running.folder)
        waits = ("wait", "--for=condition=Ready", f"--timeout={SECONDS:.0f}s")
        parts = [f"externalsecret/{name}" for name in ("database", "tokens", "merged", "guarded", "spare")]
        kubectl(*waits, "--namespace", APP, "pushsecret/backup", *parts)
        kubectl(*waits, "clusterexternalsecret/demo-certificate")
        for team in ("red", "green", "blue"):
            kubectl(*waits, "--namespace", f"demo-{team}", "externalsecret/shared-certificate")
        names = ("database-url", "generated-password", "read-back")
        kubectl(*waits, "--namespace", "demo", *(f"externalsecret/{name}" for name in names))
        yield running


def versions(up: UpProcess) -> dict[str, str]:
    """Return the resourceVersion of every object that a plan could touch."""
    kinds = "externalsecrets,pushsecrets,secrets,secretstores,configmaps,serviceaccounts"
    found = Kubectl(up, up.folder).json("get", kinds, "--namespace", APP)["items"]
    return {f"{each['kind']}/{each['metadata']['name']}": each["metadata"]["resourceVersion"] for each in found}


def keys_of(up: UpProcess) -> dict[tuple[str, str], set[str]]:
    """Return the keys of every Secret that the operator of `eso up` manages."""
    labelled = ("--all-namespaces", "--selector", "reconcile.external-secrets.io/managed=true")
    found = Kubectl(up, up.folder).json("get", "secrets", *labelled)["items"]
    return {(each["metadata"]["namespace"], each["metadata"]["name"]): set(each["data"]) for each in found}


class Run:
    """One recorded plan of FOLLOWING against the cluster of `eso up`, as a user runs it."""

    def __init__(self, up: UpProcess, place: Path) -> None:
        self.folder = written(place / "following", FOLLOWING)
        self.recording = place / "recording.json"
        self.temporary = place / "temporary"
        self.temporary.mkdir()
        self.before = versions(up)
        places = ["-f", self.folder, "--kubeconfig", up.kubeconfig, "--record", self.recording]
        environment = {**os.environ, "TMPDIR": str(self.temporary)}
        self.done = subprocess.run(
            [str(ESO), "plan", *map(str, places), "-o", "json"],
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
            env=environment,
        )
        self.after = versions(up)
        self.left = list(self.temporary.iterdir())
        assert self.done.stdout, self.done.stderr
        self.plan = json.loads(self.done.stdout)


@pytest.fixture(scope="module")
def run(up: UpProcess, place: Path) -> Run:
    return Run(up, place)


def changes_of(plan: Plan) -> Changes:
    keys = {(each.namespace, each.name, key.key): key.change.value for each in plan.targets for key in each.keys}
    return keys | {(push.namespace, push.of, push.remote): push.change.value for push in plan.pushes}


def changes_in(plan: JsonObject) -> Changes:
    found = {
        (each["namespace"], each["name"], key["key"]): key["change"] for each in plan["targets"] for key in each["keys"]
    }
    return found | {(each["namespace"], each["pushSecret"], each["remote"]): each["change"] for each in plan["pushes"]}


def replayed(run: Run, place: Path, name: str, objects: tuple[JsonObject, ...]) -> Plan:
    options = PlanOptions((written(place / name, objects),), recorded=run.recording)
    return asyncio.run(planned(options))


def test_the_plan_of_new_manifests_is_what_eso_up_creates(up: UpProcess, place: Path) -> None:
    plan = asyncio.run(planned(PlanOptions((place / "live", DEMO), offline=True)))

    targets = {(each.namespace, each.name): {key.key for key in each.keys} for each in plan.targets}
    made = keys_of(up)
    assert made.pop((APP, "shared")) - {"own"} == targets.pop((APP, "shared"))  # one key is not of an ExternalSecret
    assert targets == made
    assert {key.change for target in plan.targets for key in target.keys} == {Change.CREATE}
    assert [str(row.id) for cause in plan.causes for row in cause.roots] == ["ExternalSecret demo/broken"]
    assert "SecretNotFound" in plan.causes[0].headline


def test_a_plan_shows_exactly_the_keys_that_change(run: Run) -> None:
    assert changes_in(run.plan) == {
        (APP, "added", "token"): "create",
        (APP, "database", "url"): "change",
        (APP, "database", "user"): "unchanged",
        (APP, "guarded", "state"): "unchanged",
        (APP, "shared", "pin"): "remove",
        (APP, "shared", "token"): "unchanged",
        (APP, "spare", "token"): "unchanged",
        (APP, "tokens", "pin"): "remove",
        (APP, "tokens", "token"): "unchanged",
        (APP, "backup", "backup/url"): "create",  # the backend of the fake provider is the memory of its process
        (APP, "backup", "backup/user"): "create",
    }


def test_an_object_that_fails_comes_with_its_cause_and_exit_code_1(run: Run) -> None:
    problem = next(each for each in run.plan["problems"] if each["reason"] == "SecretNotFound")

    assert run.done.returncode == FAILS
    assert problem["causedBy"] == [f"ExternalSecret {APP}/missing"]
    assert problem["reason"] == "SecretNotFound"
    assert '"no-such-key" does not exist' in problem["message"]


def test_a_store_that_fails_is_the_cause_of_all_that_wait_for_it(run: Run) -> None:
    problem = next(each for each in run.plan["problems"] if each["causedBy"] == [f"SecretStore {APP}/closed"])

    assert problem["waiting"] == [f"ExternalSecret {APP}/locked"]
    assert "there is no Secret app/no-such-secret" in problem["message"]


def test_equal_values_have_equal_digests_and_digests_are_short(run: Run) -> None:
    shown = {(each["name"], key["key"]): key for each in run.plan["targets"] for key in each["keys"]}

    assert shown["added", "token"]["after"] == shown["tokens", "token"]["after"]
    assert shown["database", "url"]["before"] != shown["database", "url"]["after"]
    assert {len(key["after"]) for key in shown.values() if key["after"]} == {6}


def test_a_plan_writes_nothing_into_the_cluster_and_leaves_no_files(run: Run) -> None:
    assert run.after == run.before
    assert run.left == []


def test_a_plan_does_not_read_keys_of_the_operator_in_the_cluster(run: Run) -> None:
    reads = json.loads(run.recording.read_text())["asked"]

    assert [name for name in reads if " external-secrets/" in name] == []


def test_neither_output_nor_recording_contain_a_value(run: Run) -> None:
    texts = run.done.stdout + run.done.stderr + run.recording.read_text()

    assert [canary for canary in CANARIES if canary in texts] == []
    assert '"4711"' not in texts


def test_a_replay_without_providers_gives_the_recorded_plan(run: Run, place: Path) -> None:
    plan = replayed(run, place, "same", FOLLOWING)

    expected = {key: change for key, change in changes_in(run.plan).items() if key[1] != "guarded"}
    assert changes_of(plan) == expected
    failing = {str(row.id) for cause in plan.causes for row in cause.roots}
    assert failing == {f"ExternalSecret {APP}/missing", f"SecretStore {APP}/closed"}
    (unchecked,) = plan.unchecked
    assert (unchecked.name, unchecked.why.partition(":")[0]) == ("guarded", FROM_RECORDING)
    assert not any(canary in line for canary in CANARIES for line in lines(plan))


def test_a_replay_of_changed_manifests_shows_the_change_and_what_it_cannot_know(run: Run, place: Path) -> None:
    changed = (
        *COMMON[:4],
        external_secret("database", LOGIN, {"url": URL % "new", "user": "{{ .user | upper }}"}),
        external_secret("tokens", {"token": "token", "copy": "token"}, **CENTRAL),
        external_secret("unknown", {"token": "never-read"}),
        external_secret("spare", {"token": "token"}, secretStoreRef={"name": "spare"}),
        store(SECRET_STORE, "spare", {**VALUES, "token": "another value"}),
        external_secret("elsewhere", {"token": "token"}, secretStoreRef={"name": "not-recorded"}),
        external_secret("typo", LOGIN, {"user": "{{ .usr }}"}),
    )

    plan = replayed(run, place, "changed", changed)

    assert changes_of(plan) == {
        (APP, "database", "url"): "change",  # as it was recorded
        (APP, "database", "user"): "change",
        (APP, "tokens", "copy"): "create",
        (APP, "tokens", "pin"): "remove",
        (APP, "tokens", "token"): "unchanged",
        (APP, "backup", "backup/url"): "create",
        (APP, "backup", "backup/user"): "create",
    }
    why = {each.name: each.why for each in plan.unchecked if each.kind == "ExternalSecret"}
    assert why.keys() == {"unknown", "spare", "elsewhere"}
    assert why["elsewhere"].startswith("the recording does not contain SecretStore not-recorded")
    assert f'key "never-read" of SecretStore.external-secrets.io {APP}/backend' in why["unknown"]
    assert f"the present configuration of SecretStore.external-secrets.io {APP}/spare" in why["spare"]
    assert [str(row.id) for cause in plan.causes for row in cause.roots] == [f"ExternalSecret {APP}/typo"]
    assert code_of(plan) == FAILS


def test_a_manifest_that_the_api_refuses_is_bad_input_with_its_line(tmp_path: Path) -> None:
    folder = written(tmp_path / "bad", (external_secret("bad", {"token": "a"}, refreshPolicy="Sometimes"),))

    with pytest.raises(InputError, match=r"all\.yaml:[1-9]\d*: ExternalSecret bad was refused: .*refreshPolicy"):
        asyncio.run(planned(PlanOptions((folder,), offline=True)))


MISSPELLED = """\
apiVersion: external-secrets.io/v1
kind: ExternalSecret
metadata: {name: misspelled, labls: {}}
spec:
  refreshIntervall: 1h
  secretStoreRef: {name: backend}
  data: [{secretKey: a, remoteRef: {key: a}}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: values}
dat: {a: b}
data: {a: b}
data: {a: c}
---
apiVersion: external-secrets.io/v1
kind: ExternalSecrets
metadata: {name: plural}
---
apiVersion: external-secrets.io/v1
kind: ExternalSecret
metadata: {name: astray, namespace: [app]}
"""
UNSUPPORTED = """\
apiVersion: external-secrets.io/v1
kind: ExternalSecret
metadata: {name: unsupported}
spec:
  secretStoreRef: {name: backend}
  target:
    creationPolicy: CreateOrMerg
  data: [{secretKey: a, remoteRef: {key: Merge}}]
"""
NOT_KNOWN = (
    "external-secrets.io/v1 ExternalSecrets is not known: correct apiVersion or kind, or install the provider that"
    " defines it"
)
REFUSED = (
    'ExternalSecret unsupported was refused: ExternalSecret.external-secrets.io "unsupported" is invalid:'
    ' [spec.target.creationPolicy: Unsupported value: "CreateOrMerg": supported values: "Owner", "Orphan",'
    ' "Merge", "None", "CreateOrMerge", <nil>: Invalid value: null: some validation rules were not checked'
    " because the object was invalid; correct the existing errors to complete validation]"
)


def test_every_file_and_document_that_kubectl_apply_would_refuse_is_named_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = {"no-yaml": "a: [", "misspelled": MISSPELLED, "unsupported": UNSUPPORTED}
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    (tmp_path / "empty").mkdir()

    code = run_plan(PlanOptions((tmp_path, tmp_path / "empty"), offline=True))

    said = capsys.readouterr().err
    assert code == UNUSABLE
    assert [line.removeprefix(f"eso plan: {tmp_path}/").partition(": ")[::2] for line in said.splitlines()] == [
        ("no-yaml.yaml:2", "did not find expected node content"),
        ("empty", "holds no manifest; name a YAML or JSON file with objects, or a folder of such files"),
        ("misspelled.yaml:3", "metadata.labls: there is no such field; did you mean labels?"),
        ("misspelled.yaml:5", "spec.refreshIntervall: there is no such field; did you mean refreshInterval?"),
        ("misspelled.yaml:12", "dat: there is no such field; did you mean data?"),
        ("misspelled.yaml:14", "data: the field is set twice"),
        (
            "misspelled.yaml:16",
            NOT_KNOWN,
        ),
        ("misspelled.yaml:22", "metadata.namespace must be text"),
        (
            "unsupported.yaml:7",
            REFUSED,
        ),
    ]


@pytest.mark.parametrize("kind", ["ExternalSecret", "SecretStore", "ConfigMap"])
def test_a_namespace_that_cannot_exist_is_bad_input_with_the_line_of_its_object(tmp_path: Path, kind: str) -> None:
    version = "v1" if kind == "ConfigMap" else "external-secrets.io/v1"
    (tmp_path / "it.yaml").write_text(f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: it, namespace: a b}}\n")

    with pytest.raises(InputError, match=r'it\.yaml:3: metadata.namespace "a b" cannot be the name of a namespace'):
        asyncio.run(planned(PlanOptions((tmp_path,), offline=True)))


KEY = {change: KeyChange("key", change) for change in Change}


@pytest.mark.parametrize(
    ("plan", "code", "summary"),
    [
        pytest.param(Plan(), NOTHING_CHANGES, "0 create, 0 change, 0 remove, 0 unchanged", id="nothing"),
        pytest.param(
            Plan((TargetPlan(SECRET, ("es",), (KEY[Change.UNCHANGED],)),)),
            NOTHING_CHANGES,
            "0 create, 0 change, 0 remove, 1 unchanged",
            id="an unchanged key",
        ),
        pytest.param(
            Plan((TargetPlan(SECRET, ("es",), (KEY[Change.REMOVE], KEY[Change.CHANGE])),)),
            CHANGES,
            "0 create, 1 change, 1 remove, 0 unchanged",
            id="two changes",
        ),
        pytest.param(
            Plan(pushes=(PushPlan("app", "push", "store", "key", Change.CREATE),)),
            CHANGES,
            "1 create, 0 change, 0 remove, 0 unchanged",
            id="a push",
        ),
        pytest.param(
            Plan(
                (TargetPlan(SECRET, ("es",), (KEY[Change.CREATE],)),),
                unchecked=(Unchecked("ExternalSecret", "app", "es", "why"),),
            ),
            UNCHECKED,
            "1 create, 0 change, 0 remove, 0 unchanged, 1 not checked",
            id="a change, and an object that was not checked",
        ),
        pytest.param(
            Plan(unsettled="time is over", unchecked=(Unchecked("ExternalSecret", "app", "es", "why"),)),
            FAILS,
            "0 create, 0 change, 0 remove, 0 unchanged, 1 not checked",
            id="a failure counts more than an object that was not checked",
        ),
    ],
)
def test_exit_code_and_summary(plan: Plan, code: int, summary: str) -> None:
    assert code_of(plan) == code
    assert list(lines(plan))[-1] == summary


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        pytest.param(PlanOptions((GONE,)), "gone: no such file or folder", id="a missing folder"),
        pytest.param(PlanOptions((DEMO,), recorded=GONE), "gone: No such file", id="a missing recording"),
        pytest.param(
            PlanOptions((DEMO,), recorded=GONE, record=GONE), "leave out --recorded", id="record and recorded"
        ),
        pytest.param(
            PlanOptions((DEMO,), record=GONE / "file"), "its folder does not exist", id="a recording in no folder"
        ),
        pytest.param(PlanOptions((DEMO,), kubeconfig=GONE), "gone", id="a missing kubeconfig"),
        pytest.param(
            PlanOptions((DEMO,), namespace="bad ns", offline=True),
            '--namespace "bad ns" cannot be the name of a namespace: a lowercase RFC 1123 label',
            id="a namespace that cannot exist",
        ),
    ],
)
def test_bad_input_exits_with_2(options: PlanOptions, complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_plan(options) == UNUSABLE

    assert complaint in capsys.readouterr().err


def test_the_guide_names_options_and_exit_codes_that_exist() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "guides" / "plan.md").read_text(encoding="utf-8")
    spelled = {option for each in get_command(commands).commands["plan"].params for option in each.opts}  # type: ignore[attr-defined]  # it is a group

    documented = set(
        re.findall(r"(?<![\w-])--?[a-z][a-z-]*", "\n".join(re.findall(r"`[^`\n]*`|^eso plan .*$", page, re.MULTILINE)))
    )
    codes = {int(code) for code in re.findall(r"^\| (\d) \|", page, re.MULTILINE)}

    assert documented - spelled == {"--unsafe-allow-generic-targets"}  # a flag of the operator
    assert spelled - documented == {"--file", "--namespace", "--output"}  # the guide has their short forms
    assert codes == {NOTHING_CHANGES, CHANGES, FAILS, UNCHECKED, UNUSABLE}
